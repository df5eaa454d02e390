// One thread runs at a time, so an atomic is a plain change of memory here.
#include <algorithm>

#include "tests/gpu_emulator/block.h"

namespace ashlar::emulator {
namespace {

template <typename T, typename Change>
T change(T* address, Change new_value, Loc loc) {
  if (reinterpret_cast<uintptr_t>(address) % sizeof(T) != 0) current_block().fault("misaligned atomic", loc);
  current_block().atomic(address, sizeof(T), loc);
  const T old = *address;
  *address = new_value(old);
  return old;
}

}  // namespace

void thread_fence(Loc /*loc*/) { current_block().fence(); }

template <typename T>
T atomic_add(T* address, T value, Loc loc) {
  return change(
      address, [&](T old) { return old + value; }, loc);
}
template <typename T>
T atomic_min(T* address, T value, Loc loc) {
  return change(
      address, [&](T old) { return std::min(old, value); }, loc);
}
template <typename T>
T atomic_max(T* address, T value, Loc loc) {
  return change(
      address, [&](T old) { return std::max(old, value); }, loc);
}
template <typename T>
T atomic_or(T* address, T value, Loc loc) {
  return change(
      address, [&](T old) { return old | value; }, loc);
}
template <typename T>
T atomic_and(T* address, T value, Loc loc) {
  return change(
      address, [&](T old) { return old & value; }, loc);
}
template <typename T>
T atomic_exchange(T* address, T value, Loc loc) {
  return change(
      address, [&](T) { return value; }, loc);
}
template <typename T>
T atomic_compare_exchange(T* address, T expected, T value, Loc loc) {
  return change(
      address, [&](T old) { return old == expected ? value : old; }, loc);
}

// What CUDA has.
#define ASHLAR_INTEGER_ATOMICS(T)         \
  template T atomic_add(T*, T, Loc);      \
  template T atomic_min(T*, T, Loc);      \
  template T atomic_max(T*, T, Loc);      \
  template T atomic_or(T*, T, Loc);       \
  template T atomic_and(T*, T, Loc);      \
  template T atomic_exchange(T*, T, Loc); \
  template T atomic_compare_exchange(T*, T, T, Loc);
ASHLAR_INTEGER_ATOMICS(int)
ASHLAR_INTEGER_ATOMICS(unsigned)
ASHLAR_INTEGER_ATOMICS(unsigned long long)
#undef ASHLAR_INTEGER_ATOMICS
template float atomic_add(float*, float, Loc);
template double atomic_add(double*, double, Loc);
template float atomic_exchange(float*, float, Loc);

}  // namespace ashlar::emulator
