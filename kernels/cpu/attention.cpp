// Attention: what is refused, how work is cut over threads, the backend's entry points. The kernels are in
// attention_forward.cpp and attention_backward.cpp.

#include "kernels/cpu/attention.h"

#include <algorithm>
#include <atomic>

#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/parallel_for.h"

namespace ashlar::cpu {
namespace attention {
namespace {
int64_t num_blocks(int64_t n) { return (n + kBlockSize - 1) / kBlockSize; }
}  // namespace

Plan plan_forward(const AttentionShape& s, DType storage, int threads) {
  Plan plan{.kind = Plan::Kind::kForward, .B = s.B, .H = s.H, .G = s.G, .T_q = s.T_q, .T_kv = s.T_kv};
  const int64_t blocks = num_blocks(s.T_q);
  // A long span converts k and v less often; four items a thread keep the threads equally busy.
  int64_t span = std::min<int64_t>(blocks, 4);
  while (span > 1 && s.B * s.H * ((blocks + span - 1) / span) < 4 * threads) --span;
  plan.span = std::max<int64_t>(span, 1) * kBlockSize;
  plan.num_items = s.B * s.H * ((s.T_q + plan.span - 1) / plan.span);
  plan.thread_bytes = forward_item_bytes(s.D, storage, std::min(plan.span, s.T_q));
  return plan;
}

Plan plan_backward(const AttentionShape& s, DType storage, int threads) {
  Plan plan{.kind = Plan::Kind::kFused, .B = s.B, .H = s.H, .G = s.G, .T_q = s.T_q, .T_kv = s.T_kv};
  const int64_t heads = s.B * s.G;
  const int64_t key_blocks = num_blocks(s.T_kv);
  // Products a block: 5 in one pass; in two passes 4 and 3, but cut finely enough to fill every thread.
  const double fused_cost = 5.0 * static_cast<double>((heads + threads - 1) / threads);
  const double two_pass_cost = 7.0 * static_cast<double>(heads) / threads;
  if (threads == 1 || fused_cost <= two_pass_cost) {
    plan.span = key_blocks * kBlockSize;
    plan.num_items = heads;
    plan.thread_bytes = backward_item_bytes(s.D, storage, s.T_kv);
    return plan;
  }
  plan.kind = Plan::Kind::kTwoPass;
  const int64_t wanted = std::max<int64_t>(1, 4 * threads / std::max<int64_t>(heads, 1));
  plan.span = std::max<int64_t>(1, key_blocks / wanted) * kBlockSize;
  plan.num_dkv_items = heads * ((s.T_kv + plan.span - 1) / plan.span);
  plan.num_items = plan.num_dkv_items + s.B * s.H * num_blocks(s.T_q);
  plan.thread_bytes = backward_item_bytes(s.D, storage, s.T_kv);
  return plan;
}

Item Plan::item(int64_t index) const {
  const int64_t group = H / G;
  if (kind == Kind::kForward) {  // late queries see most keys
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
  if (kind == Kind::kFused || index < num_dkv_items) {  // early keys are seen by most queries
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

constexpr std::string_view kWhere = "attention";

void check_shape(const AttentionShape& s) {
  if (s.D < 4 || s.D > 256 || s.D % 4 != 0) {
    throw input_error(kWhere, "expected head_dim to be a multiple of 4 from 4 to 256, got ", s.D,
                      "; choose another model.head_dim");
  }
  if (s.window >= 0) {
    throw input_error(kWhere, "window = ", s.window, " is not served yet; leave it at -1 (full attention)");
  }
  if (s.softcap != 0) throw input_error(kWhere, "softcap = ", s.softcap, " is not served yet; leave it at 0 (none)");
  if (s.alibi_slopes != nullptr) throw input_error(kWhere, "alibi_slopes is not served yet; leave it null");
  if (s.t5_bias != nullptr) throw input_error(kWhere, "t5_bias is not served yet; leave it null");
  if (s.t5_bias_grad != nullptr) throw input_error(kWhere, "t5_bias_grad is not served yet; leave it null");
  ASHLAR_CHECK(s.B >= 0 && s.T_q >= 0 && s.T_kv >= 0, "B = ", s.B, ", T_q = ", s.T_q, ", T_kv = ", s.T_kv);
  ASHLAR_CHECK(s.T_q < (int64_t{1} << 31) && s.T_kv < (int64_t{1} << 31), "T_q = ", s.T_q, ", T_kv = ", s.T_kv);
  ASHLAR_CHECK(s.H > 0 && s.G > 0 && s.H % s.G == 0, "H = ", s.H, ", G = ", s.G);
  if (s.dropout.active()) {
    const DropoutArgs& drop = s.dropout;
    ASHLAR_CHECK(drop.p < 1 && drop.scalars != nullptr, "dropout p = ", drop.p);
    ASHLAR_CHECK(s.q_start + s.T_q <= drop.sequence_length && s.kv_start + s.T_kv <= drop.sequence_length,
                 "dropout sequence_length = ", drop.sequence_length, " is less than a position of this call");
  }
}

void check_view(const char* name, const ConstView& view, DType dtype, int64_t rows, int64_t cols) {
  ASHLAR_CHECK(view || rows * cols == 0, name, " is absent");
  ASHLAR_CHECK(view.dtype == dtype, name, " is ", name_of(view.dtype), ", expected ", name_of(dtype));
  ASHLAR_CHECK(view.rows == rows && view.cols == cols && view.stride >= cols, name, " is [", view.rows, ", ", view.cols,
               "] with stride ", view.stride, ", expected [", rows, ", ", cols, "]");
}

void check_statistic(const char* name, const ConstView& view, DType storage, const AttentionShape& s) {
  ASHLAR_CHECK(view || s.B * s.T_q == 0, name, " is absent");
  ASHLAR_CHECK(view.dtype == accumulate_dtype(storage), name, " is ", name_of(view.dtype));
  ASHLAR_CHECK(view.size() == s.B * s.H * s.T_q && view.contiguous(), name, " holds ", view.size(), " elements");
}

DType check_inputs(const AttentionShape& s, const ConstView& q, const ConstView& k, const ConstView& v) {
  check_shape(s);
  const DType storage = q.dtype;
  ASHLAR_CHECK(is_floating(storage), "q is ", name_of(storage));
  check_view("q", q, storage, s.B * s.T_q, s.H * s.D);
  check_view("k", k, storage, s.B * s.T_kv, s.G * s.D);
  check_view("v", v, storage, s.B * s.T_kv, s.G * s.D);
  return storage;
}

DType check(const AttentionForward& args) {
  const AttentionShape& s = args.shape;
  const DType storage = check_inputs(s, args.q, args.k, args.v);
  check_view("out", args.out, storage, s.B * s.T_q, s.H * s.D);
  check_statistic("lse", args.lse, storage, s);
  return storage;
}

DType check(const AttentionBackward& args) {
  const AttentionShape& s = args.shape;
  const DType storage = check_inputs(s, args.q, args.k, args.v);
  check_view("dout", args.dout, storage, s.B * s.T_q, s.H * s.D);
  check_statistic("lse", args.lse, storage, s);
  if (args.delta) {
    check_statistic("delta", args.delta, storage, s);
  } else {
    check_view("out", args.out, storage, s.B * s.T_q, s.H * s.D);
  }
  if (args.dq) check_view("dq", args.dq, storage, s.B * s.T_q, s.H * s.D);
  ASHLAR_CHECK(bool{args.dk} == bool{args.dv}, "dk and dv are given or absent together");
  if (args.dk) {
    check_view("dk", args.dk, storage, s.B * s.T_kv, s.G * s.D);
    check_view("dv", args.dv, storage, s.B * s.T_kv, s.G * s.D);
    ASHLAR_CHECK(args.dk.stride == args.dv.stride, "dk has stride ", args.dk.stride, ", dv ", args.dv.stride);
  }
  return storage;
}

/// Each thread takes the next item until none is left; `run(item, scratch)`.
template <typename Run>
void run_items(const Plan& plan, int threads, std::byte* workspace, const Run& run) {
  std::atomic<int64_t> next{0};
  const int64_t slots = std::min<int64_t>(threads, plan.num_items);
  parallel_for(threads, slots, 1, [&](int64_t slot, int64_t /*end*/) {
    for (int64_t i = next.fetch_add(1); i < plan.num_items; i = next.fetch_add(1)) {
      run(plan.item(i), workspace + slot * plan.thread_bytes);
    }
  });
}

}  // namespace

int64_t attention_forward_workspace_bytes(const AttentionForward& args, int threads) {
  return attention::plan_forward(args.shape, check(args), threads).thread_bytes * threads;
}

void attention_forward(const AttentionForward& args, int threads, std::byte* workspace) {
  const Plan plan = attention::plan_forward(args.shape, check(args), threads);
  run_items(plan, threads, workspace,
            [&](const Item& item, std::byte* scratch) { attention::run_forward_item(args, item, scratch); });
}

int64_t attention_backward_workspace_bytes(const AttentionBackward& args, int threads) {
  return attention::plan_backward(args.shape, check(args), threads).thread_bytes * threads;
}

void attention_backward(const AttentionBackward& args, int threads, std::byte* workspace) {
  const Plan plan = attention::plan_backward(args.shape, check(args), threads);
  if (args.mode == GradMode::kSkip) return;
  run_items(plan, threads, workspace, [&](const Item& cut, std::byte* scratch) {
    Item item = cut;
    item.want_dq = item.want_dq && args.dq;
    item.want_dkv = item.want_dkv && args.dk;
    if (item.want_dq || item.want_dkv) attention::run_backward_item(args, item, scratch);
  });
}

void CpuBackend::attention_forward(const AttentionForward& args, Stream& /*stream*/) {
  const ScopedBlock block(workspace(), attention_forward_workspace_bytes(args, threads_));
  cpu::attention_forward(args, threads_, block.as<std::byte>());
}

void CpuBackend::attention_backward(const AttentionBackward& args, Stream& /*stream*/) {
  const ScopedBlock block(workspace(), attention_backward_workspace_bytes(args, threads_));
  cpu::attention_backward(args, threads_, block.as<std::byte>());
}

}  // namespace ashlar::cpu
