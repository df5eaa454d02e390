#include "data/read/batch_stream.h"

#include <algorithm>

#include "absl/numeric/int128.h"
#include "core/base/error.h"
#include "core/base/philox.h"

namespace ashlar::data {
namespace {

/// Maximum number of rows of one micro-batch, summed over all data-parallel (dp) indices.
constexpr int64_t kMostRows = int64_t{1} << 40;

void check_options(const StreamOptions& o) {
  ASHLAR_CHECK(o.sequence_length > 0 && o.micro_batch > 0 && o.vocab_size > 0, "T = ", o.sequence_length,
               ", B = ", o.micro_batch, ", V = ", o.vocab_size);
  ASHLAR_CHECK(o.dp_size > 0 && o.dp_index >= 0 && o.dp_index < o.dp_size, "dp ", o.dp_index, " of ", o.dp_size);
  ASHLAR_CHECK(o.rows_multiple > 0, "rows_multiple ", o.rows_multiple);
}

void check_vocabulary(const TokenDataset& dataset, const StreamOptions& options) {
  const int32_t ids = dataset.manifest().vocab_size;
  if (ids > options.vocab_size) {
    throw input_error("data", dataset.directory(), " has ids up to ", ids - 1, ", but the model's vocab.size is ",
                      options.vocab_size, "; set vocab.size to at least ", ids);
  }
}

std::vector<std::string> names_of(const std::vector<WeightedDataset>& datasets) {
  std::vector<std::string> names;
  for (const WeightedDataset& d : datasets) names.push_back(d.dataset->directory());
  return names;
}

std::vector<double> weights_of(const std::vector<WeightedDataset>& datasets) {
  std::vector<double> weights;
  for (const WeightedDataset& d : datasets) weights.push_back(d.weight);
  return weights;
}

}  // namespace

void check_train_data(const std::vector<WeightedDataset>& datasets, const StreamOptions& options) {
  check_options(options);
  Mixture(names_of(datasets), weights_of(datasets));
  for (const WeightedDataset& d : datasets) {
    check_vocabulary(*d.dataset, options);
    WindowOrder(d.dataset->directory(), d.dataset->tokens(Part::kTrain), options.sequence_length, kChunkTokens, 0);
  }
}

TrainStream::TrainStream(std::vector<WeightedDataset> datasets, const StreamOptions& options, uint64_t seed,
                         int64_t position)
    : options_(options), mixture_(names_of(datasets), weights_of(datasets)), position_(position) {
  check_options(options_);
  ASHLAR_CHECK(position >= 0, "position ", position);
  for (size_t i = 0; i < datasets.size(); ++i) {
    std::unique_ptr<TokenDataset> dataset = std::move(datasets[i].dataset);
    check_vocabulary(*dataset, options_);
    if (i > 0 && !same_tokenizer(dataset->tokenizer(), inputs_[0].dataset->tokenizer())) {
      throw input_error("data", dataset->directory(), " and ", inputs_[0].dataset->directory(),
                        " have different tokenizers (", dataset->manifest().tokenizer_hash, " and ",
                        inputs_[0].dataset->manifest().tokenizer_hash,
                        "); a mixture needs datasets with the same tokenizer: build one of them again");
    }
    // The key includes i, since the same dataset may be given twice and each entry has its own order.
    const Philox::Counter key = Philox::block(seed, hash64("data.order"), i);
    WindowOrder order(dataset->directory(), dataset->tokens(Part::kTrain), options_.sequence_length, kChunkTokens,
                      (uint64_t{key[1]} << 32) | key[0]);
    inputs_.push_back({std::move(dataset), order, {}});
  }
}

bool TrainStream::next(Batch& batch) {
  const int64_t B = options_.micro_batch;
  resize_batch(batch, B, options_.sequence_length, options_.documents);
  batch.first_sample = position_ + options_.dp_index * B;
  for (int64_t b = 0; b < B; ++b) {
    const MixtureAddress from = mixture_.at(batch.first_sample + b);
    Input& input = inputs_[from.dataset];
    const std::span<const int32_t> tokens = window(input, input.order.at(from.sample));
    fill_row(batch, b, tokens, input.dataset->manifest().eod_id, options_.documents);
  }
  fill_order(batch, static_cast<int32_t>(options_.vocab_size), counts_);
  position_ += B * options_.dp_size;
  return true;
}

std::span<const int32_t> TrainStream::window(Input& input, const WindowAddress& address) {
  const int64_t T = options_.sequence_length;
  const auto holds = [&](const Group& g) { return g.epoch == address.epoch && g.group == address.group; };
  Group* group = holds(input.groups[0]) ? &input.groups[0] : holds(input.groups[1]) ? &input.groups[1] : nullptr;
  if (group == nullptr) {
    group = input.groups[0].last_use <= input.groups[1].last_use ? &input.groups[0] : &input.groups[1];
    *group = Group{.epoch = address.epoch, .group = address.group};
  }
  group->last_use = ++uses_;
  const int64_t first = input.order.first_window(address.chunk);
  auto [it, fresh] = group->runs.try_emplace(address.chunk);
  if (fresh) {
    const int64_t windows = input.order.first_window(address.chunk + 1) - first;
    std::vector<int32_t> run(static_cast<size_t>(windows * T + 1));
    try {
      input.dataset->read(Part::kTrain, first * T, run);
    } catch (...) {
      group->runs.erase(it);
      throw;
    }
    it->second = std::move(run);
  }
  return std::span(it->second).subspan(static_cast<size_t>((address.window - first) * T), static_cast<size_t>(T + 1));
}

int64_t TrainStream::resident_bytes() const {
  int64_t bytes = 0;
  for (const Input& input : inputs_) {
    bytes += input.dataset->scratch_bytes();
    for (const Group& group : input.groups) {
      for (const auto& [chunk, run] : group.runs) bytes += static_cast<int64_t>(run.size() * sizeof(int32_t));
    }
  }
  return bytes;
}

int64_t TrainStream::max_resident_bytes() const {
  int64_t bytes = 0;
  for (const Input& input : inputs_) bytes += most_resident_bytes(*input.dataset, options_.sequence_length);
  return bytes;
}

int64_t most_resident_bytes(const TokenDataset& dataset, int64_t sequence_length) {
  const int64_t chunks = std::min(2 * WindowOrder::kGroupChunks, 2 * dataset.num_chunks(Part::kTrain));
  const int64_t tokens = std::min(kChunkTokens + sequence_length, dataset.tokens(Part::kTrain));
  return chunks * tokens * static_cast<int64_t>(sizeof(int32_t)) + kChunkTokens * 8;
}

ValidationStream::ValidationStream(std::unique_ptr<TokenDataset> dataset, const StreamOptions& options,
                                   int64_t max_sequences)
    : options_(options), dataset_(std::move(dataset)) {
  check_options(options_);
  check_vocabulary(*dataset_, options_);
  ASHLAR_CHECK(max_sequences >= 0, "max_sequences ", max_sequences);
  const int64_t tokens = dataset_->tokens(Part::kValidation);
  if (tokens < 2) {
    throw input_error("data", dataset_->directory(), " has ", tokens,
                      " tokens in its validation part, expected at least 2; build the dataset with a",
                      " larger --validation");
  }
  windows_ = ceil_div(tokens - 1, options_.sequence_length);
  sequences_ = max_sequences == 0 ? windows_ : std::min(max_sequences, windows_);
  const int64_t B = options_.micro_batch;
  ASHLAR_CHECK(B <= kMostRows / options_.dp_size, "micro_batch ", B, ", dp_size ", options_.dp_size);
  num_batches_ = ceil_div(std::max<int64_t>(0, sequences_ - options_.dp_index * B), B * options_.dp_size);
}

int64_t ValidationStream::window_of(int64_t sequence) const {
  const absl::uint128 product = absl::uint128(static_cast<uint64_t>(sequence)) * static_cast<uint64_t>(windows_);
  return static_cast<int64_t>(product / static_cast<uint64_t>(sequences_));
}

int64_t ValidationStream::length_of(int64_t window) const {
  const int64_t T = options_.sequence_length;
  return std::min(T, dataset_->tokens(Part::kValidation) - 1 - window * T);
}

/// Sets the shape of a batch for `rows` sequences, the first of which is batch.first_sample. Rows have sequence_length
/// tokens. If there is only one row, it has only the length of its window, which is short for the last window of the
/// part. If the number of tokens is not a multiple of rows_multiple, a single row is padded to the next multiple (at
/// most to sequence_length), and then rows are added (at most up to micro_batch).
void ValidationStream::size_batch(Batch& batch, int64_t rows) const {
  const int64_t most = options_.sequence_length, multiple = options_.rows_multiple;
  int64_t T = most;
  if (rows == 1) {
    T = length_of(window_of(batch.first_sample));
    const int64_t padded = ceil_div(T, multiple) * multiple;
    T = padded <= most ? padded : most;
  }
  while (rows * T % multiple != 0 && rows < options_.micro_batch) ++rows;
  resize_batch(batch, rows, T, options_.documents);
}

bool ValidationStream::next(Batch& batch) {
  if (step_ == num_batches_) return false;
  const int64_t B = options_.micro_batch, T = options_.sequence_length;
  batch.first_sample = (step_ * options_.dp_size + options_.dp_index) * B;
  const int64_t rows = std::min(B, sequences_ - batch.first_sample);
  size_batch(batch, rows);
  for (int64_t b = 0; b < batch.B; ++b) {
    row_.clear();
    if (b < rows) {
      const int64_t window = window_of(batch.first_sample + b);
      row_.resize(static_cast<size_t>(length_of(window) + 1));
      dataset_->read(Part::kValidation, window * T, row_);
    }
    fill_row(batch, b, row_, dataset_->manifest().eod_id, options_.documents);
  }
  fill_order(batch, static_cast<int32_t>(options_.vocab_size), counts_);
  ++step_;
  return true;
}

}  // namespace ashlar::data
