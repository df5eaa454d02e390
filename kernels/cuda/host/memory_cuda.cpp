#include <algorithm>
#include <iterator>

#include "core/base/error.h"
#include "kernels/cuda/host/cuda_state.h"

namespace ashlar::ASHLAR_DEV {

namespace {

constexpr int64_t kAlign = 256;
constexpr int64_t kLeastSlab = int64_t{2} << 20, kMostSlab = int64_t{64} << 20;  // a larger request gets a larger slab

}  // namespace

SlabAllocator::SlabAllocator(const DeviceCalls& calls, bool pinned, int64_t max_bytes, int64_t& taken)
    : calls_(calls), pinned_(pinned), max_bytes_(pinned ? 0 : max_bytes), taken_of_device_(taken) {}

SlabAllocator::~SlabAllocator() {
  for (const Slab& slab : slabs_) free_memory(slab);
}

void SlabAllocator::free_memory(const Slab& slab) const {
  if (slab.base == nullptr) return;
  if (slab.source != nullptr)
    slab.source->release(slab.base);
  else
    pinned_ ? cudaFreeHost(slab.base) : cudaFree(slab.base);
}

void SlabAllocator::give_back_since(int64_t calls) {
  for (size_t s = static_cast<size_t>(calls); s < slabs_.size(); ++s) {
    Slab& slab = slabs_[s];
    const bool empty = slab.base != nullptr && slab.free.size() == 1 && slab.free.begin()->second == slab.bytes;
    if (!empty) continue;
    free_memory(slab);
    taken_ -= slab.bytes;
    if (!pinned_) taken_of_device_ -= slab.bytes;
    slab = {};  // stays in the list, where blocks of later slabs know their slab by its index
  }
}

void* SlabAllocator::allocate(int64_t bytes) {
  const int64_t size = std::max<int64_t>((bytes + kAlign - 1) / kAlign * kAlign, kAlign);
  for (size_t s = 0;; ++s) {
    if (s == slabs_.size()) grow(size);
    Slab& slab = slabs_[s];
    for (auto it = slab.free.begin(); it != slab.free.end(); ++it) {
      const auto [offset, room] = *it;
      if (room < size) continue;
      slab.free.erase(it);
      if (room > size) slab.free.emplace(offset + size, room - size);
      char* const block = slab.base + offset;
      live_.emplace(block, Live{.slab = s, .size = size});
      used_ += size;
      return block;
    }
  }
}

void SlabAllocator::release(void* block) {
  if (block == nullptr) return;
  const auto found = live_.find(static_cast<char*>(block));
  ASHLAR_CHECK(found != live_.end(), "released a block that is not allocated");
  Slab& slab = slabs_[found->second.slab];
  int64_t offset = static_cast<char*>(block) - slab.base, size = found->second.size;
  used_ -= size;
  live_.erase(found);
  auto next = slab.free.lower_bound(offset);
  if (next != slab.free.end() && next->first == offset + size) {
    size += next->second;
    next = slab.free.erase(next);
  }
  if (next != slab.free.begin() && std::prev(next)->first + std::prev(next)->second == offset) {
    std::prev(next)->second += size;
  } else {
    slab.free.emplace(offset, size);
  }
}

void SlabAllocator::grow(int64_t size) {
  // A slab is as large as all earlier slabs of this allocator together, but at least kLeastSlab and at most kMostSlab,
  // or larger if `size` requires it. Slabs of such sizes need few driver calls. Requests often come in one size, so a
  // slab holds a whole number of them: a slab of 64 MiB would waste a quarter with tensors of 48 MiB.
  const int64_t wanted = std::max(size, std::clamp(taken_, kLeastSlab, kMostSlab) / size * size);
  const int64_t bytes = (wanted + kLeastSlab - 1) / kLeastSlab * kLeastSlab;
  const auto room = static_cast<size_t>(bytes);
  if (max_bytes_ > 0 && taken_of_device_ + bytes > max_bytes_)
    throw resource_error("cuda", "this run needs ", bytes >> 20, " MiB more of device memory, but it already uses ",
                         taken_of_device_ >> 20, " of the ", max_bytes_ >> 20,
                         " MiB that it may use; choose a smaller train.micro_batch or model");
  void* base = source_ != nullptr ? source_->allocate(bytes) : nullptr;
  const bool sourced = base != nullptr;
  if (sourced) {
    taken_of_device_ += bytes;
  } else if (pinned_) {
    calls_.check(cudaMallocHost(&base, room), "cudaMallocHost");
  } else {
    const cudaError_t status = cudaMalloc(&base, room);
    size_t free_bytes = 0, total = 0;
    if (status == cudaErrorMemoryAllocation && cudaMemGetInfo(&free_bytes, &total) == cudaSuccess) {
      static_cast<void>(cudaGetLastError());  // clears the error, which is reported here
      throw resource_error("cuda", bytes >> 20, " MiB more of device memory are needed, ", free_bytes >> 20, " of ",
                           total >> 20, " MiB are free and this run uses ", taken_of_device_ >> 20,
                           " MiB; choose a smaller train.micro_batch, more recomputation, or a mesh of more devices");
    }
    calls_.check(status, "cudaMalloc");
    taken_of_device_ += bytes;
  }
  slabs_.push_back(
      {.base = static_cast<char*>(base), .bytes = bytes, .free = {{0, bytes}}, .source = sourced ? source_ : nullptr});
  taken_ += bytes;
  most_taken_ = std::max(most_taken_, taken_);
}

}  // namespace ashlar::ASHLAR_DEV
