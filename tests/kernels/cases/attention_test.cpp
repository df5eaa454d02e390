#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "core/tensor/tensor.h"
#include "kernels/make_backend.h"
#include "tests/kernels/cases/attention_reference.h"
#include "tests/support/every_backend.h"

namespace ashlar {
namespace {

using testing::AttentionReference;

struct Case {
  int64_t B = 1, T_q = 1, T_kv = 1, H = 1, G = 1, D = 4;
  int64_t q_start = 0, kv_start = 0;
  double p = 0;
  bool documents = false;
  double scale = 0;  // 0: 1/sqrt(D)
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "B" << c.B << " T_q" << c.T_q << " T_kv" << c.T_kv << " H" << c.H << " G" << c.G << " D" << c.D
             << " q_start" << c.q_start << " kv_start" << c.kv_start << " p" << c.p << " documents" << c.documents;
}

/// The arrays of one call in storage dtype S: q, k, v (and their gradients) lie in one fused row when the queries are
/// the keys' own tokens, else apart; rows are longer than what is used, and the rest must stay as it is.
template <typename S>
struct Call {
  using A = std::conditional_t<std::is_same_v<S, double>, double, float>;
  static constexpr DType kStorage = DTypeOf<S>::value;
  static constexpr float kUntouched = 77;

  explicit Call(const Case& c, unsigned seed = 1) : config(c), random(seed) {
    AttentionShape& s = shape;
    s = {.B = c.B,
         .T_q = c.T_q,
         .T_kv = c.T_kv,
         .H = c.H,
         .G = c.G,
         .D = c.D,
         .q_start = c.q_start,
         .kv_start = c.kv_start};
    s.variant.scale = c.scale != 0 ? c.scale : 1 / std::sqrt(static_cast<double>(c.D));
    fused = c.T_q == c.T_kv && c.q_start == c.kv_start;
    q_stride = c.H * c.D + (fused ? 2 * c.G * c.D + 5 : 3);
    kv_stride = fused ? q_stride : 2 * c.G * c.D + 1;
    s.q_batch_stride = (c.T_q + 2) * q_stride;
    s.kv_batch_stride = fused ? s.q_batch_stride : (c.T_kv + 3) * kv_stride;
    if (c.p > 0) {
      scalars->philox_step = 9;
      s.dropout = {
          .p = c.p, .seed = 5, .site = 3, .scalars = scalars.view(), .first_sample = 2, .head0 = 1, .heads = c.H + 3};
      s.dropout.sequence_length = std::max(c.q_start + c.T_q, c.kv_start + c.T_kv) + 3;
    }
    if (c.documents) {
      for (int64_t n = 0; n < c.B * c.T_q; ++n) {
        const int64_t i = c.q_start + n % c.T_q;
        docs.push_back(static_cast<int32_t>(i < 7 ? 0 : i < 40 ? 7 : i < 90 ? i - i % 13 : 66));
      }
      s.doc_start = test::view_of(docs);
    }
    fill(qs, c.B * s.q_batch_stride);
    fill(kvs, fused ? 0 : c.B * s.kv_batch_stride);
    fill(dout, c.B * c.T_q * out_stride());
    out.assign(dout.size(), S(kUntouched));
    lse.assign(static_cast<size_t>(c.B * c.H * c.T_q), A(0));
    dqs.assign(qs.size(), S(kUntouched));
    dkvs.assign(kvs.size(), S(kUntouched));
  }
  Call(const Call&) = delete;

  void fill(test::DeviceVector<S>& values, int64_t n) {
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < n; ++i) values.push_back(S(normal(random)));
  }
  int64_t out_stride() const { return config.H * config.D + 1; }
  int64_t k_offset() const { return fused ? config.H * config.D : 0; }
  int64_t v_offset() const { return k_offset() + config.G * config.D; }
  test::DeviceVector<S>& kv_store() { return fused ? qs : kvs; }
  test::DeviceVector<S>& dkv_store() { return fused ? dqs : dkvs; }
  MutView view(test::DeviceVector<S>& store, int64_t offset, int64_t rows, int64_t cols, int64_t stride) {
    return {.data = store.data() + offset, .dtype = kStorage, .rows = rows, .cols = cols, .stride = stride};
  }
  MutView q_view(test::DeviceVector<S>& x) { return view(x, 0, config.B * config.T_q, config.H * config.D, q_stride); }
  MutView kv_view(test::DeviceVector<S>& x, int64_t offset) {
    return view(x, offset, config.B * config.T_kv, config.G * config.D, kv_stride);
  }
  MutView out_view(test::DeviceVector<S>& x) {
    return view(x, 0, config.B * config.T_q, config.H * config.D, out_stride());
  }
  MutView stat_view(test::DeviceVector<A>& x) {
    return {.data = x.data(), .dtype = DTypeOf<A>::value, .rows = 1, .cols = std::ssize(x), .stride = std::ssize(x)};
  }

  AttentionForward forward_args() {
    return {.q = q_view(qs),
            .k = kv_view(kv_store(), k_offset()),
            .v = kv_view(kv_store(), v_offset()),
            .out = out_view(out),
            .lse = stat_view(lse),
            .shape = shape};
  }
  AttentionBackward backward_args(GradMode mode) {
    return {.dout = out_view(dout),
            .q = q_view(qs),
            .k = kv_view(kv_store(), k_offset()),
            .v = kv_view(kv_store(), v_offset()),
            .out = out_view(out),
            .lse = stat_view(lse),
            .dq = q_view(dqs),
            .dk = kv_view(dkv_store(), k_offset()),
            .dv = kv_view(dkv_store(), v_offset()),
            .mode = mode,
            .shape = shape};
  }
  void forward(int threads = 1) { forward(forward_args(), threads); }
  void forward(const AttentionForward& args, int threads) {
    run(threads, [&](Backend& backend, Stream& stream) { backend.attention_forward(args, stream); });
  }
  void backward(GradMode mode = GradMode::kOverwrite, int threads = 1) { backward(backward_args(mode), threads); }
  void backward(const AttentionBackward& args, int threads = 1) {
    run(threads, [&](Backend& backend, Stream& stream) { backend.attention_backward(args, stream); });
  }
  /// On the given number of the cpu's threads, or on the backend of this call.
  template <typename Use>
  void run(int threads, const Use& use) {
    const std::unique_ptr<Backend> backend =
        threads > 1 ? kernels::make_backend({.threads = threads}) : under_test.make();
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
  std::vector<double> kv_rows(const test::DeviceVector<S>& x, int64_t offset) const {
    return gather(x, offset, shape.kv_batch_stride, kv_stride, config.T_kv, config.G * config.D);
  }
  std::vector<double> out_rows(const test::DeviceVector<S>& x) const {
    return gather(x, 0, config.T_q * out_stride(), out_stride(), config.T_q, config.H * config.D);
  }
  AttentionReference reference() {
    return {
        .shape = shape, .q = q_rows(qs), .k = kv_rows(kv_store(), k_offset()), .v = kv_rows(kv_store(), v_offset())};
  }
  /// Everything between the rows is as it was.
  void expect_gaps_untouched(const test::DeviceVector<S>& x, int64_t stride, int64_t used) const {
    for (int64_t n = 0; n * stride < std::ssize(x); ++n) {
      for (int64_t c = used; c < stride; ++c) {
        ASSERT_EQ(static_cast<A>(x[n * stride + c]), A(kUntouched)) << "row " << n << " column " << c;
      }
    }
  }

  Case config;
  test::BackendUnderTest under_test = test::backends_under_test().front();
  std::mt19937 random;
  AttentionShape shape;
  test::DeviceStruct<StepScalars> scalars;
  test::Integers docs;
  bool fused = false;
  int64_t q_stride = 0, kv_stride = 0;
  test::DeviceVector<S> qs, kvs, dout, out, dqs, dkvs;
  test::DeviceVector<A> lse;
};

/// Rounding bounds: u a unit roundoff of the arithmetic, `size` the sum of absolute terms. A score errs by at most
/// (D + 4) u of its size and exp2 turns that into a relative error; the sum adds a u a term.
template <typename S>
struct Bound {
  double unit, store;
  double relative;
  Bound(const AttentionReference& r, int64_t terms) {
    const bool fp64 = std::is_same_v<S, double>;
    unit = fp64 ? 0x1p-53 : 0x1p-24;
    store = std::is_same_v<S, BF16> ? 0x1p-8 : unit;
    const auto D = static_cast<double>(r.shape.D);
    const double score =
        2 * (D + 4) * r.score_size + 4 * (r.score_size + std::log(1.0 + static_cast<double>(r.shape.T_kv)));
    relative = unit * (2 * score + 2 * D + static_cast<double>(r.shape.T_kv + terms) + 16);
  }
  void expect(const std::vector<double>& got, const std::vector<double>& want, const std::vector<double>& size,
              const char* name) const {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      const double bound = relative * size[i] + store * (1 + relative) * std::abs(want[i]) + 1e-37;
      ASSERT_LE(std::abs(got[i] - want[i]), bound) << name << "[" << i << "] want " << want[i] << " got " << got[i];
    }
  }
};

template <typename S>
void check_against_reference(const Case& c, const test::BackendUnderTest& under_test) {
  SCOPED_TRACE(::testing::PrintToString(c));
  Call<S> run(c);
  run.under_test = under_test;
  AttentionReference reference = run.reference();
  reference.forward();
  run.forward();
  const Bound<S> bound(reference, 0);
  bound.expect(run.out_rows(run.out), reference.out, reference.out_size, "out");
  run.expect_gaps_untouched(run.out, run.out_stride(), c.H * c.D);
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
  const Bound<S> gradient(reference, c.T_q * c.H / c.G);
  gradient.expect(run.q_rows(run.dqs), reference.dq, reference.dq_size, "dq");
  gradient.expect(run.kv_rows(run.dkv_store(), run.k_offset()), reference.dk, reference.dk_size, "dk");
  gradient.expect(run.kv_rows(run.dkv_store(), run.v_offset()), reference.dv, reference.dv_size, "dv");
  run.expect_gaps_untouched(run.dqs, run.q_stride, c.H * c.D + (run.fused ? 2 * c.G * c.D : 0));
  if (!run.fused) run.expect_gaps_untouched(run.dkvs, run.kv_stride, 2 * c.G * c.D);
}

std::vector<Case> grid() {
  std::vector<Case> cases;
  for (const int64_t T : {1, 3, 29, 33, 64, 65, 130}) {
    for (const int64_t D : {4, 12, 64}) cases.push_back({.B = 2, .T_q = T, .T_kv = T, .H = 2, .G = 2, .D = D});
  }
  for (const int64_t D : {16, 80, 96, 128, 200, 256}) cases.push_back({.T_q = 33, .T_kv = 33, .H = 2, .G = 1, .D = D});
  for (const int64_t G : {1, 2, 4}) cases.push_back({.B = 2, .T_q = 70, .T_kv = 70, .H = 4, .G = G, .D = 16});
  cases.push_back({.T_q = 257, .T_kv = 257, .H = 1, .G = 1, .D = 64});
  // a cache: one query or a chunk against earlier keys; keys that begin later than the first queries
  for (const int64_t T_q : {1, 5, 66}) {
    cases.push_back({.B = 2, .T_q = T_q, .T_kv = T_q + 70, .H = 4, .G = 2, .D = 16, .q_start = 70});
    cases.push_back({.T_q = T_q, .T_kv = 200, .H = 2, .G = 1, .D = 12, .q_start = 97});
  }
  cases.push_back({.T_q = 70, .T_kv = 90, .H = 2, .G = 2, .D = 16, .q_start = 0, .kv_start = 31});
  cases.push_back({.T_q = 70, .T_kv = 90, .H = 2, .G = 2, .D = 16, .q_start = 130, .kv_start = 40, .p = 0.2});
  // sequence_length 204: a row of dropout begins a block, the first key does not
  cases.push_back({.T_q = 70, .T_kv = 90, .H = 2, .G = 2, .D = 16, .q_start = 131, .kv_start = 42, .p = 0.2});
  cases.push_back({.B = 2, .T_q = 140, .T_kv = 140, .H = 2, .G = 1, .D = 16, .documents = true});
  cases.push_back({.T_q = 66, .T_kv = 136, .H = 2, .G = 1, .D = 12, .q_start = 70, .documents = true});
  for (const int64_t T : {5, 33, 65, 129}) {
    cases.push_back({.B = 2, .T_q = T, .T_kv = T, .H = 4, .G = 2, .D = 12, .p = 0.3});
  }
  cases.push_back({.T_q = 100, .T_kv = 100, .H = 2, .G = 1, .D = 16, .p = 0.1, .documents = true});
  cases.push_back({.T_q = 40, .T_kv = 40, .D = 16, .scale = -0.7});
  return cases;
}

class AttentionOn : public ::testing::TestWithParam<test::BackendUnderTest> {
 protected:
  template <typename S>
  static void check_grid() {
    const int64_t one_in = testing::long_form() ? 1 : GetParam().one_in;
    int64_t n = 0;
    for (const Case& c : grid()) {
      if (++n % one_in == 0) check_against_reference<S>(c, GetParam());
    }
  }
};

TEST_P(AttentionOn, Fp32EqualsReference) { check_grid<float>(); }
TEST_P(AttentionOn, Bf16EqualsReference) { check_grid<BF16>(); }
TEST_P(AttentionOn, Fp64EqualsReference) { check_grid<double>(); }
INSTANTIATE_TEST_SUITE_P(Every, AttentionOn, ::testing::ValuesIn(test::backends_under_test()),
                         [](const auto& at) { return at.param.name; });

TEST(Attention, GradientsEqualFiniteDifferences) {
  for (const double p : {0.0, 0.25}) {
    Call<double> run({.B = 1, .T_q = 67, .T_kv = 67, .H = 4, .G = 2, .D = 12, .p = p, .documents = p > 0});
    run.forward();
    run.backward();
    const auto loss = [&] {
      run.forward();
      const std::vector<double> out = run.out_rows(run.out), weight = run.out_rows(run.dout);
      double sum = 0;
      for (size_t i = 0; i < out.size(); ++i) sum += out[i] * weight[i];
      return sum;
    };
    const int64_t used = (run.config.H + 2 * run.config.G) * run.config.D;
    for (int64_t n = 0; n < 150; ++n) {
      const int64_t at = n * 7 % run.config.T_q * run.q_stride + n * 31 % used;  // an element of q, k or v
      const double value = run.qs[at], step = 1e-5;
      run.qs[at] = value + step;
      const double above = loss();
      run.qs[at] = value - step;
      const double below = loss();
      run.qs[at] = value;
      EXPECT_NEAR(run.dqs[at], (above - below) / (2 * step), 1e-6) << "element " << at;
    }
  }
}

TEST(Attention, ThreadCountChangesNoBit) {
  const std::vector<Case> cases = {{.B = 3, .T_q = 300, .T_kv = 300, .H = 1, .G = 1, .D = 16},
                                   {.B = 1, .T_q = 300, .T_kv = 300, .H = 4, .G = 1, .D = 64, .p = 0.1},
                                   {.B = 1, .T_q = 150, .T_kv = 220, .H = 2, .G = 1, .D = 12, .q_start = 70}};
  for (const Case& c : cases) {
    SCOPED_TRACE(::testing::PrintToString(c));
    Call<float> one(c);
    one.forward(1);
    one.backward(GradMode::kOverwrite, 1);
    for (const int threads : {2, 3, 7}) {
      Call<float> many(c);
      many.forward(threads);
      many.backward(GradMode::kOverwrite, threads);
      const auto same = [](const auto& a, const auto& b) {
        return a.empty() ? 0 : std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0]));
      };
      EXPECT_EQ(same(one.out, many.out), 0) << threads;
      EXPECT_EQ(same(one.lse, many.lse), 0) << threads;
      EXPECT_EQ(same(one.dqs, many.dqs), 0) << threads;
      EXPECT_EQ(same(one.dkvs, many.dkvs), 0) << threads;
    }
  }
}

TEST(Attention, NoQueryDependsOnLaterKeys) {
  const Case c{.B = 1, .T_q = 200, .T_kv = 200, .H = 2, .G = 1, .D = 16};
  Call<float> run(c);
  run.forward();
  const std::vector<double> before = run.out_rows(run.out);
  for (const int64_t t : {0, 63, 64, 130}) {
    Call<float> moved(c);
    for (int64_t n = t + 1; n < c.T_kv; ++n) {
      for (int64_t x = moved.k_offset(); x < moved.q_stride; ++x) moved.qs[n * moved.q_stride + x] *= -50;
    }
    moved.forward();
    const std::vector<double> after = moved.out_rows(moved.out);
    for (int64_t i = 0; i < (t + 1) * c.H * c.D; ++i) ASSERT_EQ(before[i], after[i]) << "changed from token " << t + 1;
    EXPECT_NE(before[(t + 1) * c.H * c.D], after[(t + 1) * c.H * c.D]);
  }
}

/// The first rows of a run as a call of their own.
TEST(Attention, CacheInChunksEqualsWhole) {
  const Case c{.B = 1, .T_q = 150, .T_kv = 150, .H = 4, .G = 2, .D = 16};
  Call<double> whole(c);
  whole.forward();
  const std::vector<double> want = whole.out_rows(whole.out);
  for (const int64_t chunk : {1, 7, 64, 100}) {
    test::DeviceVector<double> out(c.H * c.D * c.T_q), lse(c.H * c.T_q);
    for (int64_t t = 0; t < c.T_q; t += chunk) {
      const int64_t n = std::min(chunk, c.T_q - t);
      AttentionForward args = whole.forward_args();
      test::DeviceVector<double> chunk_lse(c.H * n);
      args.shape.T_q = n;
      args.shape.q_start = t;
      args.shape.T_kv = t + n;
      args.q.data = whole.qs.data() + t * whole.q_stride;
      args.q.rows = n;
      args.k.rows = args.v.rows = t + n;
      args.out = {.data = out.data() + t * c.H * c.D,
                  .dtype = DType::kFloat64,
                  .rows = n,
                  .cols = c.H * c.D,
                  .stride = c.H * c.D};
      args.lse = {.data = chunk_lse.data(), .dtype = DType::kFloat64, .rows = 1, .cols = c.H * n, .stride = c.H * n};
      whole.forward(args, 2);
      for (int64_t h = 0; h < c.H; ++h) {
        for (int64_t i = 0; i < n; ++i) lse[h * c.T_q + t + i] = chunk_lse[h * n + i];
      }
    }
    for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], want[i], 1e-13);
    for (size_t i = 0; i < lse.size(); ++i) ASSERT_NEAR(lse[i], whole.lse[i], 1e-13);
  }
}

TEST(Attention, DocumentsEqualSeparateCalls) {
  const std::vector<int32_t> starts = {0, 1, 50, 64, 131, 180};  // a document of one token, one that ends at a block
  const Case c{.B = 1, .T_q = 180, .T_kv = 180, .H = 2, .G = 1, .D = 12};
  Call<double> packed(c);
  for (size_t n = 0; n + 1 < starts.size(); ++n)
    packed.docs.insert(packed.docs.end(), starts[n + 1] - starts[n], starts[n]);
  packed.shape.doc_start = test::view_of(packed.docs);
  packed.forward();
  packed.backward();
  for (size_t n = 0; n + 1 < starts.size(); ++n) {
    const int64_t first = starts[n], length = starts[n + 1] - first;
    Call<double> alone({.B = 1, .T_q = length, .T_kv = length, .H = 2, .G = 1, .D = 12});
    std::copy_n(packed.qs.begin() + first * packed.q_stride, length * packed.q_stride, alone.qs.begin());
    std::copy_n(packed.dout.begin() + first * packed.out_stride(), length * packed.out_stride(), alone.dout.begin());
    alone.forward();
    alone.backward();
    for (int64_t i = 0; i < length * alone.out_stride(); ++i) {
      ASSERT_NEAR(packed.out[first * alone.out_stride() + i], alone.out[i], 1e-13);
    }
    for (int64_t i = 0; i < length * alone.q_stride; ++i) {
      ASSERT_NEAR(packed.dqs[first * alone.q_stride + i], alone.dqs[i], 1e-12);
    }
  }
}

template <typename S>
void check_accumulate(double unit) {
  Call<S> run({.B = 2, .T_q = 70, .T_kv = 90, .H = 4, .G = 2, .D = 20, .q_start = 20});
  run.forward();
  run.backward();
  Call<S> more({.B = 2, .T_q = 70, .T_kv = 90, .H = 4, .G = 2, .D = 20, .q_start = 20});
  more.forward();
  more.fill(more.dqs = {}, std::ssize(run.dqs));
  more.fill(more.dkvs = {}, std::ssize(run.dkvs));
  const auto before_q = more.q_rows(more.dqs), before_kv = more.kv_rows(more.dkvs, 0);
  more.backward(GradMode::kAccumulate);
  const auto compare = [&](const std::vector<double>& before, const std::vector<double>& added,
                           const std::vector<double>& sum) {
    for (size_t i = 0; i < sum.size(); ++i) {  // one rounding of the addend, one of the sum
      ASSERT_NEAR(sum[i], before[i] + added[i], 2 * unit * (std::abs(sum[i]) + std::abs(added[i])));
    }
  };
  compare(before_q, run.q_rows(run.dqs), more.q_rows(more.dqs));
  compare(before_kv, run.kv_rows(run.dkvs, 0), more.kv_rows(more.dkvs, 0));
}
TEST(Attention, AccumulateIsOverwritePlusAdd) {
  check_accumulate<float>(0x1p-24);
  check_accumulate<BF16>(0x1p-8);
  check_accumulate<double>(0x1p-53);
}

TEST(Attention, SkipWritesNothingAndGradientsMayBeAbsent) {
  Call<float> run({.B = 1, .T_q = 70, .T_kv = 70, .H = 2, .G = 1, .D = 16});
  run.forward();
  run.backward(GradMode::kSkip);
  EXPECT_THAT(run.dqs, ::testing::Each(Call<float>::kUntouched));
  run.backward();
  Call<float> part({.B = 1, .T_q = 70, .T_kv = 70, .H = 2, .G = 1, .D = 16});
  part.forward();
  for (const int threads : {1, 2}) {
    for (const bool keep_dq : {true, false}) {
      std::fill(part.dqs.begin(), part.dqs.end(), Call<float>::kUntouched);
      AttentionBackward args = part.backward_args(GradMode::kOverwrite);
      if (keep_dq) {
        args.dk = args.dv = {};
      } else {
        args.dq = {};
      }
      part.backward(args, threads);
      for (int64_t n = 0; n < 70; ++n) {
        for (int64_t x = 0; x < part.q_stride - 5; ++x) {
          const bool written = (x < part.k_offset()) == keep_dq;
          ASSERT_EQ(part.dqs[n * part.q_stride + x],
                    written ? run.dqs[n * part.q_stride + x] : Call<float>::kUntouched);
        }
      }
    }
  }
}

TEST(Attention, GivenDeltaIsUsed) {
  Call<double> run({.B = 2, .T_q = 70, .T_kv = 70, .H = 2, .G = 1, .D = 16});
  run.forward();
  run.backward();
  test::DeviceVector<double> delta(run.lse.size()), gradients = run.dqs;
  const std::vector<double> out = run.out_rows(run.out), dout = run.out_rows(run.dout);
  for (int64_t n = 0; n < 2 * 70 * 2; ++n) {
    const int64_t b = n / 140, t = n / 2 % 70, h = n % 2;
    for (int64_t d = 0; d < 16; ++d) delta[(b * 2 + h) * 70 + t] += out[n * 16 + d] * dout[n * 16 + d];
  }
  AttentionBackward args = run.backward_args(GradMode::kOverwrite);
  args.delta = run.stat_view(delta);
  args.out = {};
  run.backward(args, 1);
  for (size_t i = 0; i < gradients.size(); ++i) ASSERT_NEAR(run.dqs[i], gradients[i], 1e-13);
}

TEST(Attention, NonFiniteInputsStayVisible) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Call<float> run({.B = 1, .T_q = 100, .T_kv = 100, .H = 1, .G = 1, .D = 16});
    run.qs[70 * run.q_stride + run.k_offset() + 3] = bad;
    run.forward();
    for (int64_t t = 0; t < 70; ++t) ASSERT_TRUE(std::isfinite(run.out[t * run.out_stride()])) << t;
    int64_t shown = 0;
    for (int64_t t = 70; t < 100; ++t) shown += std::isfinite(run.out[t * run.out_stride()]) ? 0 : 1;
    // an infinite key is a score of either sign; minus infinity is a legitimate probability of zero
    EXPECT_GE(shown, std::isnan(bad) ? 30 : 1);
  }
}

TEST(Attention, UnsupportedFieldsAreRefusedByName) {
  const std::unique_ptr<Backend> backend = kernels::make_backend({.threads = 1});
  const std::unique_ptr<Stream> stream = backend->make_stream();
  const std::vector<float> table(64, 0.0F);
  const ConstView view{table.data(), DType::kFloat32, 1, 64, 64};
  const auto message = [&](int64_t D, const auto& change) -> std::string {
    Call<float> run({.T_q = 4, .T_kv = 4, .D = D});
    std::string both;
    for (const bool forward : {true, false}) {
      AttentionForward f = run.forward_args();
      AttentionBackward b = run.backward_args(GradMode::kOverwrite);
      change(f.shape);
      change(b.shape);
      try {
        forward ? backend->attention_forward(f, *stream) : backend->attention_backward(b, *stream);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::kInput);
        both = forward ? error.what() : both;
        continue;
      }
      return "accepted";
    }
    return both;
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(message(4, [](AttentionShape& s) { s.variant.window = 16; }), HasSubstr("window = 16"));
  EXPECT_THAT(message(4, [](AttentionShape& s) { s.variant.softcap = 30; }), HasSubstr("softcap = 30"));
  EXPECT_THAT(message(4, [&](AttentionShape& s) { s.alibi_slopes = view; }), HasSubstr("alibi_slopes"));
  EXPECT_THAT(message(4, [&](AttentionShape& s) { s.t5_bias = view; }), HasSubstr("t5_bias"));
  EXPECT_THAT(message(6, [](AttentionShape&) {}), HasSubstr("got 6"));
  EXPECT_THAT(message(260, [](AttentionShape&) {}), HasSubstr("got 260"));
}

}  // namespace
}  // namespace ashlar
