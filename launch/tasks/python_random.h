#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace ashlar::tasks {

/// Python's random.Random(seed), of which published prompts depend.
class PythonRandom {
 public:
  explicit PythonRandom(uint32_t seed);

  uint32_t below(uint32_t n);                          ///< randrange(n); n is at least 1
  std::vector<size_t> shuffled(size_t n);              ///< list(range(n)) after shuffle()
  std::vector<size_t> sample(size_t n, size_t count);  ///< sample(range(n), count); count is at most n

 private:
  std::mt19937 bits_;
};

}  // namespace ashlar::tasks
