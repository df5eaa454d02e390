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

/// A source of micro-batches. Used by one thread, in order.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// Writes the next micro-batch of this dp index into `batch` (buffers reused). False at the end.
  virtual bool next(Batch& batch) = 0;
};

/// The samples that one data-parallel index reads. Micro-step m at position p has global samples [p + m*B*dp_size, +
/// B*dp_size); index d gets rows [d*B, (d+1)*B) of them, so the samples of a step are the same on any mesh.
struct StreamOptions {
  int64_t sequence_length = 0;  ///< T
  int64_t micro_batch = 0;      ///< B, rows of one micro-batch on one index
  int64_t dp_index = 0;
  int64_t dp_size = 1;
  DocumentRule documents;
  int64_t vocab_size = 0;  ///< vocabulary of the model; a dataset with a larger one is an error
  /// The token count of a micro-batch of a ValidationStream is a multiple of this, even for short ones: the number of
  /// ranks that shard its rows.
  int64_t rows_multiple = 1;
};

/// A dataset of a mixture. A stream owns its dataset: one reader is for one thread.
struct WeightedDataset {
  std::unique_ptr<TokenDataset> dataset;
  double weight = 1;
};

/// Checks from manifests alone what a TrainStream over these would refuse: no dataset, weights that no sampler can
/// represent exactly, a train part shorter than a window, a larger vocabulary. Input errors.
void check_train_data(const std::vector<WeightedDataset>& datasets, const StreamOptions& options);

/// The endless training stream over one dataset or a mixture. Datasets of a mixture share one tokenizer (hash); another
/// is an input error that names both. The position is one integer, counted in global samples.
class TrainStream final : public BatchSource {
 public:
  TrainStream(std::vector<WeightedDataset> datasets, const StreamOptions& options, uint64_t seed, int64_t position);

  bool next(Batch& batch) override;               ///< always true
  int64_t position() const { return position_; }  ///< the next global sample
  const TokenDataset& dataset(int64_t i) const { return *inputs_[i].dataset; }
  int64_t windows(int64_t i) const { return inputs_[i].order.windows(); }

  /// Bytes of tokens held now, and the maximum: two groups per dataset.
  int64_t resident_bytes() const;
  int64_t max_resident_bytes() const;

 private:
  /// The windows of one chunk as one run of n*T + 1 tokens, so that a window is contiguous.
  using Run = std::vector<int32_t>;
  struct Group {
    int64_t epoch = -1, group = -1;
    int64_t last_use = 0;
    std::map<int64_t, Run> runs;  ///< indexed by chunk
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

/// Sequences of the validation part of one dataset, in order, once. Window w is tokens [wT, wT+T], and the last one may
/// be short, so every token except the first is a target exactly once (apart from document masking). `max_sequences` =
/// n of the W windows are read, spread evenly: windows floor(i W / n); 0 or n >= W: all of them. They are the same on
/// any mesh and with any micro-batch size; the dp indices share them. A batch has no empty row or column, as far as
/// `rows_multiple` allows: the last one may be smaller, and a dp index may have fewer batches than another, or none.
/// Needs at least two tokens.
class ValidationStream final : public BatchSource {
 public:
  ValidationStream(std::unique_ptr<TokenDataset> dataset, const StreamOptions& options, int64_t max_sequences = 0);
  ValidationStream(const std::string& path, const StreamOptions& options, int64_t max_sequences = 0)
      : ValidationStream(std::make_unique<TokenDataset>(path), options, max_sequences) {}

  bool next(Batch& batch) override;
  void rewind() { step_ = 0; }
  int64_t num_batches() const { return num_batches_; }  ///< on this dp index
  int64_t num_sequences() const { return sequences_; }  ///< over all dp indices
  const TokenDataset& dataset() const { return *dataset_; }

 private:
  void size_batch(Batch& batch, int64_t rows) const;
  int64_t window_of(int64_t sequence) const;
  int64_t length_of(int64_t window) const;  ///< number of its targets, at most T

  StreamOptions options_;
  std::unique_ptr<TokenDataset> dataset_;
  int64_t windows_ = 0;    ///< number of windows of the part
  int64_t sequences_ = 0;  ///< number of windows that are read
  int64_t num_batches_ = 0;
  int64_t step_ = 0;
  std::vector<int32_t> row_, counts_;
};

}  // namespace ashlar::data
