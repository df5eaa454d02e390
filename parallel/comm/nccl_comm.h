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
  /// The error is at most (p - 1) eps sum |x|, with eps of the buffer's dtype, since each of p - 1 additions may round.
  /// The order depends on the size of the buffer. Integers wrap; maxima may drop a NaN.
  kBounded,
};
Sums sums_of(const Communicator& communicator);

struct NcclOptions {
  bool deterministic = true;   ///< one algorithm and protocol for all sums (set_nccl_environment), and no windows
  double setup_seconds = 300;  ///< timeout of the ranks' connection
  Log* log = nullptr;          ///< for missing windows and aborts; may be null. Must outlive it.
};

/// A communicator over NCCL for buffers of a CUDA device, on its own streams; data stays on the devices. Results have
/// equal bits on all ranks and in all runs with the same ranks and sizes. The order of sums is NCCL's (Sums::kBounded).
///   NCCL is used in non-blocking mode, in which a call may return while it is in progress. Until the call is complete,
/// no event is recorded after it and no other call is made on that communicator. All communicators of a rank launch
/// operations in the order in which they were issued, so that ranks whose kernels wait for each other start them in the
/// same order.
///   An operation is complete for the host when it is queued on the device. Asynchronous errors are polled in each
/// round of progress. Messages of a rank to itself need both sides before they start; a send_recv with only one side to
/// itself is a Bug. Splits of one rank are StagedComms, which stay on the device too.
class NcclComm final : public Communicator {
 public:
  /// Called by all ranks of `host`, the host communicator of the same ranks; there must be at least two. NCCL's id is
  /// sent over `control`. All ranks fail together when one has no NCCL or they cannot connect. `host`, `control` and
  /// `backend` must outlive the result.
  static std::unique_ptr<NcclComm> make(Communicator& host, ControlPlane& control, Backend& backend,
                                        const NcclOptions& options);
  ~NcclComm() override;

  Communicator& host() override;
  std::string description() const;  ///< one line for the log: library and version
  /// Aborts all communication of this rank from any thread: kernels that wait for other ranks return. To be called
  /// before ending the process; the function may outlive the communicator.
  std::function<void()> abort_function() const;
  /// Memory for windows; null if not supported.
  std::shared_ptr<MemorySource> memory_for_windows() const;
  bool make_window(const MutView& buffer);  ///< device_comm.h
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
