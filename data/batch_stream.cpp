#include "data/batch_stream.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/philox.h"

namespace ashlar::data {
namespace {

constexpr int64_t kMostRows = int64_t{1} << 40;  ///< of one micro-batch of all indices together

void check_options(const StreamOptions& o) {
  ASHLAR_CHECK(o.sequence_length > 0 && o.micro_batch > 0 && o.vocab_size > 0, "T = ", o.sequence_length,
               ", B = ", o.micro_batch, ", V = ", o.vocab_size);
  ASHLAR_CHECK(o.dp_size > 0 && o.dp_index >= 0 && o.dp_index < o.dp_size, "dp ", o.dp_index, " of ", o.dp_size);
}

void check_vocabulary(const TokenDataset& dataset, const StreamOptions& options) {
  const int32_t ids = dataset.manifest().vocab_size;
  if (ids > options.vocab_size) {
    throw input_error("data", dataset.directory(), " has ids up to ", ids - 1, ", the model's vocab.size is ",
                      options.vocab_size, "; use at least ", ids);
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
    const std::string& hash = dataset->manifest().tokenizer_hash;
    if (i > 0 && hash != inputs_[0].dataset->manifest().tokenizer_hash) {
      throw input_error("data", dataset->directory(), " and ", inputs_[0].dataset->directory(),
                        " have different tokenizers (", hash, " and ", inputs_[0].dataset->manifest().tokenizer_hash,
                        "); a mixture needs one");
    }
    // The same dataset may be named twice; each entry has its own order.
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
  for (const Input& input : inputs_) {
    const int64_t chunks = std::min(2 * WindowOrder::kGroupChunks, 2 * input.dataset->num_chunks(Part::kTrain));
    const int64_t tokens = std::min(kChunkTokens + options_.sequence_length, input.dataset->tokens(Part::kTrain));
    bytes += chunks * tokens * static_cast<int64_t>(sizeof(int32_t)) + kChunkTokens * 8;
  }
  return bytes;
}

ValidationStream::ValidationStream(std::unique_ptr<TokenDataset> dataset, const StreamOptions& options,
                                   int64_t max_batches)
    : options_(options), dataset_(std::move(dataset)) {
  check_options(options_);
  check_vocabulary(*dataset_, options_);
  ASHLAR_CHECK(max_batches >= 0, "max_batches ", max_batches);
  const int64_t tokens = dataset_->tokens(Part::kValidation);
  if (tokens < 2) {
    throw input_error("data", dataset_->directory(), " has ", tokens,
                      " tokens in its validation part, at least 2 are needed; build it with a", " larger --validation");
  }
  const auto ceil_div = [](int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); };
  windows_ = ceil_div(tokens - 1, options_.sequence_length);
  // Asked this way round because max_batches * micro_batch may be beyond 64 bits: many batches are the whole part.
  if (max_batches > 0 && max_batches < ceil_div(windows_, options_.micro_batch))
    windows_ = max_batches * options_.micro_batch;
  ASHLAR_CHECK(options_.micro_batch <= kMostRows / options_.dp_size, "micro_batch ", options_.micro_batch, ", dp_size ",
               options_.dp_size);
  num_batches_ = ceil_div(windows_, options_.micro_batch * options_.dp_size);
}

bool ValidationStream::next(Batch& batch) {
  if (step_ == num_batches_) return false;
  const int64_t B = options_.micro_batch, T = options_.sequence_length;
  resize_batch(batch, B, T, options_.documents);
  batch.first_sample = (step_ * options_.dp_size + options_.dp_index) * B;
  for (int64_t b = 0; b < B; ++b) {
    row_.clear();
    if (batch.first_sample + b < windows_) {
      const int64_t first = (batch.first_sample + b) * T;
      row_.resize(static_cast<size_t>(std::min(dataset_->tokens(Part::kValidation) - first, T + 1)));
      dataset_->read(Part::kValidation, first, row_);
    }
    fill_row(batch, b, row_, dataset_->manifest().eod_id, options_.documents);
  }
  fill_order(batch, static_cast<int32_t>(options_.vocab_size), counts_);
  ++step_;
  return true;
}

}  // namespace ashlar::data
