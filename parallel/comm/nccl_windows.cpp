#include "parallel/comm/nccl_windows.h"

#include <utility>

#include "core/base/error.h"

namespace ashlar::comm {

namespace {

constexpr int64_t kFields = 3;  // number of int64_t fields of a WindowOffer

}  // namespace

std::string window_problem(std::span<const WindowOffer> offers) {
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    const WindowOffer &offer = offers[rank], &first = offers.front();
    if (offer.supported == 0) return str_cat("expected NCCL 2.27 or later, got an older one on rank ", rank);
    if (offer.bytes != first.bytes)
      return str_cat("expected buffers of one size on all ranks, got ", first.bytes, " bytes on rank 0 and ",
                     offer.bytes, " on rank ", rank);
    if (offer.beyond != 0)
      return str_cat("expected a buffer that begins at a multiple of ", nccl::kWindowAlignment, " bytes, got one ",
                     offer.beyond, " bytes past a multiple on rank ", rank);
  }
  return offers.front().bytes == 0 ? "expected a buffer, got none" : "";
}

bool NcclWindows::all(bool mine) {
  int32_t missing = mine ? 0 : 1;
  SynchronousStream stream;
  const MutView view{&missing, DType::kInt32, 1, 1, 1};
  host_.all_reduce({.in = view, .out = view, .op = ReduceOp::kMax}, stream).wait();
  return missing == 0;
}

std::string NcclWindows::add(nccl::Comm comm, const std::string& name, const MutView& memory) {
  const int64_t bytes = memory.size() * size_of(memory.dtype), ranks = host_.size();
  const WindowOffer mine{
      .bytes = bytes,
      .beyond = static_cast<int64_t>(reinterpret_cast<uintptr_t>(memory.data) % nccl::kWindowAlignment),
      .supported = library_->has_windows() ? 1 : 0};
  // 1. All ranks gather the offers of all ranks and evaluate them with the same result.
  std::vector<WindowOffer> offers(static_cast<size_t>(ranks));
  static_assert(sizeof(WindowOffer) == kFields * sizeof(int64_t));
  SynchronousStream stream;
  host_
      .all_gather({.in = ConstView{&mine, DType::kInt64, 1, kFields, kFields},
                   .out = MutView{offers.data(), DType::kInt64, 1, kFields * ranks, kFields * ranks},
                   .parts = {}},
                  stream)
      .wait();
  const std::string problem = window_problem(offers);
  if (!problem.empty()) return problem;
  // 2. Each rank registers its memory. NCCL may accept the call but create no window, if windows are not supported on
  // this machine or for this memory.
  nccl::Window window = nullptr;
  const NcclLibrary::Answer answer = library_->attempt(name, comm, [&](const nccl::Api& api) {
    return api.CommWindowRegister(comm, memory.data, static_cast<size_t>(bytes), &window, nccl::kSymmetricWindow);
  });
  const bool taken = answer.result == nccl::Result::kSuccess || answer.result == nccl::Result::kInProgress;
  if (taken) settle_(comm);
  const bool everywhere = all(taken && window != nullptr);
  if (everywhere) {
    windows_.push_back(window);
    return "";
  }
  if (taken && window != nullptr) remove(comm, name, window);
  return taken ? "NCCL does not support a window of this memory on these machines" : answer.words;
}

void NcclWindows::remove(nccl::Comm comm, const std::string& name, nccl::Window window) {
  library_->call(name, comm, [&](const nccl::Api& api) { return api.CommWindowDeregister(comm, window); });
  settle_(comm);
}

void NcclWindows::remove_all(nccl::Comm comm, const std::string& name) {
  for (const nccl::Window window : std::exchange(windows_, {})) remove(comm, name, window);
}

void* NcclMemory::allocate(int64_t bytes) {
  void* memory = nullptr;
  const NcclLibrary::Answer answer = library_->attempt(
      "ncclMemAlloc", nullptr, [&](const nccl::Api& api) { return api.MemAlloc(&memory, static_cast<size_t>(bytes)); });
  return answer.result == nccl::Result::kSuccess ? memory : nullptr;
}

void NcclMemory::release(void* memory) noexcept {
  try {
    library_->attempt("ncclMemFree", nullptr, [&](const nccl::Api& api) { return api.MemFree(memory); });
  } catch (const std::exception&) {
    // Communication was aborted. The process ends soon, which frees the memory.
  }
}

}  // namespace ashlar::comm
