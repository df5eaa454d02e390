#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ashlar::data {

/// Returns a / b rounded up, for a >= 0 and b > 0.
inline int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

/// A keyed permutation of [0, n) that computes each value on demand and stores no table. A balanced Feistel network of
/// Philox rounds permutes [0, m), where m is the smallest power of four with m >= n and m >= 4. The network is applied
/// until the value is below n: on average about m / n times, where m / n is at most 4.
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

/// Where a sample (one window of T + 1 tokens) is in the token stream of a part.
struct WindowAddress {
  int64_t epoch = 0;
  int64_t group = 0;   ///< index of the group of the window; a group is 64 successive chunks of the epoch's order
  int64_t chunk = 0;   ///< index of the chunk that contains the first token of the window
  int64_t window = 0;  ///< index of the window, which has the tokens window*T to window*T + T inclusive
};

/// The shuffled order of the windows of one part. The order depends only on the constructor's arguments. The window at
/// any position is computed in O(1) time. Each window occurs once per epoch.
///
/// N tokens have W = floor((N-1)/T) windows. A window belongs to the chunk of S tokens in which it begins. Chunk c has
/// n(c) = ceil((c+1)*S/T) - ceil(c*S/T) windows, so n(c) has at most two values; the last chunk may have fewer windows.
/// The order has two levels.
///
/// Level one permutes the chunks, but only among chunks with the same number of windows (a last chunk with fewer
/// windows stays last). Entry e is the chunk at position e of the permuted chunks. It has as many windows as chunk e.
/// Therefore a closed formula, without a table, gives the sample at which an entry, or a group of 64 entries, begins.
/// If T divides S, all whole chunks have the same number of windows, and level one permutes all of them.
///
/// Level two permutes the windows within each group. The random keys are (seed, epoch) for level one and (seed, epoch,
/// group) for level two.
class WindowOrder {
 public:
  static constexpr int64_t kGroupChunks = 64;

  /// Throws an input error that names the dataset `name` if there are fewer than T+1 tokens.
  WindowOrder(const std::string& name, int64_t tokens, int64_t sequence_length, int64_t chunk_tokens, uint64_t seed);

  int64_t windows() const { return W_; }
  WindowAddress at(int64_t sample) const;  ///< sample >= 0, counted over all epochs
  /// Index of the first window that begins in `chunk`. The windows of the chunk are [first_window(chunk),
  /// first_window(chunk + 1)).
  int64_t first_window(int64_t chunk) const;

 private:
  int64_t permuted_chunk(int64_t entry, int64_t epoch) const;
  int64_t surplus_before(int64_t chunk) const;

  int64_t T_, S_, W_;
  int64_t regular_;  ///< number of chunks that have all n(c) windows; chunk `regular_`, if it exists, has fewer
  int64_t rest_;     ///< S mod T
  uint64_t seed_;
};

/// The dataset of a global sample, and the index of the sample among the samples of that dataset.
struct MixtureAddress {
  int64_t dataset = 0;
  int64_t sample = 0;
};

/// A weighted mixture of datasets with exact counts. A look-up at any position takes O(log datasets) time. The mixture
/// is a binary tree over the datasets. A node assigns floor(s*left/total + 1/2) of its first s samples to its left
/// half, where left is the weight of the left half and total the weight of the node. The weights are the decimal
/// numbers that the user typed, converted to the smallest integers with the same ratios. After s samples, a dataset has
/// s*weight/sum samples, where sum is the sum of all weights, if this value is an integer for all datasets. Otherwise
/// its count differs from this value by at most half a sample per level of the tree.
class Mixture {
 public:
  /// `names` are used only in error messages. Throws an input error if there is no dataset, if a weight is not finite
  /// and positive, or if the integer weights add up to more than 2^62 (for example if one weight is 1e19 times
  /// another).
  Mixture(const std::vector<std::string>& names, const std::vector<double>& weights);

  MixtureAddress at(int64_t sample) const;
  /// Returns how many of the first `samples` global samples come from `dataset`.
  int64_t count(int64_t samples, int64_t dataset) const;
  int64_t num_datasets() const { return static_cast<int64_t>(prefix_.size()) - 1; }

 private:
  int64_t left_count(int64_t samples, int64_t lo, int64_t mid, int64_t hi) const;

  std::vector<int64_t> prefix_;  ///< cumulative integer weights
};

}  // namespace ashlar::data
