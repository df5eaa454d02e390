// Attention: the backend's entry points. What the arrays of a call are to kernels, which kernels serve it, and in which
// order they are queued. The kernels are in the other files of this folder.

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/cuda/attention/kernels.h"
#include "kernels/cuda/cuda_backend.h"

namespace ashlar::ASHLAR_DEV {
namespace attention {
namespace {

/// A view as rows of heads, each so wide. `batch` is the distance of samples in elements.
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

/// A window or a chunk, or none.
int limit_of(int64_t keys) {
  return keys > 0 && keys < Problem::kEveryKey ? static_cast<int>(keys) : Problem::kEveryKey;
}

Problem problem_of(const AttentionShape& s) {
  Problem p{.B = static_cast<int>(s.B),
            .T_q = static_cast<int>(s.T_q),
            .T_kv = static_cast<int>(s.T_kv),
            .H = static_cast<int>(s.H),
            .G = static_cast<int>(s.G),
            .D = static_cast<int>(s.D),
            .D_v = static_cast<int>(s.v_dim()),
            .q_start = s.q_start,
            .kv_start = s.kv_start,
            .diagonal = static_cast<int>(s.q_start - s.kv_start),
            .scale = s.variant.scale,
            .softcap = s.variant.softcap,
            .limited = s.variant.window > 0 || s.variant.chunk > 0,
            .window = limit_of(s.variant.window),
            .chunk = limit_of(s.variant.chunk),
            .doc_start = static_cast<const int32_t*>(s.doc_start.data),
            .dropout = {}};
  const DropoutArgs& d = s.dropout;
  if (!d.active()) return p;
  p.dropout = {.threshold = static_cast<uint32_t>(std::ceil(d.p * 0x1p24)),  // uniform(word) >= p, exactly
               .site = d.site,
               .seed = d.seed,
               .keep_scale = 1 / (1 - d.p),
               .scalars = static_cast<const StepScalars*>(d.scalars.data),
               .first_sample = d.first_sample,
               .heads = d.heads,
               .head0 = d.head0,
               .sequence_length = d.sequence_length};
  return p;
}

template <typename S>
HeadNumbers<S> head_numbers(const AttentionShape& s) {
  return {.slopes = static_cast<const AccumulateOf<S>*>(s.alibi_slopes.data),
          .sinks = static_cast<const S*>(s.sinks.data),
          .biases = nullptr,
          .distances = static_cast<int>(s.t5_buckets.size())};
}

template <typename S>
BiasTable<S> bias_table(const AttentionShape& s) {
  return {.bias = static_cast<const S*>(s.t5_bias.data),
          .buckets = static_cast<const int32_t*>(s.t5_buckets.data),
          .row = s.t5_bias.stride,
          .num_buckets = static_cast<int>(s.t5_bias.rows),
          .distances = static_cast<int>(s.t5_buckets.size())};
}

/// Of scratch, so that what lies behind begins at a whole vector.
int64_t padded_bytes(int64_t count, int64_t size) { return (count * size + 15) / 16 * 16; }

/// Of the array of biases by distance; 0 without T5's table. `size` is that of the accumulate type.
int64_t biases_bytes(const AttentionShape& s, int64_t size) {
  return s.t5_bias ? padded_bytes(s.H * s.t5_buckets.size(), size) : 0;
}

/// Of the array of first keys; 0 where only the causal mask hides keys.
int64_t first_keys_bytes(const Problem& p) {
  return p.doc_start != nullptr || p.limited ? padded_bytes(int64_t{p.B} * p.T_q, sizeof(int)) : 0;
}

/// Whether tensor cores take such heads.
bool has_tiles(const Problem& p) { return p.D <= kMaxTileWidth && p.D_v == p.D; }

template <typename S>
void forward(const AttentionForward& a, Problem p, std::byte* scratch, Stream& stream) {
  if (p.B == 0 || p.T_q == 0) return;
  if (first_keys_bytes(p) > 0) {
    int* const firsts = reinterpret_cast<int*>(scratch);
    first_keys(p, firsts, nullptr, stream);
    p.first_keys = firsts;
  }
  const AttentionShape& s = a.shape;
  ForwardArrays<S> arrays{.q = head_rows<const S>(a.q, s.q_batch_stride, s.D, s.B),
                          .k = head_rows<const S>(a.k, s.kv_batch_stride, s.D, s.B),
                          .v = head_rows<const S>(a.v, s.v_stride(), s.v_dim(), s.B),
                          .out = head_rows<S>(a.out, s.T_q * a.out.stride, s.v_dim(), s.B),
                          .lse = static_cast<AccumulateOf<S>*>(a.lse.data),
                          .heads = head_numbers<S>(s)};
  if (s.t5_bias) {
    auto* const biases = reinterpret_cast<AccumulateOf<S>*>(scratch + first_keys_bytes(p));
    gather_biases(p, bias_table<S>(s), biases, stream);
    arrays.heads.biases = biases;
  }
  if constexpr (std::is_same_v<S, BF16>) {
    if (has_tiles(p)) return forward_bf16(p, arrays, stream);
  }
  forward_simt(p, arrays, stream);
}

bool wants_bias_gradient(const AttentionBackward& a) { return a.dt5_bias && a.t5_mode != GradMode::kSkip; }

/// Scratch of a backward call: delta, first keys of queries, first keys of tiles of queries, T5's biases by distance
/// and the parts of their gradient.
struct BackwardScratch {
  int64_t delta_bytes, first_keys_bytes, tile_keys_bytes, biases_bytes, partials_bytes;

  BackwardScratch(const AttentionBackward& a, const Problem& p, int64_t size)
      : delta_bytes(a.delta ? 0 : padded_bytes(int64_t{p.B} * p.H * p.T_q, size)),
        first_keys_bytes(attention::first_keys_bytes(p)),
        tile_keys_bytes(first_keys_bytes > 0 ? padded_bytes(int64_t{p.B} * blocks_for(p.T_q, kQueryTile), sizeof(int2))
                                             : 0),
        biases_bytes(attention::biases_bytes(a.shape, size)),
        partials_bytes(wants_bias_gradient(a)
                           ? int64_t{p.B} * blocks_for(p.T_q, kBiasQueries) * p.H * a.shape.t5_bias.rows * 8
                           : 0) {}
  int64_t bytes() const { return delta_bytes + first_keys_bytes + tile_keys_bytes + biases_bytes + partials_bytes; }
};

template <typename S>
void backward(const AttentionBackward& a, Problem p, std::byte* scratch, Stream& stream) {
  using A = AccumulateOf<S>;
  const AttentionShape& s = a.shape;
  BackwardArrays<S> arrays{.dout = head_rows<const S>(a.dout, s.T_q * a.dout.stride, s.v_dim(), s.B),
                           .q = head_rows<const S>(a.q, s.q_batch_stride, s.D, s.B),
                           .k = head_rows<const S>(a.k, s.kv_batch_stride, s.D, s.B),
                           .v = head_rows<const S>(a.v, s.v_stride(), s.v_dim(), s.B),
                           .lse = static_cast<const A*>(a.lse.data),
                           .delta = static_cast<const A*>(a.delta.data),
                           .dq = head_rows<S>(a.dq, s.q_batch_stride, s.D, s.B),
                           .dk = head_rows<S>(a.dk, s.kv_batch_stride, s.D, s.B),
                           .dv = head_rows<S>(a.dv, s.v_stride(), s.v_dim(), s.B),
                           .tile_keys = nullptr,
                           .accumulate = a.mode == GradMode::kAccumulate ? 1 : 0,
                           .heads = head_numbers<S>(s)};
  const BackwardScratch sizes(a, p, sizeof(A));
  std::byte* const biases = scratch + sizes.delta_bytes + sizes.first_keys_bytes + sizes.tile_keys_bytes;
  if (p.B > 0 && p.T_q > 0) {
    if (!a.delta) {
      A* const made = reinterpret_cast<A*>(scratch);
      delta(p, head_rows<const S>(a.out, s.T_q * a.out.stride, s.v_dim(), s.B), arrays.dout, made, stream);
      arrays.delta = made;
    }
    if (sizes.first_keys_bytes > 0) {
      int* const firsts = reinterpret_cast<int*>(scratch + sizes.delta_bytes);
      int2* const tiles = reinterpret_cast<int2*>(scratch + sizes.delta_bytes + sizes.first_keys_bytes);
      first_keys(p, firsts, tiles, stream);
      p.first_keys = firsts;
      arrays.tile_keys = tiles;
    }
    if (s.t5_bias) {
      gather_biases(p, bias_table<S>(s), reinterpret_cast<A*>(biases), stream);
      arrays.heads.biases = reinterpret_cast<const A*>(biases);
    }
  }
  if (a.dsinks && a.sinks_mode != GradMode::kSkip) {
    sink_gradient(p, arrays, static_cast<A*>(a.dsinks.data), a.sinks_mode == GradMode::kAccumulate, stream);
  }
  if (wants_bias_gradient(a)) {
    bias_gradient(p, arrays, bias_table<S>(s), reinterpret_cast<double*>(biases + sizes.biases_bytes),
                  static_cast<A*>(a.dt5_bias.data), a.dt5_bias.stride, a.t5_mode == GradMode::kAccumulate, stream);
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
  const attention::Problem p = attention::problem_of(args.shape);
  const int64_t bytes =
      attention::first_keys_bytes(p) + attention::biases_bytes(args.shape, size_of(accumulate_dtype(args.q.dtype)));
  auto* const memory = bytes > 0 ? static_cast<std::byte*>(scratch(stream, bytes)) : nullptr;
  switch (args.q.dtype) {
    case DType::kBFloat16: return attention::forward<BF16>(args, p, memory, stream);
    case DType::kFloat64: return attention::forward<double>(args, p, memory, stream);
    default: return attention::forward<float>(args, p, memory, stream);
  }
}

void CudaBackend::launch(const AttentionBackward& args, Stream& stream) {
  if (!args.dq && !args.dk && !args.dsinks && !args.dt5_bias) return;
  const attention::Problem p = attention::problem_of(args.shape);
  const attention::BackwardScratch sizes(args, p, size_of(accumulate_dtype(args.q.dtype)));
  auto* const memory = static_cast<std::byte*>(scratch(stream, sizes.bytes()));
  switch (args.q.dtype) {
    case DType::kBFloat16: return attention::backward<BF16>(args, p, memory, stream);
    case DType::kFloat64: return attention::backward<double>(args, p, memory, stream);
    default: return attention::backward<float>(args, p, memory, stream);
  }
}

}  // namespace ashlar::ASHLAR_DEV
