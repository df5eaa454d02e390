#include "parallel/comm/nccl_library.h"

#include <chrono>
#include <cstdlib>

namespace ashlar::comm {

using nccl::Result;

namespace {

constexpr int kOldest = 21800, kFirstWithWindows = 22700;
constexpr const char* kHowToGet = "install NVIDIA's NCCL 2 (package libnccl2, or the wheel nvidia-nccl-cu13)";

std::string version_text(int version) { return str_cat(version / 10000, ".", version / 100 % 100, ".", version % 100); }

// kInProgress is no error: while a communicator is in progress, even the call that queries its state returns
// kInProgress.
bool went_well(Result result) { return result == Result::kSuccess || result == Result::kInProgress; }

}  // namespace

NcclLibrary::NcclLibrary()
    : library_({.name = "NCCL",
                .sonames = {"libnccl.so.2"},
                .variable = "ASHLAR_NCCL",
                .folders = cuda_library_folders(),
                .how_to_get = kHowToGet},
               "nccl") {
  const auto load = [&]<typename Function>(Function*& place, const char* name) {
    place = library_.function<Function>(name);
  };
  load(api_.GetVersion, "ncclGetVersion");
  if (api_.GetVersion(&version_) != Result::kSuccess || version_ < kOldest)
    throw input_error("nccl", "expected NCCL 2.18 or later, got ", version_text(version_), " in ", library_.path(),
                      "; ", kHowToGet);
  load(api_.GetUniqueId, "ncclGetUniqueId");
  load(api_.GetErrorString, "ncclGetErrorString");
  load(api_.GetLastError, "ncclGetLastError");
  load(api_.CommInitRankConfig, "ncclCommInitRankConfig");
  load(api_.CommSplit, "ncclCommSplit");
  load(api_.CommFinalize, "ncclCommFinalize");
  load(api_.CommDestroy, "ncclCommDestroy");
  load(api_.CommAbort, "ncclCommAbort");
  load(api_.CommGetAsyncError, "ncclCommGetAsyncError");
  load(api_.AllReduce, "ncclAllReduce");
  load(api_.ReduceScatter, "ncclReduceScatter");
  load(api_.Reduce, "ncclReduce");
  load(api_.AllGather, "ncclAllGather");
  load(api_.Broadcast, "ncclBroadcast");
  load(api_.Send, "ncclSend");
  load(api_.Recv, "ncclRecv");
  load(api_.GroupStart, "ncclGroupStart");
  load(api_.GroupEnd, "ncclGroupEnd");
  const auto may_take = [&]<typename Function>(Function*& place, const char* name) {
    place = library_.optional_function<Function>(name);
    return place != nullptr;
  };
  const bool windows = version_ >= kFirstWithWindows && may_take(api_.MemAlloc, "ncclMemAlloc") &&
                       may_take(api_.MemFree, "ncclMemFree") &&
                       may_take(api_.CommWindowDeregister, "ncclCommWindowDeregister");
  if (windows) may_take(api_.CommWindowRegister, "ncclCommWindowRegister");
}

std::string NcclLibrary::description() const {
  return str_cat("NCCL ", version_text(version_), " (", library_.path(), ")");
}

std::string NcclLibrary::words_of(nccl::Comm comm, Result result) const {
  const char* const last = api_.GetLastError(comm);
  return str_cat(api_.GetErrorString(result), last == nullptr || *last == '\0' ? "" : str_cat(": ", last));
}

Error NcclLibrary::error_of(std::string_view what, const std::string& words) {
  return {ExitCode::kPeerLost, "nccl", str_cat(what, " failed: ", words, "; set NCCL_DEBUG=INFO for details")};
}

NcclLibrary::Answer NcclLibrary::attempt(std::string_view what, nccl::Comm comm,
                                         const std::function<Result(const nccl::Api&)>& make) {
  const std::lock_guard lock(mutex_);
  if (aborted_)
    throw Error(ExitCode::kPeerLost, "nccl",
                str_cat(what, " cannot continue after communication was aborted; an earlier error states the cause"));
  const Result result = make(api_);
  return {result, went_well(result) ? "" : words_of(comm, result)};
}

Result NcclLibrary::call(std::string_view what, nccl::Comm comm, const std::function<Result(const nccl::Api&)>& make) {
  const auto [result, words] = attempt(what, comm, make);
  if (went_well(result)) return result;
  const Error error = error_of(what, words);
  if (result == Result::kInvalidArgument || result == Result::kInvalidUsage) throw Bug(error.what());
  throw error;
}

bool NcclLibrary::settled(nccl::Comm comm, std::string_view name) {
  if (comm == nullptr) return true;
  Result state = Result::kSuccess;
  call(name, comm, [&](const nccl::Api& api) { return api.CommGetAsyncError(comm, &state); });
  if (went_well(state)) return state == Result::kSuccess;
  const std::lock_guard lock(mutex_);
  throw error_of(name, words_of(comm, state));
}

void NcclLibrary::settle(nccl::Comm comm, std::string_view name, double seconds, const std::function<void()>& idle) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  while (!settled(comm, name)) {
    if (Clock::now() > end) {
      throw Error(ExitCode::kPeerLost, "nccl",
                  str_cat(name, " is still in progress after ", seconds,
                          " s; check that all ranks run and that NCCL_SOCKET_IFNAME names their network"));
    }
    idle();
  }
}

void NcclLibrary::add(nccl::Comm comm) {
  const std::lock_guard lock(mutex_);
  comms_.push_back(comm);
}

void NcclLibrary::remove(nccl::Comm comm) {
  const std::lock_guard lock(mutex_);
  std::erase(comms_, comm);
}

void NcclLibrary::abort(double seconds) noexcept {
  const std::unique_lock lock(mutex_, std::chrono::duration<double>(seconds));
  if (!lock.owns_lock() || aborted_) return;
  aborted_ = true;
  for (const nccl::Comm comm : comms_) api_.CommAbort(comm);
  comms_.clear();
}

void NcclLibrary::abort(nccl::Comm comm) noexcept {
  const std::lock_guard lock(mutex_);
  if (aborted_ || std::erase(comms_, comm) == 0) return;
  api_.CommAbort(comm);
}

void set_nccl_environment(bool deterministic) {
  const auto otherwise = [](const char* name, const char* value) { setenv(name, value, 0); };
  // Ashlar itself ends a job after a failure, so NCCL's RAS server, which uses a port per rank, is off.
  otherwise("NCCL_RAS_ENABLE", "0");
  if (!deterministic) return;
  otherwise("NCCL_ALGO", "Ring");
  otherwise("NCCL_PROTO", "Simple");
  otherwise("NCCL_NVLS_ENABLE", "0");
  otherwise("NCCL_COLLNET_ENABLE", "0");
  otherwise("NCCL_WIN_ENABLE", "0");
}

}  // namespace ashlar::comm
