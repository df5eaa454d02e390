// What each op takes and gives along the tensor axis: whole models pass, on one rank and as any slice of more; planted
// mistakes are Bugs that name both ops. tests/mutants/layouts.txt plants the rest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "core/ops/norm.h"
#include "parallel/tensor/collectives.h"
#include "tests/parallel/model_fixture.h"
#include "tests/support/thrown.h"

namespace ashlar {
namespace {

using ::testing::AllOf;
using testing::bug_of;
using ::testing::HasSubstr;

/// One of `size` ranks whose neighbours never answer: it takes its own values for theirs. Numbers mean nothing.
class PretendGroup final : public comm::Communicator {
 public:
  PretendGroup(int rank, int size) : Communicator(rank, size, "tensor", std::make_shared<comm::ProgressEngine>()) {}

 private:
  static void copy(const void* from, void* to, int64_t bytes) {
    if (from != to) std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  OperationPtr make(const comm::DeviceOperation& args, Stream&) override {
    using namespace comm;
    std::visit(Cases{[](const AllReduce& a) { copy(a.in.data, a.out.data, a.in.size() * size_of(a.in.dtype)); },
                     [](const ReduceScatter& a) { copy(a.in.data, a.out.data, a.out.size() * size_of(a.out.dtype)); },
                     [&](const AllGather& a) {
                       const int64_t bytes = a.in.size() * size_of(a.in.dtype);
                       for (int r = 0; r < size(); ++r)
                         copy(a.in.data, static_cast<std::byte*>(a.out.data) + r * bytes, bytes);
                     },
                     [](const auto&) {}},
               args);
    return nullptr;
  }
  std::unique_ptr<Communicator> make_split(const comm::Split&) override { return nullptr; }
};

/// The forms of a block.
struct Form {
  model::Topology topology = model::Topology::kSerial;
  int norms = 1;
  model::NormPlacement placement = model::NormPlacement::kPre;
  model::QkNorm qk_norm = model::QkNorm::kNone;
  int64_t latent = 0;  ///< width of the latents of keys and values; 0: none
};
constexpr Form kForms[] = {{},
                           {.placement = model::NormPlacement::kPost, .qk_norm = model::QkNorm::kHeadPer},
                           {.placement = model::NormPlacement::kSandwich, .qk_norm = model::QkNorm::kHead},
                           {.placement = model::NormPlacement::kOutput, .qk_norm = model::QkNorm::kFull},
                           {.topology = model::Topology::kParallel, .qk_norm = model::QkNorm::kL2},
                           {.topology = model::Topology::kParallel, .norms = 2},
                           {.latent = 5},
                           {.topology = model::Topology::kParallel, .latent = 4}};

model::ModelConfig config_of(const Form& form, int64_t n_kv_heads) {
  model::ModelConfig c = testing::tiny_config();
  c.n_layers = 1;
  c.d_ff = 8;
  c.vocab_pad_to = 4;
  c.block = {.topology = form.topology, .parallel_norms = form.norms};
  c.norm.placement = form.placement;
  c.norm.embed = form.placement == model::NormPlacement::kPost;
  c.qk_norm.kind = form.qk_norm;
  c.n_kv_heads = n_kv_heads;
  if (form.latent > 0) {
    c.n_kv_heads = c.n_heads;
    c.attn.kind = model::AttentionKind::kMla;
    c.attn.kv_rank = form.latent;
    c.attn.q_rank = n_kv_heads > 1 ? 6 : 0;
    c.attn.v_head_dim = 3;
    c.rope.dims = 2;
    c.ffn = {Activation::kXielu, false};
  }
  c.bias = {true, true, true, true};
  c.norm.affine = model::NormAffine::kScaleBias;
  c.dropout = {.embed = 0.1, .attn = 0.1, .resid = 0.1};
  return c;
}

class Placements : public ::testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  int size() const { return std::get<0>(GetParam()); }
  bool sequence_parallel() const { return std::get<1>(GetParam()); }
};

TEST_P(Placements, OfEveryModelFit) {
  for (const Form& form : kForms) {
    for (const int64_t kv_heads : {4, 2, 1}) {
      for (const int rank : {0, size() - 1}) {
        PretendGroup group(rank, size());
        testing::TinyModel m(config_of(form, kv_heads), DType::kFloat32, 2, 4, 1, 7,
                             {.group = &group, .sequence_parallel = sequence_parallel()});
        Ctx ctx = m.ctx();
        ctx.dropout = {.enabled = true, .seed = 11, .first_sample = 0, .sequence_length = 4};
        for (const Recompute recompute : {Recompute::kNone, Recompute::kBlock}) {
          ctx.recompute = recompute;
          EXPECT_NO_THROW(m.loss_and_gradients(ctx));
        }
        model::KvCache cache = m.stage().make_cache(m.ctx(), 2, 4);
        EXPECT_NO_THROW(m.stage().logits(m.ctx(), m.stage().decode(m.ctx(), Tensor(), m.batch(), cache)));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Slices, Placements, ::testing::Combine(::testing::Values(1, 2, 4), ::testing::Bool()),
                         [](const auto& at) {
                           return str_cat("Of", std::get<0>(at.param), std::get<1>(at.param) ? "Sequence" : "");
                         });

class PlacementErrors : public ::testing::Test {
 protected:
  Var value(const char* op, Placement placement) {
    return {.value = ctx.empty(DType::kFloat32, {4, 4}), .info = {.op = op, .placement = placement}};
  }
  Weight weight(const Shape& shape, bool grad_partial) {
    Weight w;
    w.set_memory(ctx.empty(DType::kFloat32, shape), {});
    w.grad_partial = grad_partial;
    return w;
  }
  testing::TinyModel model{testing::tiny_config(), DType::kFloat32, 1, 4};
  Ctx ctx = model.ctx();
  comm::SelfComm alone{"tensor"};
  tensor::TensorParallel whole_rows{.group = &alone}, own_rows{.group = &alone, .sequence_parallel = true};
};

TEST_F(PlacementErrors, NameTheOpThatRefusesAndTheOneThatMadeTheValue) {
  Weight w = weight({4, 4}, false);
  EXPECT_THAT(bug_of([&] { ops::linear(ctx, value("norm", Placement::kInvariant), w, nullptr); }),
              AllOf(HasSubstr("[linear] expected placement partial gradient or columns split, got placement invariant"),
                    HasSubstr("from norm"), HasSubstr("enter() and exit() calls between norm and linear")));
  EXPECT_THAT(bug_of([&] { tensor::exit(ctx, value("tp_exit", Placement::kInvariant), whole_rows); }),
              AllOf(HasSubstr("[tp_exit] expected placement partial sum"), HasSubstr("from tp_exit")));
  EXPECT_THAT(bug_of([&] { tensor::enter(ctx, value("tp_enter", Placement::kPartialGrad), whole_rows); }),
              HasSubstr("[tp_enter] expected placement invariant, got placement partial gradient from tp_enter"));
  EXPECT_THAT(bug_of([&] { tensor::enter(ctx, value("norm", Placement::kInvariant), own_rows); }),
              HasSubstr("[sp_enter] expected placement rows split"));
  const Var x = value("sp_exit", Placement::kRowsSplit);
  EXPECT_THAT(bug_of([&] { ops::residual(ctx, &x, {.value = value("linear", Placement::kPartialSum)}, nullptr); }),
              AllOf(HasSubstr("[residual]"), HasSubstr("partial sum"), HasSubstr("from linear"), HasSubstr("sp_exit")));
}

TEST_F(PlacementErrors, OfAWeightNameWhatItsGradientShouldBe) {
  Tape tape(ctx.backend, ctx.stream);
  Ctx recording = ctx;
  recording.tape = &tape;
  Weight summed = weight({4}, true), complete = weight({4}, false);
  const Var rows = value("sp_exit", Placement::kRowsSplit), all = value("tp_exit", Placement::kInvariant);
  EXPECT_EQ(bug_of([&] { ops::norm(recording, rows, {.gamma = &summed}, {}); }), "no error");
  EXPECT_EQ(bug_of([&] { ops::norm(recording, all, {.gamma = &complete}, {}); }), "no error");
  EXPECT_THAT(bug_of([&] { ops::norm(recording, rows, {.gamma = &complete}, {}); }),
              AllOf(HasSubstr("[norm] expected a weight whose gradient is summed"), HasSubstr("from sp_exit"),
                    HasSubstr("add Axis::kTensor to grad_summed_over")));
  EXPECT_THAT(bug_of([&] { ops::norm(recording, all, {.gamma = &summed}, {}); }),
              AllOf(HasSubstr("is not summed"), HasSubstr("remove Axis::kTensor from grad_summed_over")));
  // What each rank has for its own slice of the heads: its gradient is a part there too.
  const Var slice = value("tp_enter", Placement::kPartialGrad);
  EXPECT_EQ(bug_of([&] { ops::replicated_norm(recording, slice, {.gamma = &summed}, {}); }), "no error");
  EXPECT_THAT(bug_of([&] { ops::replicated_norm(recording, slice, {.gamma = &complete}, {}); }),
              AllOf(HasSubstr("replicated_norm: expected a weight whose gradient is summed"),
                    HasSubstr("add Axis::kTensor to grad_summed_over")));
  EXPECT_THAT(bug_of([&] { ops::norm(recording, slice, {.gamma = &summed}, {}); }),
              HasSubstr("[norm] expected placement invariant or rows split, got placement partial gradient"));
}

}  // namespace
}  // namespace ashlar
