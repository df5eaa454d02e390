#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/nn/parameter.h"
#include "kernels/make_backend.h"
#include "parallel/comm/self_comm.h"
#include "parallel/model/stage.h"

namespace ashlar::testing {

inline std::vector<double> host_values(const Ctx& ctx, const Tensor& t) {
  std::vector<double> out(t.size());
  if (t.dtype() == DType::kFloat64) {
    ctx.backend.read(t.view(), out.data(), ctx.stream);
  } else if (t.dtype() == DType::kFloat32) {
    std::vector<float> narrow(t.size());
    ctx.backend.read(t.view(), narrow.data(), ctx.stream);
    out.assign(narrow.begin(), narrow.end());
  } else {
    std::vector<BF16> narrow(t.size());
    ctx.backend.read(t.view(), narrow.data(), ctx.stream);
    std::transform(narrow.begin(), narrow.end(), out.begin(),
                   [](BF16 v) { return static_cast<double>(static_cast<float>(v)); });
  }
  return out;
}

/// Random tokens of a micro-batch, about a seventh of them without a target.
class RandomTokens {
 public:
  RandomTokens(const Ctx& ctx, const model::ModelConfig& config, int64_t B, int64_t T, uint64_t seed)
      : ctx_(ctx), B_(B), T_(T) {
    for (int64_t n = 0; n < B * T; ++n) {
      const auto words = Philox::block(seed, 99, n);
      ids_.push_back(static_cast<int32_t>(words[0] % config.vocab_size));
      const auto target = static_cast<int32_t>(words[1] % config.vocab_size);
      const bool counted =
          words[2] % 7 != 0 && !std::binary_search(config.masked_ids.begin(), config.masked_ids.end(), int64_t{target});
      targets_.push_back(counted ? target : -1);
      positions_.push_back(static_cast<int32_t>(n % T));
    }
    sort();
  }

  /// The rows as they are now, in device memory.
  model::BatchView batch() const {
    const auto put = [&](size_t at, const std::vector<int32_t>& values) -> ConstView {
      if (values.empty()) return {};
      Tensor& t = rows_[at];
      const int64_t n = static_cast<int64_t>(values.size());
      if (!t || t.size() != n) t = ctx_.empty(DType::kInt32, {n});
      ctx_.backend.write(values.data(), t.mut_view(), ctx_.stream);
      return t.view();
    };
    return {.B = B_,
            .T = T_,
            .ids = put(0, ids_),
            .targets = put(1, targets_),
            .positions = put(2, positions_),
            .doc_start = put(3, doc_start_),
            .order = put(4, order_),
            .position_order = put(5, position_order_)};
  }
  std::vector<int32_t>& ids() { return ids_; }
  std::vector<int32_t>& positions() { return positions_; }
  std::vector<int32_t>& doc_start() { return doc_start_; }
  std::vector<int32_t>& targets() { return targets_; }
  const std::vector<int32_t>& targets() const { return targets_; }
  int64_t valid_targets() const {
    return std::ranges::count_if(targets_, [](int32_t t) { return t >= 0; });
  }
  /// After a change of ids or positions.
  void sort() {
    const auto sorted = [](const std::vector<int32_t>& keys) {
      std::vector<int32_t> rows(keys.size());
      for (size_t n = 0; n < keys.size(); ++n) rows[n] = static_cast<int32_t>(n);
      std::stable_sort(rows.begin(), rows.end(), [&](int32_t a, int32_t b) { return keys[a] < keys[b]; });
      return rows;
    };
    order_ = sorted(ids_);
    position_order_ = sorted(positions_);
  }

 private:
  Ctx ctx_;
  int64_t B_, T_;
  mutable Tensor rows_[6];
  std::vector<int32_t> ids_, targets_, positions_, doc_start_, order_, position_order_;
};

/// A small model with random weights and one batch of random tokens, on the CPU backend or a given one.
class TinyModel {
 public:
  /// Without a tensor group: one rank.
  TinyModel(const model::ModelConfig& config, DType dtype, int64_t B, int64_t T, int threads = 1, uint64_t seed = 7,
            tensor::TensorParallel tp = {}, Backend* backend = nullptr)
      : own_backend_(backend == nullptr ? kernels::make_backend({.threads = threads}) : nullptr),
        backend_(backend == nullptr ? own_backend_.get() : backend),
        stream_(backend_->make_stream()),
        ctx_{.backend = *backend_, .stream = *stream_, .dtype = dtype, .scalars = {}},
        stage_(store_, config, model::StageRange::whole(config), tp.group != nullptr ? tp : alone()) {
    device_scalars_ = ctx_.make_struct(scalars_);
    ctx_.scalars = device_scalars_.view();
    store_.allocate(ctx_, true);
    store_.initialize(ctx_, seed, store_.values());
    stage_.make_tables(ctx_, std::max<int64_t>(2 * T, 64));
    tokens_.emplace(ctx_, config, B, T, seed);
    set_scalars({.inv_valid_tokens = 1.0 / static_cast<double>(tokens_->valid_targets()),
                 .inv_tokens = 1.0 / static_cast<double>(B * T)});
  }

  /// The rows as they are now, in device memory of this model.
  model::BatchView batch() const { return tokens_->batch(); }
  /// Mean loss (cross-entropy + z-loss); records on ctx.tape if there is one.
  double loss(const Ctx& ctx) const {
    const Tensor sums = ctx.make_struct(LossStats{});
    const model::BatchView rows = batch();
    stage_.loss(ctx, stage_.blocks(ctx, stage_.embed(ctx, rows), rows), rows, sums.mut_view());
    const LossStats stats = ctx.read_struct<LossStats>(sums);
    return (stats.loss + stats.z_loss) * scalars_.inv_valid_tokens;
  }
  /// Fills the main gradients.
  double loss_and_gradients(const Ctx& base) {
    Tape tape(*backend_, *stream_);
    Ctx ctx = base;
    ctx.tape = &tape;
    store_.begin_step();
    const double value = loss(ctx);
    tape.backward();
    return value;
  }
  std::vector<double> logits() const {
    const Ctx ctx = ctx_;
    const model::BatchView rows = batch();
    const Tensor h = stage_.blocks(ctx, stage_.embed(ctx, rows), rows).value;
    return host(stage_.logits(ctx, h));
  }
  std::vector<double> host(const Tensor& t) const { return host_values(ctx_, t); }
  std::vector<double> gradient(std::string_view name) const {
    return host(nn::ParameterStore::of(store_.grads(), *store_.find(name)));
  }
  void set(std::string_view name, const std::vector<double>& values) {
    const Tensor t = tensor(name);
    ASHLAR_CHECK(t.size() == static_cast<int64_t>(values.size()), name);
    if (t.dtype() == DType::kFloat64) {
      backend_->write(values.data(), t.mut_view(), *stream_);
    } else {
      const std::vector<float> narrow(values.begin(), values.end());
      backend_->write(narrow.data(), t.mut_view(), *stream_);
    }
  }
  std::vector<double> values(std::string_view name) const { return host(tensor(name)); }
  /// The values of a parameter or a buffer.
  Tensor tensor(std::string_view name) const {
    for (const auto& buffer : store_.buffers())
      if (buffer->tensor.name == name) return buffer->values;
    return nn::ParameterStore::of(store_.values(), *store_.find(name));
  }

  Ctx ctx() const { return ctx_; }
  nn::ParameterStore& store() { return store_; }
  const nn::ParameterStore& store() const { return store_; }
  const model::Stage& stage() const { return stage_; }
  Backend& backend() { return *backend_; }
  const StepScalars& scalars() const { return scalars_; }
  void set_scalars(const StepScalars& scalars) {
    scalars_ = scalars;
    ctx_.set_struct(scalars_, device_scalars_);
  }
  std::vector<int32_t>& ids() { return tokens_->ids(); }
  std::vector<int32_t>& positions() { return tokens_->positions(); }
  std::vector<int32_t>& doc_start() { return tokens_->doc_start(); }
  std::vector<int32_t>& targets() { return tokens_->targets(); }
  const std::vector<int32_t>& targets() const { return std::as_const(*tokens_).targets(); }
  void sort() { tokens_->sort(); }  ///< after a change of ids or positions

 private:
  tensor::TensorParallel alone() { return {.group = &self_}; }

  comm::SelfComm self_{"tensor"};
  StepScalars scalars_;
  std::unique_ptr<Backend> own_backend_;
  Backend* backend_;
  std::unique_ptr<Stream> stream_;
  Ctx ctx_;
  Tensor device_scalars_;
  nn::ParameterStore store_;
  model::Stage stage_;
  std::optional<RandomTokens> tokens_;
};

/// The size of a batch where any would do.
inline constexpr int64_t kSmallBatch = 2, kShortLength = 7;

/// d_model 12, 2 layers, 4 heads of 4 (16 wide, not 12), 17 words: nothing a multiple of eight.
inline model::ModelConfig tiny_config() {
  model::ModelConfig c;
  c.d_model = 12;
  c.n_layers = 2;
  c.n_heads = 4;
  c.n_kv_heads = 4;
  c.head_dim = 4;
  c.d_ff = 10;
  c.vocab_size = 17;
  c.rope.dims = 4;
  c.attn.scale = 0.5;
  c.init = {.scheme = model::InitScheme::kNormal, .std = 0.3, .residual_scale = 1};
  return c;
}

/// The weights that both have.
inline void copy_weights(const TinyModel& from, TinyModel& to) {
  for (const auto& ref : from.store().sharded_tensors())
    if (to.store().find(ref.tensor->name) != nullptr) to.set(ref.tensor->name, from.values(ref.tensor->name));
}

/// Multiplies elements [begin, end) of a tensor, or all.
inline void scale(TinyModel& m, const std::string& name, double factor, size_t begin = 0, size_t end = SIZE_MAX) {
  std::vector<double> w = m.values(name);
  for (size_t i = begin; i < std::min(end, w.size()); ++i) w[i] *= factor;
  m.set(name, w);
}

/// The residual stream behind the embedding and behind each block.
inline std::vector<std::vector<double>> streams(const TinyModel& m, const Ctx& ctx) {
  const model::BatchView rows = m.batch();
  const Var x = m.stage().embed(ctx, rows);
  std::vector<std::vector<double>> all = {m.host(x.value)};
  m.stage().blocks(ctx, x, rows, [&](int64_t, const Tensor& h) { all.push_back(m.host(h)); });
  return all;
}
inline std::vector<std::vector<double>> streams(const TinyModel& m) { return streams(m, m.ctx()); }

/// In fp64, of the tokens that all models of a vocabulary begin with.
inline std::vector<double> logits_of(const model::ModelConfig& c) {
  return TinyModel(c, DType::kFloat64, 2, 7).logits();
}

inline double worst_difference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  return worst;
}

}  // namespace ashlar::testing
