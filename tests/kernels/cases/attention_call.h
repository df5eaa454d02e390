#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <ostream>
#include <random>
#include <vector>

#include "core/tensor/tensor.h"
#include "tests/kernels/cases/attention_reference.h"
#include "tests/support/every_backend.h"

/// Problems of attention with their arrays, to be run on a backend and compared with the reference.
namespace ashlar::testing {

struct AttentionCase {
  int64_t B = 1, T_q = 1, T_kv = 1, H = 1, G = 1, D = 4;
  int64_t q_start = 0, kv_start = 0;
  double p = 0;
  bool documents = false;
  double scale = 0;   // 0: 1/sqrt(D)
  int64_t align = 1;  // rows begin at multiples of so many elements
  int64_t window = -1, chunk = 0;
  double softcap = 0;
  bool alibi = false, sinks = false;
  int64_t D_v = 0;         // 0: D
  int64_t t5_buckets = 0;  // 0: no table of biases; AttentionReference::bucket_of says which distance has which
  bool causal = true;

  int64_t width() const { return D_v > 0 ? D_v : D; }
};

inline std::ostream& operator<<(std::ostream& out, const AttentionCase& c) {
  return out << "B" << c.B << " T_q" << c.T_q << " T_kv" << c.T_kv << " H" << c.H << " G" << c.G << " D" << c.D
             << " q_start" << c.q_start << " kv_start" << c.kv_start << " p" << c.p << " documents" << c.documents
             << " align" << c.align << " window" << c.window << " chunk" << c.chunk << " softcap" << c.softcap
             << " alibi" << c.alibi << " sinks" << c.sinks << " D_v" << c.D_v << " t5_buckets" << c.t5_buckets
             << (c.causal ? "" : " not causal");
}

/// The arrays of one call in storage dtype S: q, k, v (and their gradients) lie in one fused row when the queries are
/// the keys' own tokens, else apart; rows are longer than what is used and samples longer than their rows. What lies
/// between holds NaN where a kernel reads, to show in any result that it goes into, and must stay as it is.
template <typename S>
struct AttentionCall {
  using A = std::conditional_t<std::is_same_v<S, double>, double, float>;
  static constexpr DType kStorage = DTypeOf<S>::value;
  static constexpr float kUntouched = 77;

  explicit AttentionCall(const AttentionCase& c, unsigned seed = 1) : config(c), random(seed) {
    AttentionShape& s = shape;
    s = {.B = c.B, .T_q = c.T_q, .T_kv = c.T_kv, .H = c.H, .G = c.G, .D = c.D, .D_v = c.D_v};
    s.mask = {.causal = c.causal, .window = c.window, .chunk = c.chunk, .q_start = c.q_start, .kv_start = c.kv_start};
    s.scores = {.scale = c.scale != 0 ? c.scale : 1 / std::sqrt(static_cast<double>(c.D)), .softcap = c.softcap};
    fused = c.T_q == c.T_kv && c.q_start == c.kv_start;
    q_stride = aligned(c.H * c.D + (fused ? c.G * (c.D + c.width()) + 5 : 3));
    kv_stride = fused ? q_stride : aligned(c.G * (c.D + c.width()) + 1);
    s.q_batch_stride = q_layout().sample * q_stride;
    s.kv_batch_stride = fused ? s.q_batch_stride : kv_layout().sample * kv_stride;
    if (c.p > 0) {
      scalars->philox_step = 9;
      s.dropout = {.p = c.p,
                   .seed = 5,
                   .rng_stream = 3,
                   .scalars = scalars.view(),
                   .first_sample = 2,
                   .head0 = 1,
                   .heads = c.H + 3};
      s.dropout.sequence_length = std::max(c.q_start + c.T_q, c.kv_start + c.T_kv) + 3;
    }
    if (c.documents) {
      for (int64_t n = 0; n < c.B * c.T_q; ++n) {
        const int64_t i = c.q_start + n % c.T_q;
        docs.push_back(static_cast<int32_t>(document_of(i)));
        int64_t end = i + 1;
        while (end < 1000 && document_of(end) == document_of(i)) ++end;
        doc_ends.push_back(static_cast<int32_t>(end));
      }
      s.mask.doc_start = test::view_of(docs);
      if (!c.causal) s.mask.doc_end = test::view_of(doc_ends);
    }
    if (c.alibi) {
      for (int64_t h = 0; h < c.H; ++h) slopes.push_back(static_cast<A>(std::exp2(-1.5 * static_cast<double>(h) - 1)));
      s.scores.alibi_slopes = stat_view(slopes);
    }
    if (c.sinks) {
      fill(sinks, c.H);
      dsinks.assign(static_cast<size_t>(c.H), A(kUntouched));
      s.scores.sinks = view(sinks, 0, 1, c.H, c.H);
    }
    if (c.t5_buckets > 0) {  // rows are longer than H
      fill(t5_bias, c.t5_buckets * t5_stride());
      dt5_bias.assign(t5_bias.size(), A(kUntouched));
      const int64_t farthest = (c.t5_buckets - 1) * (c.t5_buckets - 1);
      for (int64_t n = c.causal ? 0 : -farthest; n <= farthest; ++n)
        t5_buckets.push_back(static_cast<int32_t>(AttentionReference::bucket_of(n, c.t5_buckets, c.causal)));
      s.scores.t5_bias = view(t5_bias, 0, c.t5_buckets, c.H, t5_stride());
      s.scores.t5_buckets = test::view_of(t5_buckets);
    }
    fill(qs, c.B * s.q_batch_stride);
    fill(kvs, fused ? 0 : c.B * s.kv_batch_stride);
    fill(dout, c.B * c.T_q * out_stride());
    const auto hide = [](S& x) { x = S(std::numeric_limits<float>::quiet_NaN()); };
    each_gap(qs, q_layout(), hide);
    each_gap(kvs, kv_layout(), hide);
    each_gap(dout, out_layout(), hide);
    each_gap(t5_bias, {.stride = t5_stride(), .rows = c.t5_buckets, .used = c.H}, hide);
    out.assign(dout.size(), S(kUntouched));
    lse.assign(static_cast<size_t>(c.B * c.H * c.T_q), A(0));
    dqs.assign(qs.size(), S(kUntouched));
    dkvs.assign(kvs.size(), S(kUntouched));
  }
  AttentionCall(const AttentionCall&) = delete;

  /// Where position i's document begins: short ones, and long ones that begin next to where a kernel's tiles do.
  static int64_t document_of(int64_t i) {
    if (i < 7) return 0;
    if (i < 40) return 7;
    if (i < 63) return i - i % 13;
    if (i < 96) return 63;
    return i < 128 ? 65 : 127;
  }
  void fill(test::DeviceVector<S>& values, int64_t n) {
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < n; ++i) values.push_back(S(normal(random)));
  }
  int64_t aligned(int64_t stride) const { return (stride + config.align - 1) / config.align * config.align; }
  int64_t out_stride() const { return aligned(config.H * config.width() + 1); }
  int64_t k_offset() const { return fused ? config.H * config.D : 0; }
  int64_t v_offset() const { return k_offset() + config.G * config.D; }
  int64_t t5_stride() const { return config.H + 2; }
  test::DeviceVector<S>& kv_store() { return fused ? qs : kvs; }
  test::DeviceVector<S>& dkv_store() { return fused ? dqs : dkvs; }
  MutView view(test::DeviceVector<S>& store, int64_t offset, int64_t rows, int64_t cols, int64_t stride) {
    return {.data = store.data() + offset, .dtype = kStorage, .rows = rows, .cols = cols, .stride = stride};
  }
  MutView q_view(test::DeviceVector<S>& x) { return view(x, 0, config.B * config.T_q, config.H * config.D, q_stride); }
  MutView k_view(test::DeviceVector<S>& x) {
    return view(x, k_offset(), config.B * config.T_kv, config.G * config.D, kv_stride);
  }
  MutView v_view(test::DeviceVector<S>& x) {
    return view(x, v_offset(), config.B * config.T_kv, config.G * config.width(), kv_stride);
  }
  MutView out_view(test::DeviceVector<S>& x) {
    return view(x, 0, config.B * config.T_q, config.H * config.width(), out_stride());
  }
  MutView stat_view(test::DeviceVector<A>& x) {
    return {.data = x.data(), .dtype = DTypeOf<A>::value, .rows = 1, .cols = std::ssize(x), .stride = std::ssize(x)};
  }

  MutView dt5_view() {
    return {.data = dt5_bias.data(),
            .dtype = DTypeOf<A>::value,
            .rows = config.t5_buckets,
            .cols = config.H,
            .stride = t5_stride()};
  }

  AttentionForward forward_args() {
    return {.q = q_view(qs),
            .k = k_view(kv_store()),
            .v = v_view(kv_store()),
            .out = out_view(out),
            .lse = stat_view(lse),
            .shape = shape};
  }
  AttentionBackward backward_args(GradMode mode) {
    return {.dout = out_view(dout),
            .q = q_view(qs),
            .k = k_view(kv_store()),
            .v = v_view(kv_store()),
            .out = out_view(out),
            .lse = stat_view(lse),
            .dq = q_view(dqs),
            .dk = k_view(dkv_store()),
            .dv = v_view(dkv_store()),
            .dsinks = dsinks.empty() ? MutView{} : stat_view(dsinks),
            .dt5_bias = dt5_bias.empty() ? MutView{} : dt5_view(),
            .mode = mode,
            .sinks_mode = mode,
            .t5_mode = mode,
            .shape = shape};
  }
  void forward() { forward(forward_args()); }
  void forward(const AttentionForward& args) {
    run([&](Backend& backend, Stream& stream) { backend.attention_forward(args, stream); });
  }
  void backward(GradMode mode = GradMode::kOverwrite) { backward(backward_args(mode)); }
  void backward(const AttentionBackward& args) {
    run([&](Backend& backend, Stream& stream) { backend.attention_backward(args, stream); });
  }
  template <typename Use>
  void run(const Use& use) {
    const std::unique_ptr<Backend> backend = under_test.make();
    const std::unique_ptr<Stream> stream = backend->make_stream();
    {  // scratch holds garbage
      const Tensor scratch =
          Tensor::allocate(backend->allocator(MemoryKind::kWorkspace), DType::kUInt8, {int64_t{1} << 20});
      backend->fill({.dst = scratch.mut_view(), .value = 0xff}, *stream);
      stream->synchronize();
    }
    use(*backend, *stream);
    stream->synchronize();
  }

  /// Rows of a strided store as contiguous doubles.
  std::vector<double> gather(const test::DeviceVector<S>& x, int64_t offset, int64_t batch_stride, int64_t stride,
                             int64_t rows, int64_t cols) const {
    std::vector<double> y;
    for (int64_t b = 0; b < config.B; ++b) {
      for (int64_t t = 0; t < rows; ++t) {
        for (int64_t c = 0; c < cols; ++c) {
          y.push_back(static_cast<double>(static_cast<A>(x[offset + b * batch_stride + t * stride + c])));
        }
      }
    }
    return y;
  }
  std::vector<double> q_rows(const test::DeviceVector<S>& x) const {
    return gather(x, 0, shape.q_batch_stride, q_stride, config.T_q, config.H * config.D);
  }
  std::vector<double> k_rows(const test::DeviceVector<S>& x) const {
    return gather(x, k_offset(), shape.kv_batch_stride, kv_stride, config.T_kv, config.G * config.D);
  }
  std::vector<double> v_rows(const test::DeviceVector<S>& x) const {
    return gather(x, v_offset(), shape.kv_batch_stride, kv_stride, config.T_kv, config.G * config.width());
  }
  std::vector<double> out_rows(const test::DeviceVector<S>& x) const {
    return gather(x, 0, config.T_q * out_stride(), out_stride(), config.T_q, config.H * config.width());
  }
  AttentionReference reference() {
    AttentionReference r{.shape = shape, .q = q_rows(qs), .k = k_rows(kv_store()), .v = v_rows(kv_store())};
    for (const A x : slopes) r.slopes.push_back(static_cast<double>(x));
    for (const S x : sinks) r.sinks.push_back(static_cast<double>(static_cast<A>(x)));
    r.biases = t5_rows(t5_bias);
    return r;
  }
  /// A table of biases or its gradient without what lies between its rows, [buckets, H].
  template <typename Store>
  std::vector<double> t5_rows(const Store& x) const {
    std::vector<double> y;
    for (int64_t n = 0; n < config.t5_buckets; ++n)
      for (int64_t h = 0; h < config.H; ++h) y.push_back(static_cast<double>(static_cast<A>(x[n * t5_stride() + h])));
    return y;
  }
  /// What the forward and the backward pass have written.
  bool same_bits(const AttentionCall& other) const {
    const auto same = [](const auto& a, const auto& b) {
      return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
    };
    return same(out, other.out) && same(lse, other.lse) && same(dqs, other.dqs) && same(dkvs, other.dkvs) &&
           same(dsinks, other.dsinks) && same(dt5_bias, other.dt5_bias);
  }
  /// Where the rows of a store lie: `used` elements of every `stride`, in the first `rows` of a sample.
  struct Layout {
    int64_t stride, rows, used;
    int64_t sample = rows;  ///< rows and what is left free behind them
  };
  Layout q_layout() const {
    const int64_t keys = fused ? config.G * (config.D + config.width()) : 0;
    return {.stride = q_stride, .rows = config.T_q, .used = config.H * config.D + keys, .sample = config.T_q + 2};
  }
  Layout kv_layout() const {
    return {.stride = kv_stride,
            .rows = config.T_kv,
            .used = config.G * (config.D + config.width()),
            .sample = config.T_kv + 3};
  }
  Layout out_layout() const { return {.stride = out_stride(), .rows = config.T_q, .used = config.H * config.width()}; }
  /// `use` on every element that belongs to no row.
  template <typename Store, typename Use>
  static void each_gap(Store& x, const Layout& at, const Use& use) {
    for (int64_t i = 0; i < std::ssize(x); ++i)
      if (i / at.stride % at.sample >= at.rows || i % at.stride >= at.used) use(x[i]);
  }
  /// Everything between the rows and between the samples is as it was.
  static void expect_gaps_untouched(const test::DeviceVector<S>& x, const Layout& at) {
    int64_t touched = 0;
    each_gap(x, at, [&](const S& value) { touched += static_cast<A>(value) == A(kUntouched) ? 0 : 1; });
    ASSERT_EQ(touched, 0) << "elements of no row";
  }

  AttentionCase config;
  test::BackendUnderTest under_test = test::backends_under_test().front();
  std::mt19937 random;
  AttentionShape shape;
  test::DeviceStruct<StepScalars> scalars;
  test::Integers docs, doc_ends, t5_buckets;
  bool fused = false;
  int64_t q_stride = 0, kv_stride = 0;
  test::DeviceVector<S> qs, kvs, dout, out, dqs, dkvs, sinks, t5_bias;
  test::DeviceVector<A> lse, slopes, dsinks, dt5_bias;
};

/// Rounding bounds: u a unit roundoff of the arithmetic, `size` the sum of absolute terms. A score errs by at most
/// (D + 4) u of its size and exp2 turns that into a relative error; the sum adds a u a term. Tensor cores multiply
/// probabilities and their gradients as bf16, which is one more rounding of each term.
template <typename S>
struct AttentionBound {
  double unit, store, operand;
  double relative;
  AttentionBound(const AttentionReference& r, int64_t terms, const test::BackendUnderTest& under_test) {
    const bool fp64 = std::is_same_v<S, double>;
    unit = fp64 ? 0x1p-53 : 0x1p-24;
    store = std::is_same_v<S, BF16> ? 0x1p-8 : unit;
    const auto D = static_cast<double>(std::max(r.shape.D, r.width()));
    const double score =
        2 * (D + 4) * r.score_size + 4 * (r.score_size + std::log(1.0 + static_cast<double>(r.shape.T_kv)));
    operand = std::is_same_v<S, BF16> && under_test.bf16_probabilities ? store : 0;
    relative = unit * (2 * score + 2 * D + static_cast<double>(r.shape.T_kv + terms) + 16);
  }
  void expect(const std::vector<double>& got, const std::vector<double>& want, const std::vector<double>& size,
              const char* name) const {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      const double bound = (relative + operand) * size[i] + store * (1 + relative) * std::abs(want[i]) + 1e-37;
      ASSERT_LE(std::abs(got[i] - want[i]), bound) << name << "[" << i << "] want " << want[i] << " got " << got[i];
    }
  }
};

/// Forward and backward of a case on a backend, within what rounding explains; nothing else is written.
template <typename S>
void check_against_reference(const AttentionCase& c, const test::BackendUnderTest& under_test) {
  SCOPED_TRACE(::testing::PrintToString(c));
  AttentionCall<S> run(c);
  run.under_test = under_test;
  AttentionReference reference = run.reference();
  reference.forward();
  run.forward();
  const AttentionBound<S> bound(reference, 0, under_test);
  bound.expect(run.out_rows(run.out), reference.out, reference.out_size, "out");
  run.expect_gaps_untouched(run.out, run.out_layout());
  for (size_t i = 0; i < run.lse.size(); ++i) {
    const double want = reference.lse[i], got = static_cast<double>(run.lse[i]);
    if (std::isinf(want)) {
      ASSERT_EQ(got, want) << "lse[" << i << "]";
    } else {
      ASSERT_LE(std::abs(got - want), bound.relative + bound.unit * std::abs(want)) << "lse[" << i << "]";
    }
  }
  reference.backward(run.out_rows(run.dout), run.out_rows(run.out));
  run.backward();
  const AttentionBound<S> gradient(reference, c.T_q * c.H / c.G, under_test);
  gradient.expect(run.q_rows(run.dqs), reference.dq, reference.dq_size, "dq");
  gradient.expect(run.k_rows(run.dkv_store()), reference.dk, reference.dk_size, "dk");
  gradient.expect(run.v_rows(run.dkv_store()), reference.dv, reference.dv_size, "dv");
  run.expect_gaps_untouched(run.dqs, run.q_layout());
  if (!run.fused) run.expect_gaps_untouched(run.dkvs, run.kv_layout());
  if (c.sinks) {  // the terms of a sum over samples and queries, and what lse errs by
    const AttentionBound<S> sinks(reference, c.B * c.T_q, under_test);
    const std::vector<double> got(run.dsinks.begin(), run.dsinks.end());
    sinks.expect(got, reference.dsinks, reference.dsinks_size, "dsinks");
  }
  if (c.t5_buckets > 0) {  // no tensor core multiplies dS for it
    const AttentionBound<S> biases(reference, c.B * c.T_q, under_test);
    biases.expect(run.t5_rows(run.dt5_bias), reference.dbiases, reference.dbiases_size, "dt5_bias");
    for (int64_t i = 0; i < std::ssize(run.dt5_bias); ++i) {
      if (i % run.t5_stride() < c.H) continue;
      ASSERT_EQ(static_cast<double>(run.dt5_bias[i]), AttentionCall<S>::kUntouched) << "between the rows, " << i;
    }
  }
}

}  // namespace ashlar::testing
