#include "data/read/sampler.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "core/base/error.h"
#include "core/base/philox.h"

namespace ashlar::data {
namespace {

uint64_t mix(uint64_t a, uint64_t b) {
  const Philox::Counter c = Philox::block(a, 0x6173686c6172ULL, b);
  return (uint64_t{c[1]} << 32) | c[0];
}

using Wide = unsigned __int128;

Wide gcd(Wide a, Wide b) { return b == 0 ? a : gcd(b, a % b); }

/// A weight as digits * 10^exponent. This product is the shortest decimal number that parses as the weight. If the user
/// typed at most 15 digits, it is the number that the user typed. `digits` has at most 17 digits, and its last digit is
/// not zero.
struct Decimal {
  uint64_t digits = 0;
  int exponent = 0;
};

Decimal decimal(double weight) {
  std::array<char, 40> text{};
  const auto [end, error] =
      std::to_chars(text.data(), text.data() + text.size(), weight, std::chars_format::scientific);
  ASHLAR_CHECK(error == std::errc(), "weight ", weight);
  const char* const e = std::find(text.data(), end, 'e');
  Decimal d;
  // std::from_chars does not accept a plus sign.
  std::from_chars(e + (e[1] == '+' ? 2 : 1), end, d.exponent);
  for (const char* c = text.data(); c < e; ++c) {
    if (*c != '.') d.digits = d.digits * 10 + static_cast<uint64_t>(*c - '0');
  }
  if (e - text.data() > 2) d.exponent -= static_cast<int>(e - text.data()) - 2;  // digits after the decimal point
  while (d.digits % 10 == 0) {
    d.digits /= 10;
    ++d.exponent;
  }
  return d;
}

/// Returns the smallest integers that have the same ratios as the weights. Returns an empty vector if the decimal
/// exponents of two weights differ by more than kMostPlaces, since the integers could then exceed 128 bits.
std::vector<Wide> whole_weights(const std::vector<double>& weights) {
  constexpr int kMostPlaces = 21;  // largest difference of exponents: 10^17 (17 digits) * 10^21 < 2^127
  std::vector<Decimal> decimals;
  for (const double w : weights) decimals.push_back(decimal(w));
  const auto lower = [](const Decimal& a, const Decimal& b) { return a.exponent < b.exponent; };
  const int unit = std::min_element(decimals.begin(), decimals.end(), lower)->exponent;
  std::vector<Wide> whole;
  Wide divisor = 0;
  for (const Decimal& d : decimals) {
    if (d.exponent - unit > kMostPlaces) return {};
    Wide w = d.digits;
    for (int place = unit; place < d.exponent; ++place) w *= 10;
    divisor = gcd(w, divisor);
    whole.push_back(w);
  }
  for (Wide& w : whole) w /= divisor;
  return whole;
}

/// Returns the prefix sums [0, w0, w0 + w1, ...] of the weights. Returns an empty vector if there are no weights or if
/// their sum exceeds 2^62.
std::vector<int64_t> cumulative(const std::vector<Wide>& whole) {
  std::vector<int64_t> prefix;
  if (!whole.empty()) prefix.push_back(0);
  for (const Wide w : whole) {
    const Wide sum = static_cast<Wide>(prefix.back()) + w;
    if (sum > Wide{1} << 62) return {};
    prefix.push_back(static_cast<int64_t>(sum));
  }
  return prefix;
}

/// Random streams of the permutations in WindowOrder. Level one has two permutations per epoch: the first permutes the
/// chunks that have one window more than the others, the second permutes the other chunks. Level two has one
/// permutation per group.
constexpr uint64_t kSurplusRngStream = 1, kPlainRngStream = 2, kGroupRngStream = 3;

}  // namespace

KeyedPermutation::KeyedPermutation(int64_t n, uint64_t seed, uint64_t rng_stream)
    : n_(n), seed_(seed), rng_stream_(rng_stream), half_bits_(1) {
  ASHLAR_CHECK(n > 0 && n < (int64_t{1} << 60), "permutation of ", n);
  while ((int64_t{1} << (2 * half_bits_)) < n) ++half_bits_;
}

int64_t KeyedPermutation::operator()(int64_t i) const {
  ASHLAR_CHECK(i >= 0 && i < n_, i, " of ", n_);
  constexpr uint64_t kRounds = 6;
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  auto x = static_cast<uint64_t>(i);
  do {
    uint64_t left = x >> half_bits_, right = x & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t f = Philox::block(seed_, rng_stream_, (round << 32) | right)[0];
      const uint64_t next = left ^ (f & mask);
      left = right;
      right = next;
    }
    x = (left << half_bits_) | right;
  } while (x >= static_cast<uint64_t>(n_));
  return static_cast<int64_t>(x);
}

WindowOrder::WindowOrder(const std::string& name, int64_t tokens, int64_t sequence_length, int64_t chunk_tokens,
                         uint64_t seed)
    : T_(sequence_length), S_(chunk_tokens), W_(0), regular_(0), rest_(0), seed_(seed) {
  ASHLAR_CHECK(T_ > 0 && S_ > 0 && tokens >= 0, "T = ", T_, ", S = ", S_, ", N = ", tokens);
  if (tokens < T_ + 1) {
    throw input_error("data", name, " has ", tokens,
                      " tokens in its train part, but a window of train.sequence_length = ", T_, " needs ", T_ + 1,
                      "; use more text or a smaller train.sequence_length");
  }
  W_ = (tokens - 1) / T_;
  regular_ = W_ * T_ / S_;
  rest_ = S_ % T_;
}

int64_t WindowOrder::first_window(int64_t chunk) const { return std::min(W_, ceil_div(chunk * S_, T_)); }

int64_t WindowOrder::surplus_before(int64_t chunk) const { return ceil_div(chunk * rest_, T_); }

int64_t WindowOrder::permuted_chunk(int64_t entry, int64_t epoch) const {
  if (entry >= regular_) return entry;
  const uint64_t key = mix(seed_, static_cast<uint64_t>(epoch));
  const int64_t surplus = surplus_before(entry);
  const int64_t num_surplus = surplus_before(regular_);
  if (surplus_before(entry + 1) > surplus) {
    // Let rest = S mod T. Of the first c chunks, ceil(c*rest/T) have one window more than the others. So the k-th of
    // these chunks (k from 0) is the first c with ceil((c+1)*rest/T) > k.
    const int64_t k = KeyedPermutation(num_surplus, key, kSurplusRngStream)(surplus);
    return k * T_ / rest_;
  }
  // Let rest = S mod T. Of the first c chunks, c - ceil(c*rest/T) = floor(c*(T-rest)/T) do not have the additional
  // window. So the k-th of these chunks is the first c with floor((c+1)*(T-rest)/T) > k.
  const int64_t k = KeyedPermutation(regular_ - num_surplus, key, kPlainRngStream)(entry - surplus);
  return ceil_div((k + 1) * T_, T_ - rest_) - 1;
}

WindowAddress WindowOrder::at(int64_t sample) const {
  ASHLAR_CHECK(sample >= 0, "sample ", sample);
  WindowAddress address;
  address.epoch = sample / W_;
  const int64_t i = sample % W_;
  address.group = i * T_ / S_ / kGroupChunks;
  const int64_t begin = first_window(address.group * kGroupChunks);
  const int64_t end = first_window((address.group + 1) * kGroupChunks);
  const uint64_t key = mix(mix(seed_, static_cast<uint64_t>(address.epoch)), static_cast<uint64_t>(address.group));
  const int64_t j = begin + KeyedPermutation(end - begin, key, kGroupRngStream)(i - begin);
  const int64_t entry = j * T_ / S_;
  address.chunk = permuted_chunk(entry, address.epoch);
  address.window = first_window(address.chunk) + (j - first_window(entry));
  return address;
}

Mixture::Mixture(const std::vector<std::string>& names, const std::vector<double>& weights) {
  ASHLAR_CHECK(names.size() == weights.size(), names.size(), " names, ", weights.size(), " weights");
  if (weights.empty()) throw input_error("data", "data.path names no dataset; give at least one");
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!std::isfinite(weights[i]) || weights[i] <= 0) {
      throw input_error("data", "the weight of ", names[i], " is ", weights[i],
                        "; expected a finite number above 0; correct the weight");
    }
  }
  prefix_ = cumulative(whole_weights(weights));
  if (!prefix_.empty()) return;
  const auto [least, most] = std::minmax_element(weights.begin(), weights.end());
  throw input_error("data", "expected weights that sum to at most 2^62 when they are scaled to integers, got ", *least,
                    " for ", names[least - weights.begin()], " and ", *most, " for ", names[most - weights.begin()],
                    "; use fewer digits, or drop the dataset with the smallest weight");
}

int64_t Mixture::left_count(int64_t samples, int64_t lo, int64_t mid, int64_t hi) const {
  const int64_t left = prefix_[mid] - prefix_[lo], total = prefix_[hi] - prefix_[lo];
  const auto s = static_cast<Wide>(samples), l = static_cast<Wide>(left), t = static_cast<Wide>(total);
  return static_cast<int64_t>((2 * s * l + t) / (2 * t));
}

MixtureAddress Mixture::at(int64_t sample) const {
  ASHLAR_CHECK(sample >= 0, "sample ", sample);
  int64_t lo = 0, hi = num_datasets();
  while (hi - lo > 1) {
    const int64_t mid = (lo + hi) / 2;
    const int64_t before = left_count(sample, lo, mid, hi);
    if (left_count(sample + 1, lo, mid, hi) > before) {
      sample = before;
      hi = mid;
    } else {
      sample -= before;
      lo = mid;
    }
  }
  return {lo, sample};
}

int64_t Mixture::count(int64_t samples, int64_t dataset) const {
  ASHLAR_CHECK(dataset >= 0 && dataset < num_datasets(), "dataset ", dataset, " of ", num_datasets());
  int64_t lo = 0, hi = num_datasets();
  while (hi - lo > 1) {
    const int64_t mid = (lo + hi) / 2;
    const int64_t left = left_count(samples, lo, mid, hi);
    if (dataset < mid) {
      samples = left;
      hi = mid;
    } else {
      samples -= left;
      lo = mid;
    }
  }
  return samples;
}

}  // namespace ashlar::data
