#include "tests/evidence/expert_roofline.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "parallel/model/flops.h"
#include "parallel/model/parameter_count.h"

namespace ashlar::evidence {
namespace {

constexpr double kTileRows = 128;           // of a tile of grouped products
constexpr int64_t kLaunchesOfExchange = 8;  // counts, four times rows, twice their order on both sides

/// A run's sizes on one rank, in a layer and micro-batch.
struct Sizes {
  explicit Sizes(const ExpertRun& run, double load)
      : c(run.model),
        t(static_cast<double>(run.tensor)),
        N(static_cast<double>(run.T * run.micro_batch)),
        C(static_cast<double>(c.d_model)),
        E(static_cast<double>(c.moe.experts)),
        F(static_cast<double>(c.moe.d_ff)),
        k(static_cast<double>(c.moe.top_k)),
        Q(static_cast<double>(c.q_width())),
        KV(static_cast<double>(c.kv_width())),
        V(static_cast<double>(c.vocab_padded())),
        groups(E / static_cast<double>(run.ranks())),
        sorted(N * k / t),
        mean_rows(N * k / t),
        rows(load * mean_rows) {}

  const model::ModelConfig& c;
  double t, N, C, E, F, k, Q, KV, V;
  double groups;     ///< experts of a rank
  double sorted;     ///< choices of its tokens whose experts its expert group has
  double mean_rows;  ///< rows that a rank's experts process, at balance
  double rows;       ///< of the rank with the most
};

/// Seconds of forward and of backward.
struct Times {
  double forward = 0, backward = 0;
};
Times operator+(const Times& a, const Times& b) { return {a.forward + b.forward, a.backward + b.backward}; }
Times operator*(double factor, const Times& a) { return {factor * a.forward, factor * a.backward}; }

/// Of a product of `rows` rows, k terms and m columns, whose weight gradient sums over `group` rows.
Times product(double rows, double k, double m, double group, double rate, double half_k) {
  const auto seconds = [&](double terms) { return 2 * rows * k * m * (terms + half_k) / terms / rate; };
  return {seconds(k), seconds(m) + seconds(group)};
}

Times products_of_attention(const Sizes& s, const ExpertRates& r) {
  const double rate = r.rates.products, half = r.rates.products_half_k;
  return product(s.N, s.C, (s.Q + 2 * s.KV) / s.t, s.N, rate, half) + product(s.N, s.Q / s.t, s.C, s.N, rate, half);
}

/// A group ends in a tile that is half empty on average.
double padded_rows(const Sizes& s) { return s.rows + s.groups * kTileRows / 2; }

Times products_of_experts(const Sizes& s, const ExpertRates& r) {
  const double half = r.rates.products_half_k, group = s.rows / s.groups;
  return product(padded_rows(s), s.C, 2 * s.F, group, r.grouped, half) +
         product(padded_rows(s), s.F, s.C, group, r.grouped, half);
}

/// What an exchange may overlap with in backward: the weight gradient of gate and up.
double weight_gradient_in(const Sizes& s, const ExpertRates& r) {
  const double group = s.rows / s.groups;
  return 2 * s.rows * s.C * 2 * s.F * (group + r.rates.products_half_k) / group / r.grouped;
}

Times attention(const Sizes& s, const ExpertRun& run, const ExpertRates& r) {
  const double flops = s.N * 2 * s.Q / s.t * static_cast<double>(run.T) / 2;  // of q k^T, half of it seen
  const int d = s.c.head_dim <= 64 ? 0 : 1;
  const double scores = s.N * static_cast<double>(run.T * s.c.n_heads) / s.t;
  return {2 * flops / r.rates.attention_forward[d], r.rates.backward_products * flops / r.rates.attention_backward[d] +
                                                        scores * r.rates.score_bytes / r.rates.copy};
}

/// Rows from their tokens to a buffer sorted by expert, from there to the other side's order, and all the way back.
Times moving_rows(const Sizes& s, bool exchanged, const ExpertRates& r) {
  const double row = s.C * kElement, order = exchanged ? 4 * s.rows * row : 0;  // two copies, read and write
  const double there = 2 * s.sorted * row, back = (s.sorted + s.N) * row;
  const double gradients = 3 * s.sorted * row;  // of the sum: dy and rows read for the weights' gradient
  return (1 / r.rates.copy) * Times{there + order + back, gradients + order + back};
}

Times activations(const Sizes& s, const ExpertRates& r) {
  return (s.rows * s.F * kElement / r.rates.copy) * Times{3, 5};
}

Times routers(const Sizes& s, const ExpertRates& r) {
  const double flops = 2 * s.N * s.C * s.E;
  const double copies = s.N * s.C * (kElement + kWide), added = 3 * s.N * s.C * kElement;
  const auto bytes = expert_bytes_of_a_token(s.c);
  return Times{flops / r.wide, 2 * flops / r.wide} + (1 / r.rates.copy) * Times{copies, 2 * copies + added} +
         (s.N / r.rates.copy) *
             Times{bytes.at("route_forward"), bytes.at("route_backward") + bytes.at("router_partials")};
}

/// Norms, residual sums, rotary positions, delta. About two parts of norms of three are backward.
Times row_kernels(const Sizes& s, const ExpertRates& r) {
  Times bytes;
  for (const auto& [kernel, of_a_token] : block_bytes_of_a_token(s.c)) {
    if (kernel.find("norm_backward") != std::string::npos || kernel == "attention_delta") {
      bytes.backward += of_a_token;
    } else if (kernel.find("norm") != std::string::npos) {
      bytes.forward += of_a_token;
    } else if (kernel == "residual_forward" || kernel == "rope") {
      bytes = bytes + (of_a_token / 2) * Times{1, 1};
    }
  }
  return (s.N / r.rates.copy) * bytes;
}

}  // namespace

ExpertRates own_kernels() {
  // FA2 on an H100 at T 4096, causal: forward 284 and 319; forward and backward together 257 and 294.
  return {.rates = {.name = "own kernels",
                    .attention_forward = {kOwnAttention * 284e12, kOwnAttention * 319e12},
                    .attention_backward = {kOwnAttention * 247e12, kOwnAttention * 285e12},
                    .backward_products = 7}};
}

ExpertRates vendors_kernels() {
  // cuDNN at T 4096: forward causal 363 and 518; backward 417 and 499 without a mask, FA2's share of it with one.
  ExpertRates r{.rates = {.name = "cuDNN's attention, grouped products as fast as others",
                          .attention_forward = {363e12, 518e12},
                          .attention_backward = {417e12 * 247 / 279, 499e12 * 285 / 310},
                          .backward_products = 5,
                          .score_bytes = 2 * kElement}};
  r.grouped = r.rates.products;
  return r;
}

ExpertRates others_kernels() {
  ExpertRates r = vendors_kernels();
  r.rates.score_bytes = 0;
  return r;
}

model::ModelConfig qwen3_30b_a3b() {
  model::ModelConfig c;
  c.d_model = 2048;
  c.n_layers = 48;
  c.n_heads = 32;
  c.n_kv_heads = 4;
  c.head_dim = 128;
  c.d_ff = 6144;  // of no layer
  c.vocab_size = 151936;
  c.qk_norm = {.kind = model::QkNorm::kHead};
  c.rope.dims = c.head_dim;
  c.moe = {.experts = 128, .top_k = 8, .d_ff = 768, .tensor = model::ExpertCut::kExperts};
  return c;
}

std::vector<ExpertRun> expert_runs() {
  const model::ModelConfig qwen = qwen3_30b_a3b();
  return {{.name = "expert 8", .model = qwen},
          {.name = "expert 4 x tensor 2", .model = qwen, .expert = 4, .tensor = 2},
          {.name = "expert 8, nothing recomputed", .model = qwen, .recompute = false}};
}

double crossing_bytes(const ExpertRun& run) {
  const Sizes s(run, 1);
  return s.mean_rows * (1 - 1 / static_cast<double>(run.expert)) * s.C * kElement * run.crossing;
}

std::vector<PublishedExperts> published_experts() {
  const model::ModelConfig qwen = qwen3_30b_a3b();
  // Of 8 random choices of 128 experts on 8 ranks, 5.3 are on different ranks.
  const ExpertRun automodel{
      .name = "micro-batch 4, a token once to a rank", .model = qwen, .micro_batch = 4, .crossing = 5.3 / 8};
  const ExpertRun plain{.name = "expert 8", .model = qwen};
  return {{.who = "NeMo AutoModel, docs/performance-summary.md",
           .differs = "forced balance, torch.optim.Adam, micro-batch 4",
           .tokens_per_second = 12040,
           .tflops = 277,
           .nearest = automodel},
          {.who = "its verification card, `examples/llm_benchmark/qwen`",
           .differs = "real data, not tuned",
           .gpus = 16,
           .tokens_per_second = 5887,
           .tflops = 135,
           .nearest = plain},
          {.who = "Megatron Bridge, beside it on that card",
           .differs = "real data",
           .gpus = 16,
           .tokens_per_second = 8654.602,
           .tflops = 199.120,
           .nearest = plain},
          {.who = "Megatron Bridge 25.11, docs/performance-summary.md",
           .differs = "fp8, pipeline 2, forced balance",
           .gpus = 16,
           .tokens_per_second = 5275,
           .tflops = 121,
           .nearest = plain}};
}

Prediction predict(const ExpertRun& run, const ExpertRates& r, int64_t launches_of_a_block, double load) {
  const Sizes s(run, load);
  const auto L = static_cast<double>(s.c.n_layers), launches = static_cast<double>(launches_of_a_block);
  const double micro_batches = static_cast<double>(run.sequences) / static_cast<double>(run.micro_batch * run.expert);
  const model::FlopsPerToken flops = model::flops_per_token(s.c, run.T);
  const double experts = 6 * 3 * s.C * s.F * s.k * L, router = 6 * s.C * s.E * L, head = 6 * s.C * s.V;

  Prediction p;
  double again = 0;
  const auto add = [&](const std::string& what, const Times& times, double flops_of_token = 0) {
    p.lines.push_back({what, (times.forward + times.backward) * micro_batches,
                       flops_of_token * s.N / s.t * micro_batches / r.rates.peak});
  };
  const auto add_block = [&](const std::string& what, const Times& times, double flops_of_token = 0) {
    add(what, L * times, flops_of_token);
    again += L * times.forward;
  };
  // 1. what multiplies
  add_block("products of experts", products_of_experts(s, r), experts);
  add_block("products of attention", products_of_attention(s, r), flops.matmul - experts - router - head);
  add_block("attention", attention(s, run, r), flops.attention_causal);
  add_block("routers: products in fp32, copies, choice, balance", routers(s, r), router);
  add("products of the head", product(s.N, s.C, s.V / s.t, s.N, r.rates.products, r.rates.products_half_k), head);
  // 2. what ranks exchange: rows there and back, and their gradients, of which one pass hides the other way's return
  const double pass = load * crossing_bytes(run) / r.link + r.exchange;
  const double shown = std::max(0.0, pass - weight_gradient_in(s, r));
  add_block("all_to_all, exposed", {2 * pass, pass + shown});
  if (run.tensor > 1) {
    const double sum = 2 * (s.t - 1) / s.t * s.N * s.C * kElement / r.link + r.exchange;
    add_block("sums over tensor ranks, exposed", {2 * sum, sum});
  }
  add_block("host waits for counts", {0, r.host_wait});
  // 3. what moves bytes
  add_block("rows to experts and back", moving_rows(s, run.expert > 1, r));
  add_block("activations", activations(s, r));
  add_block("norms, residual, rotary positions", row_kernels(s, r));
  // Ranks with a slice of the vocabulary read their logits again once all have their maxima and sums.
  add("loss: reads and one write", (s.N / r.rates.copy) * Times{0, (s.t > 1 ? 3 : 2) * s.V / s.t * kElement});
  add("embedding, last norm", (s.N / r.rates.copy) * Times{0, 16 * s.C * kElement});
  const RankMemory memory = memory_of_a_rank(run, load);
  add("main gradients, added to", {0, 2 * memory.gradients / r.rates.copy});
  const double of_blocks = L * (launches + static_cast<double>(kLaunchesOfExchange)) * (run.recompute ? 1.4 : 1);
  add("gaps between launches", {0, r.rates.launch_gap * (of_blocks + static_cast<double>(kLaunchesBesideBlocks))});
  if (run.recompute) add("forward of blocks again", {again, 0});
  // 4. once a step: the update; gradients and weights of what replicas share
  p.lines.push_back({"update and norm", 34.0 / 12 * memory.optimizer / r.rates.copy, 0});
  const auto dense = static_cast<double>(model::count_parameters(s.c).total() - model::count_parameters(s.c).experts);
  const auto data = static_cast<double>(run.expert);
  p.lines.push_back({"sums of gradients, param sync", 6 * dense / s.t * (data - 1) / data / r.link, 0});

  p.seconds = std::accumulate(p.lines.begin(), p.lines.end(), 0.0,
                              [](double sum, const Line& line) { return sum + line.seconds; });
  p.tokens_per_second = s.N / s.t * micro_batches / p.seconds;
  p.share_of_peak = flops.total_causal() * p.tokens_per_second / r.rates.peak;
  return p;
}

Interval interval(const ExpertRun& run, const ExpertRates& rates, int64_t launches_of_a_block) {
  const auto scaled = [&](const std::function<double&(ExpertRates&)>& rate, double factor) {
    ExpertRates r = rates;
    rate(r) *= factor;
    return predict(run, r, launches_of_a_block, 1).seconds;
  };
  const auto doubt = [&](const std::function<double&(ExpertRates&)>& rate, double least, double most) {
    return std::pair(scaled(rate, least), scaled(rate, most));
  };
  const bool own = rates.rates.backward_products > 5;
  const int d = run.model.head_dim <= 64 ? 0 : 1;
  const double least = own ? kOwnAttentionLeast / kOwnAttention : 0.9,
               most = own ? kOwnAttentionMost / kOwnAttention : 1.1;
  const Prediction p = predict(run, rates, launches_of_a_block, 1);
  return interval_of(p.tokens_per_second * p.seconds, p.seconds,
                     {doubt([](ExpertRates& r) -> double& { return r.rates.products; },
                            kProductsLeast / Rates().products, kProductsMost / Rates().products),
                      doubt([](ExpertRates& r) -> double& { return r.grouped; }, 0.85, 1.15),
                      doubt([](ExpertRates& r) -> double& { return r.rates.copy; }, kCopyLeast, kCopyMost),
                      doubt([](ExpertRates& r) -> double& { return r.link; }, 0.75, 1.15),
                      doubt([](ExpertRates& r) -> double& { return r.host_wait; }, 3, 0.5),
                      doubt([](ExpertRates& r) -> double& { return r.rates.launch_gap; }, 5.0 / 3, 2.0 / 3),
                      doubt([d](ExpertRates& r) -> double& { return r.rates.attention_forward[d]; }, least, most),
                      doubt([d](ExpertRates& r) -> double& { return r.rates.attention_backward[d]; }, least, most)});
}

RankMemory memory_of_a_rank(const ExpertRun& run, double load) {
  const Sizes s(run, load);
  const model::ParameterCount count = model::count_parameters(s.c);
  const auto ranks = static_cast<double>(run.ranks()), experts = static_cast<double>(count.experts);
  const auto dense = static_cast<double>(count.total() - count.experts);
  const double held = experts / ranks + dense / s.t;
  // Of a block: the stream twice, its norms, q, k, v before and after rotation, attention's output; rows of experts as
  // they were sorted, sent and returned, and what backward needs of each.
  const double tokens = s.N * (4 * s.C + (3 * s.Q + 4 * s.KV) / s.t) * kElement;
  const double rows = 2 * s.sorted * s.C * kElement +
                      s.rows * static_cast<double>(model::expert_row_elements(s.c, 1, false)) * kElement;
  const double block = tokens + rows, gradients = s.rows * (2 * s.C + 3 * s.F) * kElement;
  const auto L = static_cast<double>(s.c.n_layers);
  const double logits = 1024 * s.V / s.t * kElement;  // a chunk of the fused loss
  return {.weights = kElement * held,
          .gradients = kWide * held,
          .optimizer = 12 * static_cast<double>(count.total()) / ranks,
          .blocks = run.recompute ? L * s.N * s.C * kElement : L * block,
          .working = (run.recompute ? block : 0) + gradients + logits};
}

}  // namespace ashlar::evidence
