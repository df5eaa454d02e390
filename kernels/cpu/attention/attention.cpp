// The launch functions of attention, and the division of the work among threads. The kernels are in forward.cpp and
// backward.cpp.

#include <algorithm>
#include <atomic>
#include <cmath>

#include "kernels/cpu/attention/items.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel_for.h"

namespace ashlar::cpu {
namespace attention {
namespace {
int64_t num_blocks(int64_t n) { return (n + kBlockSize - 1) / kBlockSize; }
}  // namespace

Plan plan_forward(const AttentionShape& s, DType storage, int threads, Isa isa) {
  Plan plan{.kind = Plan::Kind::kForward, .B = s.B, .H = s.H, .G = s.G, .T_q = s.T_q, .T_kv = s.T_kv};
  const int64_t blocks = num_blocks(s.T_q);
  // A longer span of queries converts k and v less often; at least four items per thread keep the threads equally busy.
  int64_t span = std::min<int64_t>(blocks, 4);
  while (span > 1 && s.B * s.H * ((blocks + span - 1) / span) < 4 * threads) --span;
  plan.span = std::max<int64_t>(span, 1) * kBlockSize;
  plan.num_items = s.B * s.H * ((s.T_q + plan.span - 1) / plan.span);
  plan.thread_bytes = forward_kernels(isa).scratch_bytes(s, storage, std::min(plan.span, s.T_q));
  return plan;
}

Plan plan_backward(const AttentionShape& s, DType storage, int threads, Isa isa) {
  Plan plan{.kind = Plan::Kind::kFused, .B = s.B, .H = s.H, .G = s.G, .T_q = s.T_q, .T_kv = s.T_kv};
  const int64_t heads = s.B * s.G;
  const int64_t key_blocks = num_blocks(s.T_kv);
  // Costs are counted in matrix products per block: 5 in one pass; in two passes 4 for dk and dv, and 3 for dq. One
  // pass has one item per sample and KV head, so the busiest thread gets ceil(heads / threads) items. Two passes have
  // enough items for all threads.
  const double fused_cost = 5.0 * static_cast<double>((heads + threads - 1) / threads);
  const double two_pass_cost = 7.0 * static_cast<double>(heads) / threads;
  if (threads == 1 || fused_cost <= two_pass_cost) {
    plan.span = key_blocks * kBlockSize;
    plan.num_items = heads;
    plan.thread_bytes = backward_kernels(isa).scratch_bytes(s, storage, s.T_kv);
    return plan;
  }
  plan.kind = Plan::Kind::kTwoPass;
  const int64_t wanted = std::max<int64_t>(1, 4 * threads / std::max<int64_t>(heads, 1));
  plan.span = std::max<int64_t>(1, key_blocks / wanted) * kBlockSize;
  plan.num_dkv_items = heads * ((s.T_kv + plan.span - 1) / plan.span);
  plan.num_items = plan.num_dkv_items + s.B * s.H * num_blocks(s.T_q);
  plan.thread_bytes = backward_kernels(isa).scratch_bytes(s, storage, s.T_kv);
  return plan;
}

Item Plan::item(int64_t index) const {
  const int64_t group = H / G;
  if (kind == Kind::kForward) {  // late queries, which see the most keys, come first
    const int64_t spans = (T_q + span - 1) / span;
    const int64_t t = (spans - 1 - index / (B * H)) * span;
    const int64_t bh = index % (B * H);
    return {.b = bh / H,
            .h_begin = bh % H,
            .h_end = bh % H + 1,
            .t_begin = t,
            .t_end = std::min(t + span, T_q),
            .key_begin = 0,
            .key_end = T_kv};
  }
  if (kind == Kind::kFused || index < num_dkv_items) {  // early keys, which most queries see, come first
    const int64_t bg = index % (B * G);
    const int64_t key = index / (B * G) * span;
    return {.b = bg / G,
            .h_begin = bg % G * group,
            .h_end = (bg % G + 1) * group,
            .t_begin = 0,
            .t_end = T_q,
            .key_begin = key,
            .key_end = std::min(key + span, T_kv),
            .want_dq = kind == Kind::kFused,
            .want_dkv = true};
  }
  const int64_t rest = index - num_dkv_items;
  const int64_t t = (num_blocks(T_q) - 1 - rest / (B * H)) * kBlockSize;
  const int64_t bh = rest % (B * H);
  return {.b = bh / H,
          .h_begin = bh % H,
          .h_end = bh % H + 1,
          .t_begin = t,
          .t_end = std::min(t + kBlockSize, T_q),
          .key_begin = 0,
          .key_end = T_kv,
          .want_dq = true};
}

}  // namespace attention

namespace {

using attention::Item;
using attention::Plan;

/// Computes dsinks of one head: - sum exp(sink - lse) delta, where delta = sum_d out dout is a number per query. The
/// sum runs over samples and queries in ascending order, in double.
void sink_gradient(const AttentionBackward& a, int64_t h) {
  attention::with_types(a.q.dtype, [&](auto s, auto t) {
    using S = decltype(s);
    using T = decltype(t);
    const AttentionShape& shape = a.shape;
    const int64_t width = shape.v_dim();
    const auto sink = static_cast<double>(static_cast<T>(static_cast<const S*>(shape.scores.sinks.data)[h]));
    double sum = 0;
    for (int64_t b = 0; b < shape.B; ++b) {
      for (int64_t q = 0; q < shape.T_q; ++q) {
        const int64_t stat = (b * shape.H + h) * shape.T_q + q, row = b * shape.T_q + q;
        double delta = 0;
        if (a.delta) {
          delta = static_cast<double>(static_cast<const T*>(a.delta.data)[stat]);
        } else {
          const S* const out = static_cast<const S*>(a.out.data) + row * a.out.stride + h * width;
          const S* const dout = static_cast<const S*>(a.dout.data) + row * a.dout.stride + h * width;
          for (int64_t d = 0; d < width; ++d) {
            delta += static_cast<double>(static_cast<T>(out[d])) * static_cast<double>(static_cast<T>(dout[d]));
          }
        }
        sum -= std::exp(sink - static_cast<double>(static_cast<const T*>(a.lse.data)[stat])) * delta;
      }
    }
    T& to = static_cast<T*>(a.dsinks.data)[h];
    to = a.sinks_mode == GradMode::kAccumulate ? static_cast<T>(static_cast<double>(to) + sum) : static_cast<T>(sum);
  });
}

/// Computes dt5_bias of one head: adds `sums` over samples and blocks of queries in ascending order, in double.
void bias_gradient(const AttentionBackward& a, int64_t h, const double* sums) {
  attention::with_types(a.q.dtype, [&](auto, auto t) {
    using T = decltype(t);
    const AttentionShape& shape = a.shape;
    const int64_t blocks = attention::num_blocks(shape.T_q), buckets = shape.scores.t5_bias.rows;
    for (int64_t bucket = 0; bucket < buckets; ++bucket) {
      T& to = static_cast<T*>(a.dt5_bias.data)[bucket * a.dt5_bias.stride + h];
      double sum = a.t5_mode == GradMode::kAccumulate ? static_cast<double>(to) : 0;
      for (int64_t b = 0; b < shape.B; ++b) {
        for (int64_t block = 0; block < blocks; ++block)
          sum += sums[((b * shape.H + h) * blocks + block) * buckets + bucket];
      }
      to = static_cast<T>(sum);
    }
  });
}

/// Calls `run(item, scratch)` for all items. Each thread takes the next item until none is left.
template <typename Run>
void run_items(const Plan& plan, Threads& threads, std::byte* workspace, const Run& run) {
  std::atomic<int64_t> next{0};
  const int64_t slots = std::min<int64_t>(threads.size(), plan.num_items);
  parallel_for(threads, slots, 1, [&](int64_t slot, int64_t /*end*/) {
    for (int64_t i = next.fetch_add(1); i < plan.num_items; i = next.fetch_add(1)) {
      run(plan.item(i), workspace + slot * plan.thread_bytes);
    }
  });
}

}  // namespace

void CpuBackend::launch(const AttentionForward& args, Stream& /*stream*/) {
  const Plan plan = attention::plan_forward(args.shape, args.q.dtype, threads_.size(), info_.isa);
  const ScopedBlock scratch(workspace(), plan.thread_bytes * threads_.size());
  const auto kernels = attention::forward_kernels(info_.isa);
  run_items(plan, threads_, scratch.as<std::byte>(),
            [&](const Item& item, std::byte* mine) { kernels.run(args, item, mine); });
}

void CpuBackend::launch(const AttentionBackward& args, Stream& /*stream*/) {
  const auto kernels = attention::backward_kernels(info_.isa);
  const AttentionShape& shape = args.shape;
  const bool wants_bias = args.dt5_bias && args.t5_mode != GradMode::kSkip;
  if (args.dq || args.dk || wants_bias) {
    const Plan plan = attention::plan_backward(shape, args.q.dtype, threads_.size(), info_.isa);
    const int64_t sums =
        wants_bias ? shape.B * shape.H * attention::num_blocks(shape.T_q) * shape.scores.t5_bias.rows : 0;
    const ScopedBlock bias_sums(workspace(), sums * static_cast<int64_t>(sizeof(double)));
    const ScopedBlock scratch(workspace(), plan.thread_bytes * threads_.size());
    run_items(plan, threads_, scratch.as<std::byte>(), [&](const Item& planned, std::byte* mine) {
      Item item = planned;
      if (item.want_dq && wants_bias) item.bias_sums = bias_sums.as<double>();
      item.want_dq = item.want_dq && args.dq;
      item.want_dkv = item.want_dkv && args.dk;
      if (item.want_dq || item.want_dkv || item.bias_sums != nullptr) kernels.run(args, item, mine);
    });
    for (int64_t h = 0; wants_bias && h < shape.H; ++h) bias_gradient(args, h, bias_sums.as<double>());
  }
  if (!args.dsinks || args.sinks_mode == GradMode::kSkip) return;
  parallel_for(threads_, args.shape.H, 1, [&](int64_t begin, int64_t end) {
    for (int64_t h = begin; h < end; ++h) sink_gradient(args, h);
  });
}

}  // namespace ashlar::cpu
