// Rotary positions in place: only where nobody else reads what is overwritten, and with the bits of a copy.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "core/ops/rope.h"
#include "kernels/make_backend.h"
#include "tests/parallel/model_fixture.h"

namespace ashlar::testing {
namespace {

constexpr int64_t kRows = 5, kWidth = 12, kOther = 7;  // q, k and v of one head; columns beside them
constexpr ValueInfo kQkvInfo{.op = "qkv", .placement = Placement::kColumnsSplit};

class RopeInPlace : public ::testing::TestWithParam<DType> {
 protected:
  RopeInPlace()
      : backend_(kernels::make_backend({.threads = 1})),
        stream_(backend_->make_stream()),
        tape_(*backend_, *stream_),
        ctx_{.backend = *backend_, .stream = *stream_, .tape = &tape_, .dtype = GetParam(), .scalars = {}},
        tables_(ops::RopeTables::make(ctx_, kRows, {1.0, 0.1})),
        positions_(ctx_.empty(DType::kInt32, {kRows})) {
    const std::vector<int32_t> positions = {0, 1, 2, 3, 4};
    backend_->write(positions.data(), positions_.mut_view(), *stream_);
  }

  Tensor random(int64_t cols, uint64_t seed) {
    const Tensor t = ctx_.empty(ctx_.dtype, {kRows, cols});
    backend_->random_fill({.dst = t.mut_view(), .seed = seed, .global_cols = cols}, *stream_);
    return t;
  }
  Var rotate(Var x) {
    return ops::rope(ctx_, std::move(x), positions_.view(), tables_,
                     {.heads = 3, .rotated_heads = 2, .head_dim = 4, .dims = 4});
  }
  int64_t used() const { return backend_->allocator(MemoryKind::kActivations).used_bytes(); }
  std::vector<double> host(const Tensor& t) {
    const Tensor packed = ctx_.empty(t.dtype(), t.shape());  // a slice has gaps between its rows
    backend_->copy({.src = t.view(), .dst = packed.mut_view()}, *stream_);
    return host_values(ctx_, packed);
  }
  /// Of a value that somebody else holds, or nobody: result, gradient.
  std::pair<std::vector<double>, std::vector<double>> of(bool held) {
    Tape tape(*backend_, *stream_);
    ctx_.tape = &tape;
    Var x = tape.leaf(random(kWidth, 1), kQkvInfo);
    const Var leaf = x.without_value();
    const void* const at = x.value.view().data;
    const Tensor other = held ? x.value : Tensor();
    const std::vector<double> before = host(x.value);
    const int64_t bytes = used();
    const Var y = rotate(std::move(x));
    EXPECT_EQ(y.value.view().data == at, !held);
    EXPECT_EQ(used() == bytes, !held);
    if (held) {
      EXPECT_EQ(host(other), before);
    }
    EXPECT_NE(host(y.value), before);
    tape.seed(y, random(kWidth, 2));
    tape.backward();
    return {host(y.value), host(tape.leaf_grad(leaf))};
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
  Tape tape_;
  Ctx ctx_;
  ops::RopeTables tables_;
  Tensor positions_;
};

TEST_P(RopeInPlace, OverwritesWhatNobodyElseHoldsWithTheBitsOfACopy) { EXPECT_EQ(of(false), of(true)); }

TEST_P(RopeInPlace, ASecondReaderGetsWhatWasThereAndBothGradientsCount) {
  const auto gradient = [&](bool held) {
    Tape tape(*backend_, *stream_);
    ctx_.tape = &tape;
    Var x = tape.leaf(random(kWidth, 1), kQkvInfo);
    const Var leaf = x.without_value();
    const Tensor other = held ? x.value : Tensor();
    const Var a = rotate(x), b = rotate(std::move(x));  // only the second one is the last
    EXPECT_EQ(host(a.value), host(b.value));
    tape.seed(a, random(kWidth, 2));
    tape.seed(b, random(kWidth, 3));
    tape.backward();
    return host(tape.leaf_grad(leaf));
  };
  EXPECT_EQ(gradient(false), gradient(true));
}

TEST_P(RopeInPlace, SlicesOfOneProductAreOverwrittenApart) {
  const auto run = [&](bool held) {
    Tape tape(*backend_, *stream_);
    ctx_.tape = &tape;
    Var x = tape.leaf(random(kWidth + kOther, 1), kQkvInfo);
    const Var leaf = x.without_value();
    const Tensor other = held ? x.value : Tensor();
    std::vector<Var> parts = tape.split_columns(std::move(x), {kWidth, kOther});
    const void* const at = parts[0].value.view().data;
    const std::vector<double> beside = host(parts[1].value);
    const Var y = rotate(std::move(parts[0]));
    EXPECT_EQ(y.value.view().data == at, !held);
    EXPECT_EQ(host(parts[1].value), beside);
    const std::vector<double> value = host(y.value);
    tape.seed(y, random(kWidth, 2));
    tape.seed(parts[1], random(kOther, 3));
    tape.backward();
    return std::pair(value, host(tape.leaf_grad(leaf)));
  };
  EXPECT_EQ(run(false), run(true));
}

TEST_P(RopeInPlace, AConsumerThatIsSeenTooLateIsABug) {
  Var x = tape_.leaf(random(kWidth, 1), kQkvInfo);
  const Var same = x.without_value();  // its slot alone: nothing tells that there is another reader
  const Var y = rotate(std::move(x));
  const Var z = tape_.output(random(kWidth, 4));
  tape_.record(z, [same](Tape& tape, const Tensor& dy) { tape.add_grad(same, dy); });
  tape_.seed(y, random(kWidth, 2));
  tape_.seed(z, random(kWidth, 3));
  EXPECT_THROW(tape_.backward(), Bug);
}

TEST_P(RopeInPlace, WhatOthersHoldMayNotBeOverwritten) {
  const Var x = tape_.leaf(random(kWidth, 1), kQkvInfo);
  EXPECT_THROW(result_in_place(ctx_, x, kQkvInfo), Bug);
}

INSTANTIATE_TEST_SUITE_P(DTypes, RopeInPlace, ::testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat64),
                         [](const auto& dtype) { return std::string(name_of(dtype.param)); });

}  // namespace
}  // namespace ashlar::testing
