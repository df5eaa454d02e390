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

/// Where micro-batches come from. Pulled by one thread, in order.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// Writes the next micro-batch of this dp index into `batch` (buffers reused). False when there is none.
  virtual bool next(Batch& batch) = 0;
};

/// What one data-parallel index reads. Micro-step m of a position p is global samples [p + m*B*dp_size, + B*dp_size);
/// index d gets rows [d*B, (d+1)*B) of them, so the samples of a step are the same on any mesh.
struct StreamOptions {
  int64_t sequence_length = 0;  ///< T
  int64_t micro_batch = 0;      ///< B, rows of one micro-batch on one index
  int64_t dp_index = 0;
  int64_t dp_size = 1;
  DocumentRule documents;
  int64_t vocab_size = 0;  ///< the model's; a dataset with a larger vocabulary is refused at once
  /// What divides the tokens of a micro-batch of a ValidationStream, however few it holds: the ranks that share rows.
  int64_t rows_multiple = 1;
};

/// A dataset of a mixture. A stream owns its dataset: one reader is for one thread.
struct WeightedDataset {
  std::unique_ptr<TokenDataset> dataset;
  double weight = 1;
};

/// Throws what a TrainStream over these would refuse, from their manifests alone: no dataset, weights that no sampler
/// can keep exactly, a train part shorter than a window, a larger vocabulary. Input errors.
void check_train_data(const std::vector<WeightedDataset>& datasets, const StreamOptions& options);

/// The endless training stream over one dataset or a mixture. Datasets of a mixture share one tokenizer (hash); another
/// is an input error that names both. The position is one integer, counted in global samples.
class TrainStream final : public BatchSource {
 public:
  TrainStream(std::vector<WeightedDataset> datasets, const StreamOptions& options, uint64_t seed, int64_t position);

  bool next(Batch& batch) override;               ///< always true
  int64_t position() const { return position_; }  ///< first global sample that next() has not used
  const TokenDataset& dataset(int64_t i) const { return *inputs_[i].dataset; }
  int64_t windows(int64_t i) const { return inputs_[i].order.windows(); }

  /// Bytes of tokens held now, and the most that can be: two groups a dataset.
  int64_t resident_bytes() const;
  int64_t max_resident_bytes() const;

 private:
  /// The windows of one chunk as one run of n*T + 1 tokens, so a window is never assembled from two places.
  using Run = std::vector<int32_t>;
  struct Group {
    int64_t epoch = -1, group = -1;
    int64_t last_use = 0;
    std::map<int64_t, Run> runs;  ///< by chunk
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

/// Sequences of the validation part of one dataset, in order, once: window w is tokens [wT, wT+T], and the last one may
/// be short, so every token but the first is a target exactly once (document masking apart). Of W windows
/// `max_sequences` are read, spread evenly: window floor(i W / n) for i = 0, 1, ..., n - 1; 0, or more than there are:
/// the whole part. They are the same on any mesh and with any micro-batch, whose rows the dp indices share. A batch has
/// no row and no column that holds nothing, as far as `rows_multiple` lets it: the last one may be smaller, and a dp
/// index may have fewer batches than another, or none. Needs at least two tokens.
class ValidationStream final : public BatchSource {
 public:
  ValidationStream(std::unique_ptr<TokenDataset> dataset, const StreamOptions& options, int64_t max_sequences = 0);
  ValidationStream(const std::string& path, const StreamOptions& options, int64_t max_sequences = 0)
      : ValidationStream(std::make_unique<TokenDataset>(path), options, max_sequences) {}

  bool next(Batch& batch) override;
  void rewind() { step_ = 0; }
  int64_t num_batches() const { return num_batches_; }  ///< of this dp index
  int64_t num_sequences() const { return sequences_; }  ///< of all
  const TokenDataset& dataset() const { return *dataset_; }

 private:
  void size_batch(Batch& batch, int64_t rows) const;
  int64_t window_of(int64_t sequence) const;
  int64_t length_of(int64_t window) const;  ///< its targets, T or fewer

  StreamOptions options_;
  std::unique_ptr<TokenDataset> dataset_;
  int64_t windows_ = 0;    ///< of the part
  int64_t sequences_ = 0;  ///< those of them that are read
  int64_t num_batches_ = 0;
  int64_t step_ = 0;
  std::vector<int32_t> row_, counts_;
};

}  // namespace ashlar::data
