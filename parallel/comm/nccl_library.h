#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/device/shared_library.h"
#include "parallel/comm/nccl_api.h"

namespace ashlar::comm {

/// NCCL, loaded when the program needs it; all calls pass through this class.
///   After a successful `abort`, which any thread may call, the library is never called again: `call` throws
/// Error(kPeerLost) instead. All other functions may be called only by the communicating thread.
class NcclLibrary {
 public:
  /// Loads the library that ASHLAR_NCCL names, else libnccl.so.2 from the folders of the dynamic linker and of CUDA.
  /// Throws input_error if no library of release 2.18 or newer is found (2.18 is the first with ncclCommSplit).
  NcclLibrary();
  NcclLibrary(const NcclLibrary&) = delete;
  NcclLibrary& operator=(const NcclLibrary&) = delete;

  std::string description() const;  ///< "NCCL 2.28.9 (/usr/lib/libnccl.so.2)"

  /// Calls one function of the library. Returns kSuccess or kInProgress. Throws Bug for invalid arguments and
  /// Error(kPeerLost) for all other errors, with `what` and NCCL's error text.
  nccl::Result call(std::string_view what, nccl::Comm comm, const std::function<nccl::Result(const nccl::Api&)>& make);
  struct Answer {
    nccl::Result result;
    std::string words;  ///< NCCL's error text
  };
  /// Variant of `call` that returns NCCL's errors instead of throwing them, for calls that the library may reject.
  Answer attempt(std::string_view what, nccl::Comm comm, const std::function<nccl::Result(const nccl::Api&)>& make);
  /// True if the library supports symmetric memory windows and allocates memory for them (since NCCL 2.27).
  bool has_windows() const { return api_.CommWindowRegister != nullptr; }
  /// True if `comm` has completed all its calls and may be called again. Throws the asynchronous error of `comm`, if
  /// any. Returns true if `comm` is null.
  bool settled(nccl::Comm comm, std::string_view name);
  /// Waits until `comm` is settled, calling `idle` between polls. Throws Error(kPeerLost) after `seconds`.
  void settle(nccl::Comm comm, std::string_view name, double seconds, const std::function<void()>& idle);

  /// Add and remove a communicator that `abort` must end.
  void add(nccl::Comm comm);
  void remove(nccl::Comm comm);
  /// Aborts all communicators, so that kernels that wait for other ranks return and peers are notified. Does
  /// nothing if another thread stays in the library for longer than `seconds`. A second call does nothing either.
  void abort(double seconds = 1) noexcept;
  /// Aborts one communicator. Only on the communicating thread.
  void abort(nccl::Comm comm) noexcept;

 private:
  static Error error_of(std::string_view what, const std::string& words);
  std::string words_of(nccl::Comm comm, nccl::Result result) const;

  SharedLibrary library_;
  nccl::Api api_;
  int version_ = 0;
  mutable std::timed_mutex mutex_;  ///< protects the library's calls and everything below
  std::vector<nccl::Comm> comms_;
  bool aborted_ = false;
};

/// Sets environment variables that NCCL reads at its start, unless the user has set them. With `deterministic`, sums
/// have the same bits in all runs on the same ranks: NCCL then uses one algorithm (ring), one protocol, no reductions
/// in the switch and no symmetric memory.
void set_nccl_environment(bool deterministic);

}  // namespace ashlar::comm
