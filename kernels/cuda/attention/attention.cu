// Entry points of attention. They convert the arrays of a call to kernel arguments, choose the kernels, and queue them
// in order. The kernels are in the other files of this folder.

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/cuda/attention/kernels.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/dispatch.h"

namespace ashlar::ASHLAR_DEV {
namespace attention {
namespace {

/// Returns a view as rows of heads of `width` columns. `batch` is the stride between samples in elements.
template <typename T, typename View>
HeadRows<T> head_rows(const View& view, int64_t batch, int64_t width, int64_t samples) {
  int64_t distances = view.stride | (samples > 1 ? batch : 0) | (view.cols > width ? width : 0);
  distances =
      distances * static_cast<int64_t>(sizeof(T)) | static_cast<int64_t>(reinterpret_cast<uintptr_t>(view.data));
  return {.data = static_cast<T*>(view.data),
          .batch = batch,
          .row = view.stride,
          .align = 1 << std::min(4, std::countr_zero(static_cast<uint64_t>(distances)))};
}

Problem problem_of(const AttentionShape& s) {
  Problem p{.B = static_cast<int>(s.B),
            .T_q = static_cast<int>(s.T_q),
            .T_kv = static_cast<int>(s.T_kv),
            .H = static_cast<int>(s.H),
            .G = static_cast<int>(s.G),
            .D = static_cast<int>(s.D),
            .D_v = static_cast<int>(s.v_dim()),
            .mask = KeyMask::of(s),
            .dropout = {}};
  const DropoutArgs& d = s.dropout;
  if (!d.active()) return p;
  p.dropout = {.threshold = static_cast<uint32_t>(std::ceil(d.p * 0x1p24)),  // exact form of uniform(word) >= p
               .rng_stream = d.rng_stream,
               .seed = d.seed,
               .keep_scale = 1 / (1 - d.p),
               .scalars = static_cast<const StepScalars*>(d.scalars.data),
               .first_sample = d.first_sample,
               .heads = d.heads,
               .head0 = d.head0,
               .sequence_length = d.sequence_length};
  return p;
}

/// True if the tensor core kernels support heads of this width.
bool has_tiles(const Problem& p) { return p.D <= kMaxTileWidth && p.D_v == p.D; }

bool wants_bias_gradient(const AttentionBackward& a) { return a.dt5_bias && a.t5_mode != GradMode::kSkip; }

/// Divides a call's scratch memory into arrays, each aligned to 16 bytes. An array is null if the call does not need
/// it. If `memory` is null, only `bytes` is computed: the number of bytes that the call needs.
template <typename S>
struct Parts {
  using A = AccumulateOf<S>;

  std::byte* memory;
  int64_t bytes = 0;
  int *first_keys, *last_keys;
  A* biases;
  A* delta = nullptr;
  int4* tile_keys = nullptr;
  double* partials = nullptr;  ///< partial sums of the gradient of T5's table

  Parts(std::byte* base, const Problem& p, const AttentionShape& s) : memory(base) {
    const int64_t queries = int64_t{p.B} * p.T_q;
    first_keys = allocate<int>(p.mask.listed_first_keys() ? queries : 0);
    last_keys = allocate<int>(p.mask.listed_last_keys ? queries : 0);
    biases = allocate<A>(p.H * s.scores.t5_buckets.size());
  }
  Parts(std::byte* base, const Problem& p, const AttentionBackward& a) : Parts(base, p, a.shape) {
    delta = allocate<A>(a.delta ? 0 : int64_t{p.B} * p.H * p.T_q);
    tile_keys = allocate<int4>(p.mask.listed_first_keys() ? int64_t{p.B} * blocks_for(p.T_q, kQueryTile) : 0);
    const int64_t sums = int64_t{p.B} * blocks_for(p.T_q, kBiasQueries) * p.H * a.shape.scores.t5_bias.rows;
    partials = allocate<double>(wants_bias_gradient(a) ? sums : 0);
  }

  /// Queues the kernels that compute the key ranges and biases, and sets their addresses in `p` and `scores`.
  void prepare(Problem& p, Scores<S>& scores, Stream& stream) const {
    if (p.mask.listed_first_keys()) key_ranges(p, first_keys, last_keys, tile_keys, stream);
    p.mask.first_keys = first_keys;
    p.mask.last_keys = last_keys;
    if (scores.t5_bias == nullptr) return;
    gather_biases(p, scores, biases, stream);
    scores.biases = biases;
  }

 private:
  template <typename T>
  T* allocate(int64_t count) {
    T* const part = memory == nullptr || count == 0 ? nullptr : reinterpret_cast<T*>(memory + bytes);
    bytes += (count * static_cast<int64_t>(sizeof(T)) + 15) / 16 * 16;
    return part;
  }
};

template <typename S>
void forward(const AttentionForward& a, Problem p, std::byte* memory, Stream& stream) {
  if (p.B == 0 || p.T_q == 0) return;
  const AttentionShape& s = a.shape;
  ForwardArrays<S> arrays{.q = head_rows<const S>(a.q, s.q_batch_stride, s.D, s.B),
                          .k = head_rows<const S>(a.k, s.kv_batch_stride, s.D, s.B),
                          .v = head_rows<const S>(a.v, s.v_stride(), s.v_dim(), s.B),
                          .out = head_rows<S>(a.out, s.T_q * a.out.stride, s.v_dim(), s.B),
                          .lse = static_cast<AccumulateOf<S>*>(a.lse.data),
                          .scores = Scores<S>::of(s)};
  Parts<S>(memory, p, s).prepare(p, arrays.scores, stream);
  if constexpr (std::is_same_v<S, BF16>) {
    if (has_tiles(p)) return forward_bf16(p, arrays, stream);
  }
  forward_simt(p, arrays, stream);
}

template <typename S>
void backward(const AttentionBackward& a, Problem p, std::byte* memory, Stream& stream) {
  using A = AccumulateOf<S>;
  const AttentionShape& s = a.shape;
  const Parts<S> parts(memory, p, a);
  BackwardArrays<S> arrays{.dout = head_rows<const S>(a.dout, s.T_q * a.dout.stride, s.v_dim(), s.B),
                           .q = head_rows<const S>(a.q, s.q_batch_stride, s.D, s.B),
                           .k = head_rows<const S>(a.k, s.kv_batch_stride, s.D, s.B),
                           .v = head_rows<const S>(a.v, s.v_stride(), s.v_dim(), s.B),
                           .lse = static_cast<const A*>(a.lse.data),
                           .delta = a.delta ? static_cast<const A*>(a.delta.data) : parts.delta,
                           .dq = head_rows<S>(a.dq, s.q_batch_stride, s.D, s.B),
                           .dk = head_rows<S>(a.dk, s.kv_batch_stride, s.D, s.B),
                           .dv = head_rows<S>(a.dv, s.v_stride(), s.v_dim(), s.B),
                           .tile_keys = parts.tile_keys,
                           .accumulate = a.mode == GradMode::kAccumulate ? 1 : 0,
                           .scores = Scores<S>::of(s)};
  if (p.B > 0 && p.T_q > 0) {
    if (!a.delta)
      delta(p, head_rows<const S>(a.out, s.T_q * a.out.stride, s.v_dim(), s.B), arrays.dout, parts.delta, stream);
    parts.prepare(p, arrays.scores, stream);
  }
  if (a.dsinks && a.sinks_mode != GradMode::kSkip) {
    sink_gradient(p, arrays, static_cast<A*>(a.dsinks.data), a.sinks_mode == GradMode::kAccumulate, stream);
  }
  if (wants_bias_gradient(a)) {
    bias_gradient(p, arrays, parts.partials, static_cast<A*>(a.dt5_bias.data), a.dt5_bias.stride,
                  a.t5_mode == GradMode::kAccumulate, stream);
  }
  const bool keys = a.dk && p.B > 0 && p.T_kv > 0, queries = a.dq && p.B > 0 && p.T_q > 0;
  if constexpr (std::is_same_v<S, BF16>) {
    if (has_tiles(p)) {
      if (keys) backward_keys_bf16(p, arrays, stream);
      if (queries) backward_queries_bf16(p, arrays, stream);
      return;
    }
  }
  if (keys) backward_keys_simt(p, arrays, stream);
  if (queries) backward_queries_simt(p, arrays, stream);
}

}  // namespace
}  // namespace attention

void CudaBackend::launch(const AttentionForward& args, Stream& stream) {
  with_storage("attention_forward", args.q.dtype, [&]<typename S>(S) {
    const attention::Problem p = attention::problem_of(args.shape);
    const int64_t bytes = attention::Parts<S>(nullptr, p, args.shape).bytes;
    attention::forward<S>(args, p, bytes > 0 ? static_cast<std::byte*>(scratch(stream, bytes)) : nullptr, stream);
  });
}

void CudaBackend::launch(const AttentionBackward& args, Stream& stream) {
  if (!args.dq && !args.dk && !args.dsinks && !args.dt5_bias) return;
  with_storage("attention_backward", args.q.dtype, [&]<typename S>(S) {
    const attention::Problem p = attention::problem_of(args.shape);
    const int64_t bytes = attention::Parts<S>(nullptr, p, args).bytes;
    attention::backward<S>(args, p, bytes > 0 ? static_cast<std::byte*>(scratch(stream, bytes)) : nullptr, stream);
  });
}

}  // namespace ashlar::ASHLAR_DEV
