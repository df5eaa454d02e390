#include "launch/tasks/python_random.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>
#include <utility>

#include "core/base/error.h"

namespace ashlar::tasks {

namespace {

/// A seed sequence of std::mt19937: the state that init_by_array of Matsumoto and Nishimura (2002) makes of one number.
class InitByArray {
 public:
  using result_type = uint32_t;
  explicit InitByArray(uint32_t seed) : seed_(seed) {}

  template <typename Word>
  void generate(Word first, Word last) const {
    const auto n = static_cast<uint32_t>(last - first);
    first[0] = uint32_t{19650218};
    for (uint32_t i = 1; i < n; ++i) first[i] = 1812433253U * mixed(first[i - 1]) + i;
    uint32_t at = 1;
    const auto next = [&] {
      if (++at < n) return;
      first[0] = first[n - 1];
      at = 1;
    };
    for (uint32_t i = 0; i < n; ++i, next()) first[at] = (first[at] ^ (mixed(first[at - 1]) * 1664525U)) + seed_;
    for (uint32_t i = 1; i < n; ++i, next()) first[at] = (first[at] ^ (mixed(first[at - 1]) * 1566083941U)) - at;
    first[0] = 0x80000000U;
  }

 private:
  static uint32_t mixed(uint32_t word) { return word ^ (word >> 30U); }
  uint32_t seed_;
};

std::mt19937 seeded(uint32_t seed) {
  InitByArray sequence(seed);
  return std::mt19937(sequence);
}

}  // namespace

PythonRandom::PythonRandom(uint32_t seed) : bits_(seeded(seed)) {}

uint32_t PythonRandom::below(uint32_t n) {
  const int bits = std::bit_width(n);
  uint32_t value = n;
  while (value >= n) value = static_cast<uint32_t>(bits_()) >> static_cast<uint32_t>(32 - bits);
  return value;
}

std::vector<size_t> PythonRandom::shuffled(size_t n) {
  std::vector<size_t> items(n);
  std::iota(items.begin(), items.end(), size_t{0});
  for (size_t i = n; i > 1; --i) std::swap(items[i - 1], items[below(static_cast<uint32_t>(i))]);
  return items;
}

std::vector<size_t> PythonRandom::sample(size_t n, size_t count) {
  ASHLAR_CHECK(count <= n, count, " of ", n);
  // Python takes from a list if it is smaller than the hash table of a set would be, and else draws until new.
  size_t table = 21, power = 1;
  while (power < count * 3) power *= 4;
  if (count > 5) table += power;
  std::vector<size_t> result, pool;
  if (n <= table) {
    pool.resize(n);
    std::iota(pool.begin(), pool.end(), size_t{0});
    for (size_t i = 0; i < count; ++i) {
      const uint32_t j = below(static_cast<uint32_t>(n - i));
      result.push_back(pool[j]);
      pool[j] = pool[n - i - 1];
    }
    return result;
  }
  std::set<size_t> drawn;
  while (result.size() < count)
    if (const size_t j = below(static_cast<uint32_t>(n)); drawn.insert(j).second) result.push_back(j);
  return result;
}

}  // namespace ashlar::tasks
