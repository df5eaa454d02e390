#pragma once

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "tests/gpu_emulator_test/emulator_test.h"

namespace ashlar::testing {

/// A machine that watches, and memory that it takes for the device's: exactly what `device` handed out.
class Watched : public Emulator {
 protected:
  void SetUp() override {
    machine_.watch({.is_device_memory = [this](const void* at, int64_t bytes) { return holds(at, bytes); },
                    .describe = [](const void*) { return std::string("as the device said"); },
                    .ordered = [this](int64_t earlier, int64_t later) { return ordered_(earlier, later); }});
  }

  /// `n` values that kernels may touch.
  template <typename T>
  T* device(int64_t n) {
    blocks_.emplace_back(n * sizeof(T) + 32);  // room, so that what is just past the end is ours and not the device's
    char* const begin = blocks_.back().data();
    char* const aligned = begin + (16 - reinterpret_cast<uintptr_t>(begin) % 16) % 16;
    ranges_.push_back({aligned, aligned + n * static_cast<int64_t>(sizeof(T))});
    return reinterpret_cast<T*>(aligned);
  }
  void release_all() { ranges_.clear(); }
  void set_ordered(std::function<bool(int64_t, int64_t)> ordered) { ordered_ = std::move(ordered); }

 private:
  bool holds(const void* at, int64_t bytes) const {
    const auto* begin = static_cast<const char*>(at);
    return std::any_of(ranges_.begin(), ranges_.end(),
                       [&](const auto& range) { return begin >= range.first && begin + bytes <= range.second; });
  }

  std::deque<std::vector<char>> blocks_;
  std::vector<std::pair<const char*, const char*>> ranges_;
  std::function<bool(int64_t, int64_t)> ordered_ = [](int64_t, int64_t) { return true; };
};

}  // namespace ashlar::testing
