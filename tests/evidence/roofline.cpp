#include "tests/evidence/roofline.h"

#include <cmath>
#include <functional>
#include <numeric>

#include "kernels/cuda/host/sizes.h"
#include "launch/plan/device.h"
#include "launch/plan/memory_plan.h"
#include "parallel/model/flops.h"
#include "parallel/model/parameter_count.h"

namespace ashlar::evidence {
namespace {

constexpr double kBackTest = 0.03;  // largest error of the back-test

int by_head_dim(const model::ModelConfig& c) { return c.head_dim <= 64 ? 0 : 1; }

model::ModelConfig qwen(int64_t width, int64_t heads, int64_t kv_heads, int64_t ffn, int64_t layers, bool tied) {
  model::ModelConfig c;
  c.d_model = width;
  c.n_layers = layers;
  c.n_heads = heads;
  c.n_kv_heads = kv_heads;
  c.head_dim = width / heads;
  c.d_ff = ffn;
  c.vocab_size = tied ? 151936 : 152064;
  c.tied = tied;
  c.bias.qkv = true;
  c.rope.dims = c.head_dim;
  return c;
}

model::ModelConfig gpt2() {
  model::ModelConfig c;
  c.d_model = 768;
  c.n_layers = 12;
  c.n_heads = c.n_kv_heads = 12;
  c.head_dim = 64;
  c.d_ff = 3072;
  c.vocab_size = 50257;
  c.vocab_pad_to = 128;
  c.tied = true;
  c.norm.variant.type = NormType::kLayerNorm;
  c.norm.affine = model::NormAffine::kScaleBias;
  c.bias = {.qkv = true, .attn_out = true, .ffn = true, .lm_head = false};
  c.ffn = {.act = Activation::kGeluTanh, .gated = false};
  c.pos = {.type = model::PosType::kLearned, .max_positions = 1024};
  return c;
}

}  // namespace

double seconds_of_product(double tokens, double k, double m, const Rates& rates) {
  const plan::DtypeRates products{.peak = rates.peak, .sustained = rates.products, .half_terms = rates.products_half_k};
  double seconds = 0;
  for (const double terms : {k, m, tokens}) seconds += products.seconds(2 * tokens * k * m, terms);
  return seconds;
}

Rates own_attention() {
  // FA2 on an H100 at T 1024, causal: forward 229 and 260, forward and backward together 192 and 221.
  return {.name = "own attention",
          .attention_forward = {kOwnAttention * 229e12, kOwnAttention * 260e12},
          .attention_backward = {kOwnAttention * 180e12, kOwnAttention * 208e12},
          .backward_products = 7};
}

Rates cudnn_attention() {
  // cuDNN at T 1024: forward causal 288 and 410; backward 348 and 408 without a mask, FA2's share of it with one.
  return {.name = "cuDNN's attention",
          .attention_forward = {288e12, 410e12},
          .attention_backward = {348e12 * 180 / 238, 408e12 * 208 / 260},
          .backward_products = 5,
          .score_bytes = 2 * kElement};
}

Card h100() { return {.name = "H100", .memory = 85.5e9, .copy = 3.0e12}; }

Card h200() { return {.name = "H200", .memory = 141e9, .copy = 4.3e12}; }

std::vector<Shape> shapes() {
  std::vector<Shape> all = rival_shapes();
  const std::vector<int64_t> micro_batches = {16, 16, 8, 1};
  for (size_t i = 0; i < all.size(); ++i) {
    const Shape& rival = all[i];
    all[i] = {.name = rival.name, .model = rival.model, .micro_batch = micro_batches[i], .rival = rival.rival};
  }
  all.back().card = h200();
  all.insert(all.begin(), {.name = "GPT-2 124M", .model = gpt2()});
  return all;
}

std::vector<Shape> rival_shapes() {
  const auto rival = [](const std::string& name, const model::ModelConfig& model, int64_t micro_batch, int64_t chunks,
                        double tokens_per_second) {
    return Shape{.name = name,
                 .model = model,
                 .micro_batch = micro_batch,
                 .rival = tokens_per_second,
                 .head_chunks = chunks,
                 .gradient_bytes = kElement};
  };
  return {rival("Qwen2.5 0.5B", qwen(896, 14, 2, 4864, 24, true), 32, 1, 149.5e3),
          rival("Qwen2.5 1.5B", qwen(1536, 12, 2, 8960, 28, true), 32, 4, 58.9e3),
          rival("Qwen2.5 3B", qwen(2048, 16, 2, 11008, 36, true), 16, 1, 30.9e3),
          rival("Qwen2.5 7B", qwen(3584, 28, 4, 18944, 28, false), 4, 2, 13.86e3)};
}

double memory_of(const Shape& shape) {
  config::RunConfig run;
  run.model = shape.model;
  run.run.dtype = DType::kBFloat16;
  run.train.micro_batch = shape.micro_batch;
  run.train.sequence_length = shape.T;
  run.train.global_batch = shape.sequences;
  run.train.steps = 2;
  return static_cast<double>(plan::memory_plan({.run = run, .device = plan::DeviceKind::kCuda}).bytes);
}

Prediction predict(const Shape& shape, const Rates& rates, int64_t launches_of_a_block) {
  const model::ModelConfig& c = shape.model;
  const auto L = static_cast<double>(c.n_layers), C = static_cast<double>(c.d_model), F = static_cast<double>(c.d_ff);
  const auto V = static_cast<double>(c.vocab_padded()), Q = static_cast<double>(c.q_width());
  const auto KV = static_cast<double>(c.kv_width()), P = static_cast<double>(model::count_parameters(c).total());
  const auto tokens = static_cast<double>(shape.T * shape.micro_batch);
  const double micro_batches = static_cast<double>(shape.sequences) / static_cast<double>(shape.micro_batch);
  const double step_tokens = tokens * micro_batches;
  const model::FlopsPerToken flops = model::flops_per_token(c, shape.T);

  const double copy = shape.card.copy;
  const int64_t rows = cuda::loss_chunk_rows(shape.T * shape.micro_batch, c.vocab_padded() * size_of(DType::kBFloat16));
  const double chunks =
      static_cast<double>(shape.head_chunks > 0 ? shape.head_chunks : (shape.T * shape.micro_batch + rows - 1) / rows);

  Prediction p;
  const auto add = [&](const std::string& what, double seconds_of_micro_batch, double flops_of_token = 0) {
    p.lines.push_back({what, seconds_of_micro_batch * micro_batches, flops_of_token * step_tokens / rates.peak});
  };
  // 1. what multiplies
  add("products of blocks",
      L * (seconds_of_product(tokens, C, Q + 2 * KV, rates) + seconds_of_product(tokens, Q, C, rates) +
           seconds_of_product(tokens, C, c.ffn.gated ? 2 * F : F, rates) + seconds_of_product(tokens, F, C, rates)),
      flops.matmul - 6 * C * V);
  add("products of the head", seconds_of_product(tokens, C, V, rates), 6 * C * V);
  const double product = tokens * L * 2 * Q * static_cast<double>(shape.T) / 2;  // flops of q k^T, half of it seen
  const int d = by_head_dim(c);
  add("attention", product * (2 / rates.attention_forward[d] + rates.backward_products / rates.attention_backward[d]),
      flops.attention_causal);
  // 2. what moves bytes
  std::map<std::string, double> lines;
  for (const auto& [kernel, bytes] : block_bytes_of_a_token(c)) {
    if (kernel.find("norm") != std::string::npos || kernel == "residual_forward") lines["norms, residual"] += bytes;
    if (kernel.starts_with("activation")) lines["activations"] += bytes;
    if (kernel == "rope") lines["rotary positions"] += bytes;
    if (kernel == "column_partials" || kernel == "attention_delta") lines["sums of biases, delta"] += bytes;
  }
  for (const auto& [what, bytes] : lines) add(what, L * bytes * tokens / copy);
  add("loss: one read, one write", 2 * V * kElement * tokens / copy);
  add("embedding, last norm", 16 * C * kElement * tokens / copy);
  add("main gradients, added to", 2 * shape.gradient_bytes * P / copy);
  if (chunks > 1)
    add("the head's, once more a chunk of logits", (chunks - 1) * 2 * shape.gradient_bytes * V * C / copy);
  if (rates.score_bytes > 0) {
    const double scores = tokens * static_cast<double>(shape.T * c.n_heads);
    add("gradients of scores, written and read", L * scores * rates.score_bytes / copy);
  }
  add("gaps between launches",
      rates.launch_gap * (L * static_cast<double>(launches_of_a_block) + kLaunchesBesideBlocks));
  // 3. once a step: master, m, v read and written, gradient read twice (norm, update), weight written
  p.lines.push_back({"update and norm", 34 * P / copy, 0});

  p.seconds = std::accumulate(p.lines.begin(), p.lines.end(), 0.0,
                              [](double sum, const Line& line) { return sum + line.seconds; });
  p.tokens_per_second = step_tokens / p.seconds;
  p.share_of_peak = flops.total_causal() * p.tokens_per_second / rates.peak;
  return p;
}

Interval interval(const Shape& shape, const Rates& rates, int64_t launches_of_a_block) {
  const auto seconds = [&](const std::function<void(Shape&, Rates&)>& change) {
    Shape s = shape;
    Rates r = rates;
    change(s, r);
    return predict(s, r, launches_of_a_block).seconds;
  };
  const auto attention = [](double factor) {
    return [factor](Shape&, Rates& r) {
      for (double* rate :
           {&r.attention_forward[0], &r.attention_forward[1], &r.attention_backward[0], &r.attention_backward[1]})
        *rate *= factor;
    };
  };
  const bool own = rates.backward_products > 5;
  const auto faster = [](Shape& s, Rates&) { s.card.copy *= kCopyMost; };
  const auto slower = [](Shape& s, Rates&) { s.card.copy *= kCopyLeast; };
  const Prediction p = predict(shape, rates, launches_of_a_block);
  return interval_of(p.tokens_per_second * p.seconds, p.seconds,
                     {{seconds([](Shape&, Rates& r) { r.products = kProductsLeast; }),
                       seconds([](Shape&, Rates& r) { r.products = kProductsMost; })},
                      {seconds([](Shape&, Rates& r) { r.products_half_k = 192; }),
                       seconds([](Shape&, Rates& r) { r.products_half_k = 96; })},
                      {seconds(slower), seconds(faster)},
                      {seconds([](Shape&, Rates& r) { r.launch_gap = 2.5e-6; }),
                       seconds([](Shape&, Rates& r) { r.launch_gap = 1e-6; })},
                      {seconds(attention(own ? kOwnAttentionLeast / kOwnAttention : 0.9)),
                       seconds(attention(own ? kOwnAttentionMost / kOwnAttention : 1.1))}});
}

Interval interval_of(double tokens, double seconds, const std::vector<std::pair<double, double>>& doubts) {
  double slower = std::pow(kBackTest * seconds, 2), faster = slower;
  for (const auto& [worst, best] : doubts) {
    slower += std::pow(worst - seconds, 2);
    faster += std::pow(seconds - best, 2);
  }
  return {.low = tokens / (seconds + std::sqrt(slower)), .high = tokens / (seconds - std::sqrt(faster))};
}

}  // namespace ashlar::evidence
