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
  /// Writes the next micro-batch of this dp index into `batch`, whose buffers are reused. Returns false at the end.
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
  /// The number of ranks that shard the rows of a micro-batch. The number of tokens in each micro-batch of a
  /// ValidationStream is a multiple of it, also in short ones.
  int64_t rows_multiple = 1;
};

/// A dataset of a mixture. A stream owns its datasets, since a reader is for one thread.
struct WeightedDataset {
  std::unique_ptr<TokenDataset> dataset;
  double weight = 1;
};

/// Throws the input errors that a TrainStream over these datasets would throw, from the manifests alone: no dataset,
/// weights that no sampler can represent exactly, a train part shorter than a window, or a vocabulary larger than the
/// model's.
void check_train_data(const std::vector<WeightedDataset>& datasets, const StreamOptions& options);

/// The endless training stream over one dataset or a mixture. The datasets of a mixture must have the same tokenizer
/// (hash); otherwise an input error names both. The position is one integer, counted in global samples.
class TrainStream final : public BatchSource {
 public:
  TrainStream(std::vector<WeightedDataset> datasets, const StreamOptions& options, uint64_t seed, int64_t position);

  bool next(Batch& batch) override;               ///< always true
  int64_t position() const { return position_; }  ///< the next global sample
  const TokenDataset& dataset(int64_t i) const { return *inputs_[i].dataset; }
  int64_t windows(int64_t i) const { return inputs_[i].order.windows(); }

  /// The bytes of tokens that are held now, and their maximum. At most two groups per dataset are held.
  int64_t resident_bytes() const;
  int64_t max_resident_bytes() const;

 private:
  /// The windows of one chunk: n*T + 1 consecutive tokens, so that each window is contiguous.
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

/// Reads the sequences of the validation part of one dataset once, in order. Window w is tokens [wT, wT+T]. The last
/// window may be short, so every token except the first is a target exactly once (apart from document masking). If
/// `max_sequences` is n, n of the W windows are read, spread evenly: windows floor(i W / n). With n = 0 or n >= W all
/// are read. The windows are the same on any mesh and for any micro-batch size, and are divided among the dp indices. A
/// batch has no empty row or column, as far as `rows_multiple` allows. So the last batch may be smaller, and a dp index
/// may have fewer batches than another, or none. Needs at least two tokens.
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
