#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/read/batch.h"
#include "data/read/sampler.h"
#include "data/read/token_dataset.h"

namespace ashlar::data {

/// A source of micro-batches. Not thread-safe.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// Writes the next micro-batch of this data-parallel (dp) index into `batch`, whose buffers are reused. Returns false
  /// at the end.
  virtual bool next(Batch& batch) = 0;
};

/// Determines which samples one data-parallel (dp) index reads. In a micro-step, every dp index reads one micro-batch.
/// From position p on, micro-step m has the B*dp_size global samples that begin at p + m*B*dp_size. Index d reads
/// samples [d*B, (d+1)*B) of a micro-step. A step of n samples that begins at position p therefore always reads the
/// samples [p, p + n), however the run is divided among ranks.
struct StreamOptions {
  int64_t sequence_length = 0;  ///< T, tokens per sample
  int64_t micro_batch = 0;      ///< B, rows of one micro-batch on one dp index
  int64_t dp_index = 0;
  int64_t dp_size = 1;
  DocumentRule documents;
  int64_t vocab_size = 0;  ///< vocabulary size of the model; a dataset with a larger vocabulary is an error
  /// Number of ranks among which the tokens of a micro-batch are sharded. In every micro-batch of a ValidationStream,
  /// also in a short one, the number of tokens is a multiple of this number.
  int64_t rows_multiple = 1;
};

/// A dataset of a mixture and its weight. A stream owns its datasets, since a TokenDataset is not thread-safe.
struct WeightedDataset {
  std::unique_ptr<TokenDataset> dataset;
  double weight = 1;
};

/// Checks, from the manifests alone, whether a TrainStream can read these datasets. Throws an input error if there is
/// no dataset, if a Mixture cannot represent the weights exactly, if a train part is shorter than one window
/// (sequence_length + 1 tokens), or if a vocabulary is larger than the model's. Does not compare the tokenizers.
void check_train_data(const std::vector<WeightedDataset>& datasets, const StreamOptions& options);

/// Returns an upper bound of the bytes of tokens that a TrainStream holds of a dataset, from the manifest alone. At
/// most two groups per dataset are in memory (a group is 64 chunks, see WindowOrder).
int64_t most_resident_bytes(const TokenDataset& dataset, int64_t sequence_length);

/// The endless training stream over one dataset or a mixture. The datasets of a mixture must have the same tokenizer;
/// otherwise the constructor throws an input error that names two of them. The position of the stream is one integer,
/// the index of the next global sample.
class TrainStream final : public BatchSource {
 public:
  TrainStream(std::vector<WeightedDataset> datasets, const StreamOptions& options, uint64_t seed, int64_t position);

  bool next(Batch& batch) override;               ///< always returns true
  int64_t position() const { return position_; }  ///< index of the next global sample
  const TokenDataset& dataset(int64_t i) const { return *inputs_[i].dataset; }
  int64_t windows(int64_t i) const { return inputs_[i].order.windows(); }

  int64_t resident_bytes() const;      ///< bytes of the tokens that are in memory now
  int64_t max_resident_bytes() const;  ///< an upper bound of this number: most_resident_bytes of its datasets

 private:
  /// The tokens of the n windows that begin in one chunk: n*T + 1 consecutive tokens, so that each window is
  /// contiguous.
  using Run = std::vector<int32_t>;
  struct Group {
    int64_t epoch = -1, group = -1;
    int64_t last_use = 0;
    std::map<int64_t, Run> runs;  ///< key: index of the chunk
  };
  struct Input {
    std::unique_ptr<TokenDataset> dataset;
    WindowOrder order;
    Group groups[2];
  };
  std::span<const int32_t> window(Input& input, const WindowAddress& address);

  StreamOptions options_;
  Mixture mixture_;
  std::vector<Input> inputs_;
  int64_t position_;
  int64_t uses_ = 0;
  std::vector<int32_t> counts_;
};

/// Reads the sequences of the validation part of one dataset once, in order. Window w is tokens w*T to w*T + T
/// inclusive, that is, T inputs and their targets. The last window may be short. So if all windows are read, every
/// token except the first is a target exactly once (apart from document masking). If 0 < max_sequences = n < W, where W
/// is the number of windows, only n evenly spread windows are read: floor(i*W/n) for i in [0, n). Which windows are
/// read does not depend on the micro-batch size or on how the run is divided among ranks. The windows are divided among
/// the dp indices. Batches are not filled with empty rows or columns, except where `rows_multiple` requires this. So
/// the last batch may be smaller, and a dp index may have fewer batches than another, or none. The validation part must
/// have at least two tokens.
class ValidationStream final : public BatchSource {
 public:
  ValidationStream(std::unique_ptr<TokenDataset> dataset, const StreamOptions& options, int64_t max_sequences = 0);
  ValidationStream(const std::string& path, const StreamOptions& options, int64_t max_sequences = 0)
      : ValidationStream(std::make_unique<TokenDataset>(path), options, max_sequences) {}

  bool next(Batch& batch) override;
  void rewind() { step_ = 0; }
  int64_t num_batches() const { return num_batches_; }  ///< number of batches of this dp index
  int64_t num_sequences() const { return sequences_; }  ///< number of sequences of all dp indices together
  const TokenDataset& dataset() const { return *dataset_; }

 private:
  void size_batch(Batch& batch, int64_t rows) const;
  int64_t window_of(int64_t sequence) const;
  int64_t length_of(int64_t window) const;  ///< number of targets of `window`, at most T

  StreamOptions options_;
  std::unique_ptr<TokenDataset> dataset_;
  int64_t windows_ = 0;    ///< number of windows of the validation part
  int64_t sequences_ = 0;  ///< number of windows that are read
  int64_t num_batches_ = 0;
  int64_t step_ = 0;
  std::vector<int32_t> row_, counts_;
};

}  // namespace ashlar::data
