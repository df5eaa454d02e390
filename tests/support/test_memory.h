#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ashlar::test {

/// The one source of the memory that tests hand to backends. Each executable defines the two for its backends: what
/// they return is memory of the device that the host may read and write while no call is under way, aligned to 256.
void* allocate_test_memory(int64_t bytes);
void release_test_memory(void* block, int64_t bytes);

/// For containers whose elements a kernel reads or writes.
template <typename T>
struct TestMemory {
  using value_type = T;
  TestMemory() = default;
  template <typename U>
  TestMemory(const TestMemory<U>&) {}  // NOLINT: as the standard's allocators
  T* allocate(size_t n) { return static_cast<T*>(allocate_test_memory(static_cast<int64_t>(n * sizeof(T)))); }
  void deallocate(T* p, size_t n) { release_test_memory(p, static_cast<int64_t>(n * sizeof(T))); }
  template <typename U>
  bool operator==(const TestMemory<U>&) const {
    return true;
  }
};

template <typename T>
using DeviceVector = std::vector<T, TestMemory<T>>;

}  // namespace ashlar::test
