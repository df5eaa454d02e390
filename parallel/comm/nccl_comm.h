#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/backend/backend.h"
#include "core/base/log.h"
#include "core/device/memory_source.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/control_plane.h"
#include "parallel/comm/nccl_library.h"

namespace ashlar::comm {

/// What a transport guarantees about sums, in addition to equal bits on all ranks and in all runs.
enum class Sums : uint8_t {
  kRankOrder,  ///< sum in rank order, rounded once; overflow of int32 is a Bug
  /// The error is at most (p - 1) * eps * sum |x| over the p operands x, with eps of the buffer's dtype, since each of
  /// the p - 1 additions may round. The order of the additions depends on the size of the buffer. Integers wrap; maxima
  /// may drop a NaN.
  kBounded,
};
Sums sums_of(const Communicator& communicator);

struct NcclOptions {
  bool deterministic = true;   ///< one algorithm and protocol for all sums (set_nccl_environment), and no windows
  double setup_seconds = 300;  ///< time limit in seconds for connecting, splitting or ending a communicator
  Log* log = nullptr;          ///< reports missing windows and aborts; may be null; must outlive the communicator
};

/// A communicator over NCCL for buffers of a CUDA device. It uses separate streams, and data stays on the devices.
/// Results have equal bits on all ranks and in all runs with the same ranks and sizes. NCCL chooses the order in which
/// operands are added (Sums::kBounded).
///   NCCL is used in non-blocking mode, in which a call may return while it is in progress. Until such a call is
/// complete, no event is recorded after it and no other call is made on its communicator. All communicators of a rank
/// launch operations in the order in which they were issued, so that all ranks start kernels that wait for each other
/// in the same order.
///   An operation is complete for the host when it is queued on the device. Asynchronous errors are polled in each
/// round of progress. A message of a rank to itself starts when both its send and its recv are issued. A send_recv in
/// which only one of `to` and `from` is this rank is a Bug. A split with a single rank is a StagedComm; the data
/// of its collectives stays on the device too.
class NcclComm final : public Communicator {
 public:
  /// Called by all ranks of `host`, the host communicator of the same ranks; `host` must have at least two ranks.
  /// NCCL's id is sent over `control`. All ranks throw the same error when a rank has no NCCL or the ranks cannot
  /// connect. `host`, `control` and `backend` must outlive the result.
  static std::unique_ptr<NcclComm> make(Communicator& host, ControlPlane& control, Backend& backend,
                                        const NcclOptions& options);
  ~NcclComm() override;

  Communicator& host() override;
  std::string description() const;  ///< one line for the log: library and version
  /// Returns a function that aborts all communication of this rank, so that kernels that wait for other ranks return.
  /// Any thread may call the function before that thread ends the process. The function may outlive the communicator.
  std::function<void()> abort_function() const;
  /// Returns the source of memory for symmetric windows; null if windows are not supported or not used.
  std::shared_ptr<MemorySource> memory_for_windows() const;
  bool make_window(const MutView& buffer);  ///< see make_window in device_comm.h
  size_t num_windows() const;

 private:
  struct Rank;
  struct Shared;
  class Launch;
  class Watch;
  class SelfMessage;
  class Mailbox;

  explicit NcclComm(std::shared_ptr<Shared> shared);
  OperationPtr make(const DeviceOperation& args, Stream& stream) override;
  std::unique_ptr<Communicator> make_split(const Split& args) override;

  std::shared_ptr<Shared> shared_;
};

}  // namespace ashlar::comm
