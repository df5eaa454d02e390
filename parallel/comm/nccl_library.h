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

/// NCCL, found when the program needs it, and the door that every call to it goes through.
///   After `abort`, which any thread may call, nothing calls the library again: `call` throws Error(kPeerLost) instead.
/// Everything else belongs to the thread that communicates.
class NcclLibrary {
 public:
  /// Loads ASHLAR_NCCL, else libnccl.so.2 from the dynamic linker's and CUDA's folders. Throws input_error where there
  /// is none, or none of 2.18 at least (the first with ncclCommSplit).
  NcclLibrary();
  NcclLibrary(const NcclLibrary&) = delete;
  NcclLibrary& operator=(const NcclLibrary&) = delete;

  std::string description() const;  ///< "NCCL 2.28.9 (/usr/lib/libnccl.so.2)"

  /// Calls one function of the library. Success and "in progress" are returned; anything else is thrown: a Bug for
  /// arguments that cannot be right, Error(kPeerLost) for the rest, which names `what` and NCCL's own last words.
  nccl::Result call(std::string_view what, nccl::Comm comm, const std::function<nccl::Result(const nccl::Api&)>& make);
  struct Answer {
    nccl::Result result;
    std::string words;  ///< NCCL's own, of an error
  };
  /// The same for what the library may refuse: nothing that it says is thrown.
  Answer attempt(std::string_view what, nccl::Comm comm, const std::function<nccl::Result(const nccl::Api&)>& make);
  /// Windows of symmetric memory, and memory for them: from 2.27 on.
  bool has_windows() const { return api_.CommWindowRegister != nullptr; }
  /// Whether `comm` has done all it was called for and may be called again. Throws its asynchronous error. Null: true.
  bool settled(nccl::Comm comm, std::string_view name);
  /// Waits until `comm` is settled, with `idle` called between two looks; Error(kPeerLost) after `seconds`.
  void settle(nccl::Comm comm, std::string_view name, double seconds, const std::function<void()>& idle);

  /// Communicators that `abort` ends.
  void add(nccl::Comm comm);
  void remove(nccl::Comm comm);
  /// Ends all communicators, so that kernels which wait for other ranks return and peers hear of it. Gives up where
  /// another thread stays inside the library for longer than `seconds`. Once; nothing calls the library afterwards.
  void abort(double seconds = 1) noexcept;
  /// Ends one of them. Its thread only.
  void abort(nccl::Comm comm) noexcept;

 private:
  static Error error_of(std::string_view what, const std::string& words);
  std::string words_of(nccl::Comm comm, nccl::Result result) const;

  SharedLibrary library_;
  nccl::Api api_;
  int version_ = 0;
  mutable std::timed_mutex mutex_;  ///< of the library's calls and everything below
  std::vector<nccl::Comm> comms_;
  bool aborted_ = false;
};

/// What NCCL reads from the environment when it starts, set where the user has not. With `deterministic` sums have the
/// same bits in all runs on the same ranks: one algorithm (ring), one protocol, no reductions in the switch, none of
/// symmetric memory.
void set_nccl_environment(bool deterministic);

}  // namespace ashlar::comm
