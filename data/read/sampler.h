#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ashlar::data {

/// a / b rounded up, of a >= 0 and b > 0.
inline int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

/// A keyed permutation of [0, n) that computes each value when asked and stores nothing: a balanced Feistel network of
/// Philox rounds over the next power of four, iterated until the value is below n (fewer than four steps on average).
/// Source: Black and Rogaway 2002, "Ciphers with arbitrary finite domains", methods 2 and 3.
class KeyedPermutation {
 public:
  KeyedPermutation(int64_t n, uint64_t seed, uint64_t rng_stream);
  int64_t operator()(int64_t i) const;  ///< i in [0, n)
  int64_t size() const { return n_; }

 private:
  int64_t n_;
  uint64_t seed_, rng_stream_;
  int half_bits_;
};

/// Position of a sample in a part's stream.
struct WindowAddress {
  int64_t epoch = 0;
  int64_t group = 0;   ///< group of 64 chunks, in the order of this epoch
  int64_t chunk = 0;   ///< chunk that holds the first token of the window
  int64_t window = 0;  ///< tokens [window*T, window*T + T]
};

/// The shuffled order of the windows of one part. It depends only on the arguments, costs O(1) at any position, and has
/// each window once per epoch.
///
/// N tokens have W = (N-1)/T windows, grouped by chunks of S tokens. Chunk c has n(c) = ceil((c+1)S/T) - ceil(cS/T)
/// windows, which has at most two values; the last chunk may be short. Level one permutes chunks that have the same
/// number of windows, so that entry e of the order has n(e) windows, as chunk e has (a short chunk stays last). A
/// closed formula then gives the sample at which an entry or a group of 64 entries begins, without a table. When T
/// divides S all whole chunks have equally many windows and level one permutes all of them. Level two permutes the
/// windows of a group. Keys are (seed, epoch) and (seed, epoch, group).
class WindowOrder {
 public:
  static constexpr int64_t kGroupChunks = 64;

  /// Input error that names `name` if there are fewer than T+1 tokens.
  WindowOrder(const std::string& name, int64_t tokens, int64_t sequence_length, int64_t chunk_tokens, uint64_t seed);

  int64_t windows() const { return W_; }
  WindowAddress at(int64_t sample) const;  ///< sample >= 0, counted over all epochs
  /// Windows whose first token lies in `chunk`: [first_window(chunk), first_window(chunk + 1)).
  int64_t first_window(int64_t chunk) const;

 private:
  int64_t permuted_chunk(int64_t entry, int64_t epoch) const;
  int64_t surplus_before(int64_t chunk) const;

  int64_t T_, S_, W_;
  int64_t regular_;  ///< number of chunks with all their windows; chunk `regular_` is the short one
  int64_t rest_;     ///< S mod T
  uint64_t seed_;
};

/// The dataset of a global sample, and the index of the sample among the samples of that dataset.
struct MixtureAddress {
  int64_t dataset = 0;
  int64_t sample = 0;
};

/// A weighted mixture with exact counts; a look-up at any position costs O(log datasets). It is a binary tree over the
/// datasets, in which each node assigns floor(s*left/total + 1/2) of its first s samples to its left half. Weights are
/// the decimal numbers that the user typed, converted to the smallest integers with the same ratios. Where s*weight/sum
/// is an integer for all datasets, these are the counts; elsewhere a count is off by at most half a sample per level.
class Mixture {
 public:
  /// `names` are used in error texts only. Input error if there is no dataset, if a weight is not finite and positive,
  /// or if the integers add up to more than 2^62 (some weights are about 1e18 times others).
  Mixture(const std::vector<std::string>& names, const std::vector<double>& weights);

  MixtureAddress at(int64_t sample) const;
  /// The number of the first `samples` global samples that come from `dataset`.
  int64_t count(int64_t samples, int64_t dataset) const;
  int64_t num_datasets() const { return static_cast<int64_t>(prefix_.size()) - 1; }

 private:
  int64_t left_count(int64_t samples, int64_t lo, int64_t mid, int64_t hi) const;

  std::vector<int64_t> prefix_;  ///< cumulative integer weights
};

}  // namespace ashlar::data
