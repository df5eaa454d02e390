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

/// What a transport promises of its sums, beside equal bits on all ranks and in all runs.
enum class Sums : uint8_t {
  kRankOrder,  ///< the bits of a sum in rank order, rounded once; a sum of int32 beyond its range is a Bug
  /// At most (p - 1) eps sum |x| from the true sum, eps of the buffer's dtype: each of p - 1 additions may round. The
  /// order depends on the buffer's size. Integers wrap; maxima may drop a NaN.
  kBounded,
};
Sums sums_of(const Communicator& communicator);

struct NcclOptions {
  bool deterministic = true;   ///< one algorithm and protocol for all sums (set_nccl_environment), and no windows
  double setup_seconds = 300;  ///< how long ranks may take to meet
  Log* log = nullptr;          ///< why buffers have no windows, or an end not in peace; null: unsaid. Outlives it.
};

/// A communicator over NCCL for buffers of a CUDA device, on streams of its own: nothing leaves the devices. Equal bits
/// on all ranks and in all runs of the same ranks and sizes, in NCCL's own order (Sums::kBounded).
///   NCCL does not block: a call may come back while NCCL is still at it. Until it says that it is done, no event is
/// recorded behind the call and nothing else is asked of that communicator. All communicators of a rank hand their
/// operations to the device in the one order in which they were issued, so that ranks whose kernels wait for each other
/// start them in the same order.
///   An operation is complete for the host when it is queued on the device. Asynchronous errors are looked for in each
/// round of progress. Messages of a rank to itself need both sides before they begin; a send_recv with one side to
/// itself and the other not is a Bug. Splits of one rank are StagedComms, which never leave the device either.
class NcclComm final : public Communicator {
 public:
  /// Called by all ranks of `host`, the communicator of host memory of the same ranks, two or more. NCCL's id goes over
  /// `control`; all ranks fail together when one has no NCCL or they do not meet. All three outlive it.
  static std::unique_ptr<NcclComm> make(Communicator& host, ControlPlane& control, Backend& backend,
                                        const NcclOptions& options);
  ~NcclComm() override;

  Communicator& host() override;
  std::string description() const;  ///< one line for the log: library and version
  /// Ends all communication of this rank, from any thread: kernels that wait for others return. To be called by those
  /// who end the process; the function may outlive the communicator.
  std::function<void()> abort_function() const;
  /// Memory that windows can be made of; null where there are none.
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
