// Meshes, models and batches drawn at random, each against one rank: what no table of layouts thought of. A number is a
// case: `ASHLAR_MESH=17 ./check --only layouts` runs number 17 alone, and a failure prints the number and what it drew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <numeric>

#include "absl/strings/str_join.h"
#include "core/base/philox.h"
#include "core/base/strings.h"
#include "parallel/model/model_constraints.h"
#include "parallel/model/position_tables.h"
#include "parallel/model/slices.h"
#include "tests/layouts/meshes.h"
#include "tests/layouts/one_rank.h"
#include "tests/support/long_form.h"
#include "tests/support/ranks/ranks.h"

namespace ashlar::testing {
namespace {

/// Draws that are a pure function of a number.
class Draw {
 public:
  explicit Draw(uint64_t number) : number_(number) {}

  int64_t from(int64_t low, int64_t high) { return low + static_cast<int64_t>(word() % (high - low + 1)); }
  bool once_in(int64_t n) { return from(1, n) == 1; }
  template <typename T>
  T of(std::initializer_list<T> choices) {
    return choices.begin()[from(0, static_cast<int64_t>(choices.size()) - 1)];
  }

 private:
  uint32_t word() { return Philox::block(2026, number_, drawn_++)[0]; }

  uint64_t number_, drawn_ = 0;
};

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> all;
  for (int64_t d = 1; d <= n; ++d)
    if (n % d == 0) all.push_back(d);
  return all;
}

/// Meshes of 2 to `most` ranks, one of them at random: those that divide along several axes more often.
mesh::MeshShape draw_shape(Draw& draw, int64_t most) {
  std::vector<mesh::MeshShape> all;
  for (int64_t pipeline = 1; pipeline <= most; ++pipeline) {
    for (int64_t data = 1; pipeline * data <= most; ++data) {
      for (int64_t tensor = 1; pipeline * data * tensor <= most; ++tensor) {
        const int axes = (pipeline > 1) + (data > 1) + (tensor > 1);
        const int times[] = {0, 1, 3, 8};
        for (int i = 0; i < times[axes]; ++i)
          all.push_back({{Axis::kPipeline, pipeline}, {Axis::kReplica, data}, {Axis::kTensor, tensor}});
      }
    }
  }
  return all[draw.from(0, static_cast<int64_t>(all.size()) - 1)];
}

/// A mesh of 2 to `most` ranks and what runs on it.
void draw_mesh(Draw& draw, int64_t most, LayoutCase& c) {
  c.mesh = draw_shape(draw, most);
  using enum pipeline::PipelineSchedule;
  c.schedule = draw.of({kGpipe, k1F1B, kInterleaved, kZbH1});
  if (c.schedule == kInterleaved && c.mesh[Axis::kPipeline] > 1) c.virtual_stages = draw.from(1, 3);
  const int64_t chunks = c.mesh[Axis::kPipeline] * c.virtual_stages;
  c.config.n_layers = chunks + draw.from(0, 3);
  c.micro_batches = draw.from(1, 6);
  c.B = draw.from(1, 3);
  c.T = draw.from(3, 12);
  c.sequence_parallel = c.mesh[Axis::kTensor] > 1 && draw.once_in(2);
  if (c.sequence_parallel) c.B *= c.mesh[Axis::kTensor] / std::gcd(c.B * c.T, c.mesh[Axis::kTensor]);
}

/// Sizes that the tensor ranks divide, everything else at will.
void draw_model(Draw& draw, LayoutCase& c) {
  model::ModelConfig& m = c.config;
  const int64_t tp = c.mesh[Axis::kTensor];
  m.d_model = draw.from(9, 40);
  m.n_heads = tp * draw.from(1, 3);
  // KV heads that the ranks divide, or that divide them.
  std::vector<int64_t> kv_heads;
  for (const int64_t n : divisors(m.n_heads))
    if (n % tp == 0 || tp % n == 0) kv_heads.push_back(n);
  m.n_kv_heads = kv_heads[draw.from(0, static_cast<int64_t>(kv_heads.size()) - 1)];
  m.head_dim = draw.of<int64_t>({4, 8, 12});
  m.d_ff = tp * draw.from(3, 12);
  m.vocab_size = draw.from(11, 90);
  m.vocab_pad_to = tp * draw.from(1, 2);
  m.norm = {.variant = {.type = draw.of({NormType::kRmsNorm, NormType::kLayerNorm}), .eps = draw.of({1e-5, 1e-3})},
            .affine = draw.of({model::NormAffine::kScale, model::NormAffine::kScaleBias, model::NormAffine::kNone})};
  if (draw.once_in(2)) m.block = {.topology = model::Topology::kParallel, .parallel_norms = draw.of({1, 2})};
  if (m.block.topology == model::Topology::kSerial) {
    using enum model::NormPlacement;
    m.norm.placement = draw.of({kPre, kPost, kSandwich, kOutput});
    m.norm.final = m.norm.placement != kPost;
  }
  m.norm.embed = draw.once_in(4);
  m.block.residual_multiplier = draw.of({1.0, 0.5});
  m.bias = {.qkv = draw.once_in(2), .attn_out = draw.once_in(2), .ffn = draw.once_in(2), .lm_head = draw.once_in(3)};
  m.ffn.gated = draw.once_in(2);
  // Not relu: a sum that rounds to the other side of its kink is no error.
  m.ffn.act = draw.of({Activation::kSilu, Activation::kGeluErf, Activation::kGeluTanh, Activation::kRelu2,
                       Activation::kQuickGelu, Activation::kSigmoid, Activation::kIdentity});
  m.pos.type = draw.of({model::PosType::kRope, model::PosType::kRope, model::PosType::kLearned, model::PosType::kNone});
  if (m.pos.type == model::PosType::kLearned) m.pos.max_positions = c.T + draw.from(0, 5);
  if (m.pos.type == model::PosType::kRope) {
    m.rope = {.base = draw.of({1e4, 100.0}),
              .dims = 2 * draw.from(1, m.head_dim / 2),
              .style = draw.of({RopeStyle::kHalf, RopeStyle::kInterleaved})};
  }
  if (draw.once_in(2)) {
    using enum model::QkNorm;
    m.qk_norm = {.kind = draw.of({kHead, kHeadPer, kFull, kL2}), .eps = 1e-3};
    if (m.qk_norm.kind != kL2) m.qk_norm.type = draw.of({NormType::kRmsNorm, NormType::kLayerNorm});
    m.qk_norm.order = draw.of({model::QkNormOrder::kBeforeRope, model::QkNormOrder::kAfterRope});
    // A bias that no rotation follows shifts all scores of a query alike: its true gradient is zero.
    m.qk_norm.bias = m.qk_norm.type == NormType::kLayerNorm && m.qk_norm.order == model::QkNormOrder::kBeforeRope &&
                     m.pos.type == model::PosType::kRope;
  }
  m.attn.scale = draw.of({0.5, 0.25});
  if (draw.once_in(2)) {
    m.dropout = {.embed = draw.of({0.0, 0.1}), .attn = draw.of({0.0, 0.2}), .resid = draw.of({0.0, 0.1})};
  }
  if (m.pos.type == model::PosType::kNone && draw.once_in(2)) m.pos.type = model::PosType::kAlibi;
  if (draw.once_in(3)) m.attn.window_cycle = draw.of<std::vector<int64_t>>({{3}, {5, -1}, {2, 2, -1}});
  if (draw.once_in(3)) m.attn.window_kind = model::WindowKind::kChunked;
  m.attn.last_layer_full = draw.once_in(4);
  if (draw.once_in(4)) m.attn.softcap = 0.5;
  m.attn.sinks = draw.once_in(4);
  m.tied = draw.once_in(3);
  m.loss.z_coef = draw.of({0.0, 1e-3});
  m.init = {.scheme = model::InitScheme::kNormal, .std = 0.15, .residual_scale = draw.of({1.0, 0.5})};
}

/// Latents, and nothing that does not go with them.
void draw_latent(Draw& draw, model::ModelConfig& m) {
  m.attn.kind = model::AttentionKind::kMla;
  m.attn.kv_rank = draw.from(3, 14);
  m.attn.q_rank = draw.of<int64_t>({0, 5, 8});
  m.n_kv_heads = m.n_heads;
  m.attn.sinks = false;
  m.qk_norm = {};
  m.pos = {.type = model::PosType::kRope};
  if (m.rope.dims == 0) m.rope = {.dims = 2};
  m.head_dim = m.rope.dims + draw.from(1, 6);
}

/// Layers with full attention have heads, bases and matrices of their own.
void draw_kinds(Draw& draw, LayoutCase& c) {
  model::ModelConfig& m = c.config;
  m.attn.window_cycle = draw.of<std::vector<int64_t>>({{3, -1}, {-1, 4}, {2, 2, -1}});
  std::vector<int64_t> kv_heads;
  for (const int64_t n : divisors(m.n_heads)) {
    m.attn.global_n_kv_heads = n;
    if (model::slicing_problems(m, c.mesh[Axis::kTensor]).empty()) kv_heads.push_back(n);
  }
  m.attn.global_n_kv_heads = kv_heads[draw.from(0, static_cast<int64_t>(kv_heads.size()) - 1)];
  m.attn.global_head_dim = draw.of<int64_t>({4, 6, 8});
  m.attn.k_eq_v = draw.once_in(2) && m.attn.v_head_dim == 0;
  m.attn.v_norm = draw.once_in(2);
  // In front of a last norm the size of the stream counts for nothing: the gradient of its factor is zero.
  m.block.out_scalar = !m.norm.final && draw.once_in(2);
  if (m.pos.type != model::PosType::kRope) return;
  m.rope.global_dims = 2 * draw.from(1, *m.attn.global_head_dim / 2);
  m.rope.global_enabled = !draw.once_in(3) || m.qk_norm.bias;  // whose gradient is zero where nothing rotates
  if (draw.once_in(2)) m.rope.local_base = 50;
  if (draw.once_in(2)) return;
  m.rope.scaling = draw.of({model::RopeScaling::kLinear, model::RopeScaling::kProportional});
  m.rope.factor = 2;
  m.rope.scaled_layers = draw.of({model::ScaledLayers::kAll, model::ScaledLayers::kFull});
}

/// Experts, divided over some or all of the replicas. In fp64, where rounding does not change a choice.
void draw_experts(Draw& draw, LayoutCase& c) {
  const int64_t tp = c.mesh[Axis::kTensor], data = c.mesh[Axis::kReplica];
  model::ModelConfig& m = c.config;
  c.dtype = DType::kFloat64;
  if (m.ffn.act == Activation::kXielu) m.ffn.act = Activation::kSilu;
  const int64_t groups = draw.from(1, 3);
  const int64_t experts = groups * std::max(draw.from(2, 4), (data + groups - 1) / groups);
  m.moe = {.experts = experts,
           .top_k = draw.from(1, experts / groups),
           .d_ff = tp * draw.from(1, 5),
           .first_layer = draw.from(0, 1) * (m.n_layers - 1),
           .shared_d_ff = draw.once_in(2) ? tp * draw.from(1, 5) : 0,
           .scale_input = draw.once_in(4),
           .rule = {.score = draw.of({RouterScore::kSoftmax, RouterScore::kSigmoid}),
                    .renormalize = draw.once_in(2),
                    .group_score = draw.of({GroupScore::kMax, GroupScore::kTopTwo}),
                    .groups = groups,
                    .top_groups = draw.from(1, groups)},
           .router_bias = draw.once_in(2),
           .balance_coef = draw.of({0.0, 0.2}),
           .z_coef = draw.of({0.0, 0.1})};
  m.moe.shared_gate = m.moe.shared_d_ff > 0 && draw.once_in(2);
  const std::vector<int64_t> ranks = divisors(data);
  const int64_t expert = ranks[draw.from(data > 1 ? 1 : 0, static_cast<int64_t>(ranks.size()) - 1)];
  c.mesh[Axis::kExpert] = expert;
  c.mesh[Axis::kReplica] = data / expert;
  if (expert * tp <= experts) m.moe.tensor = draw.of({model::ExpertCut::kSlices, model::ExpertCut::kExperts});
  m.moe.selection_bias = draw.once_in(2);
  if (m.moe.selection_bias) m.moe.bias_rate = draw.of({1e-3, 0.05});
  if (m.moe.balance_coef > 0 && draw.once_in(2)) m.moe.balance = model::Balance::kPrevious;
}

LayoutCase drawn(uint64_t number, int64_t most_ranks) {
  Draw draw(number);
  LayoutCase c{.seed = 1000 + number};
  draw_mesh(draw, most_ranks, c);
  draw_model(draw, c);
  c.dtype = draw.of({DType::kFloat64, DType::kFloat32});
  c.recompute = draw.of({Recompute::kNone, Recompute::kSelective, Recompute::kBlock});
  c.documents = draw.once_in(3);
  c.bucket_elems = draw.from(50, 3000);
  c.optimizer = {.beta1 = draw.of({0.9, 0.8}),
                 .beta2 = draw.of({0.95, 0.999}),
                 .weight_decay = draw.of({0.0, 0.1}),
                 .decay_embeddings = draw.once_in(2)};
  c.lr = 1e-3;
  c.clip = draw.of({0.3, 0.9});
  c.further_steps = 3;
  if (draw.once_in(4)) {
    c.config.norm.final = false;
    c.config.norm.variant.unit_offset = c.config.norm.affine != model::NormAffine::kNone;
    c.config.embed_scale = 2;
    c.config.logit_scale = 0.5;
  }
  if (draw.once_in(4)) c.config.embed_dim = draw.from(5, 45);
  if (draw.once_in(4)) c.config.softcap = draw.of({1.0, 3.0});
  c.config.norm_rows = draw.once_in(4);
  if (draw.once_in(4)) c.config.masked_ids = {0, c.config.vocab_size / 2, c.config.vocab_size - 1};
  if (draw.once_in(4)) c.config.loss.z_kind = ZKind::kMaxLogit;
  if (draw.once_in(6)) {
    c.config.rope = {};
    c.config.pos = {.type = model::PosType::kSinusoidal};
  }
  if (c.config.pos.type == model::PosType::kLearned || c.config.pos.type == model::PosType::kSinusoidal)
    c.config.pos.learned_offset = draw.of<int64_t>({0, 2});
  if ((c.config.pos.type == model::PosType::kNone || c.config.pos.type == model::PosType::kRope) && draw.once_in(4)) {
    c.config.rope = {};
    c.config.qk_norm.bias = false;
    c.config.pos = {.type = model::PosType::kT5Bias,
                    .t5_num_buckets = draw.from(2, 6),
                    .t5_max_distance = draw.from(4, 9),
                    .t5_shared = draw.once_in(2)};
  }
  if (draw.once_in(4)) c.config.attn.v_head_dim = draw.from(1, 9);
  if (draw.once_in(4)) c.config.ffn = {.act = Activation::kXielu, .gated = false};
  if (draw.once_in(4)) {
    draw_latent(draw, c.config);
  } else if (draw.once_in(3)) {
    draw_kinds(draw, c);
  }
  if (draw.once_in(3)) draw_experts(draw, c);
  return c;
}

std::string text_of(const LayoutCase& c) {
  const model::ModelConfig& m = c.config;
  return str_cat(
      name_of(c.mesh), c.sequence_parallel ? ", sequence parallel" : "", ", ", pipeline::name_of(c.schedule), " with ",
      c.virtual_stages, " chunks a stage, ", c.micro_batches, " micro-batches of ", c.B, " x ", c.T, ", ",
      name_of(c.dtype), ", layers ", m.n_layers, ", width ", m.d_model, ", heads ", m.n_heads, " of ", m.head_dim,
      ", KV heads ", m.n_kv_heads, ", FFN ", m.d_ff, m.ffn.gated ? " gated " : " ", name_of(m.ffn.act), ", vocabulary ",
      m.vocab_size, " padded to ", m.vocab_padded(), ", ", name_of(m.block.topology), " ", m.block.parallel_norms,
      ", norms ", name_of(m.norm.placement), m.norm.embed ? " and of the embedding" : "", ", norm of q and k ",
      name_of(m.qk_norm.kind), " ", name_of(m.qk_norm.type), " ", name_of(m.qk_norm.order), ", positions ",
      name_of(m.pos.type), ", windows ", absl::StrJoin(model::layer_windows(m), " "), " ", name_of(m.attn.window_kind),
      ", soft cap ", m.attn.softcap.value_or(0), m.attn.sinks ? ", sinks" : "", ", of full layers KV heads ",
      m.attn.global_n_kv_heads.value_or(m.n_kv_heads), " of ", m.attn.global_head_dim.value_or(m.head_dim),
      m.attn.k_eq_v ? ", values are keys" : "", m.attn.v_norm ? ", values normed" : "",
      m.block.out_scalar ? ", scalars of blocks" : "", m.tied ? ", tied" : "", c.documents ? ", documents" : "",
      ", recompute ", static_cast<int>(c.recompute), ", dropout ", m.dropout.embed, " ", m.dropout.attn, " ",
      m.dropout.resid, ", buckets of ", c.bucket_elems, ", tables ", m.table_width(), " wide, soft cap of the logits ",
      m.softcap.value_or(0), ", values ", m.attn.v_head_dim, " wide, latents ", m.attn.q_rank, " ", m.attn.kv_rank,
      m.norm_rows ? ", norm rows" : "", ", experts ", m.moe.experts, " top ", m.moe.top_k, " of ", m.moe.rule.groups,
      " groups, ", name_of(m.moe.tensor), ", width ", m.moe.d_ff, " and ", m.moe.shared_d_ff,
      m.moe.selection_bias ? ", selection bias" : "", ", balance ", name_of(m.moe.balance), ", ", m.masked_ids.size(),
      " masked, z ", name_of(m.loss.z_kind));
}

/// The numbers of this run: one that is named, 200 in the long form, else a few.
std::pair<int, int> numbers() {
  if (const char* one = std::getenv("ASHLAR_MESH")) return {std::atoi(one), std::atoi(one) + 1};
  return {0, long_form() ? 200 : 6};
}

// What the 200 of the long form meet: every axis often, and the ones of the mesh together.
TEST(RandomMeshes, MeetEveryAxis) {
  if (bootstrap().world().size() > 1) return;
  std::map<std::string, int> seen;
  for (int number = 0; number < 200; ++number) {
    const LayoutCase c = drawn(number, 8);
    const model::ModelConfig& m = c.config;
    const bool pipeline = c.mesh[Axis::kPipeline] > 1, data = c.mesh.size(kSampleAxes) > 1,
               tensor = c.mesh[Axis::kTensor] > 1;
    ++seen[str_cat(c.mesh.ranks(), " ranks")];
    seen["pipeline"] += pipeline, seen["data"] += data, seen["tensor"] += tensor;
    seen["pipeline x data"] += pipeline && data, seen["pipeline x tensor"] += pipeline && tensor;
    seen["data x tensor"] += data && tensor, seen["all three"] += pipeline && data && tensor;
    seen["sequence parallel"] += c.sequence_parallel;
    ++seen[str_cat(pipeline ? "" : "no pipeline, ", pipeline::name_of(c.schedule))];
    seen["chunks"] += c.virtual_stages > 1;
    seen["fewer micro-batches than stages"] += c.micro_batches < c.mesh[Axis::kPipeline];
    ++seen[str_cat(name_of(c.dtype))];
    ++seen[str_cat("recompute ", static_cast<int>(c.recompute))];
    ++seen[str_cat(name_of(m.block.topology), " ", m.block.parallel_norms)];
    ++seen[str_cat("norms ", name_of(m.norm.placement))];
    ++seen[str_cat("norm of q and k ", name_of(m.qk_norm.kind))];
    seen["norm of q and k after rope"] += m.qk_norm.order == model::QkNormOrder::kAfterRope;
    seen["layernorm of q and k"] += m.qk_norm.type == NormType::kLayerNorm;
    seen["norm of all heads over ranks"] += m.qk_norm.kind == model::QkNorm::kFull && tensor;
    seen["norm of the embedding"] += m.norm.embed;
    seen["factor on branches"] += m.block.residual_multiplier != 1;
    ++seen[str_cat("positions ", name_of(m.pos.type))];
    seen["biases shared over stages"] += model::shares_t5_bias(m) && pipeline;
    seen["biases by layer"] += m.pos.type == model::PosType::kT5Bias && !m.pos.t5_shared;
    seen["KV heads shared by ranks"] += m.n_kv_heads < c.mesh[Axis::kTensor];
    seen["grouped heads"] += m.n_kv_heads < m.n_heads && m.n_kv_heads >= c.mesh[Axis::kTensor];
    seen["tied over stages"] += m.tied && pipeline;
    seen["dropout"] += m.dropout.embed + m.dropout.attn + m.dropout.resid > 0;
    seen["documents"] += c.documents, seen["padded vocabulary"] += m.vocab_padded() > m.vocab_size;
    seen["biases"] += m.bias.qkv, seen["gated"] += m.ffn.gated, seen["z-loss"] += m.loss.z_coef > 0;
    const bool windows = m.attn.window_cycle != std::vector<int64_t>{-1};
    seen["windows"] += windows && m.attn.window_kind == model::WindowKind::kSliding;
    seen["chunked attention"] += windows && m.attn.window_kind == model::WindowKind::kChunked;
    seen["soft cap"] += m.attn.softcap.has_value(), seen["sinks"] += m.attn.sinks;
    seen["tables of a width of their own"] += m.embed_dim.has_value(),
        seen["soft cap of the logits"] += m.softcap.has_value();
    seen["norm rows"] += m.norm_rows, seen["masked ids"] += !m.masked_ids.empty();
    seen["largest logit"] += m.loss.z_kind == ZKind::kMaxLogit && m.loss.z_coef > 0;
    seen["values of a width of their own"] += m.attn.v_head_dim > 0;
    seen["latents"] += m.attn.kind == model::AttentionKind::kMla, seen["xielu"] += m.ffn.act == Activation::kXielu;
    seen["latents over ranks"] += m.attn.kind == model::AttentionKind::kMla && tensor;
    const bool kinds = m.attn.global_n_kv_heads.has_value();
    seen["layers of two kinds"] += kinds, seen["layers of two kinds over ranks"] += kinds && tensor;
    seen["values that are keys"] += m.attn.k_eq_v, seen["norm of values"] += m.attn.v_norm;
    seen["scalars of blocks"] += m.block.out_scalar;
    seen["rotation by kind"] += m.rope.local_base || !m.rope.global_enabled;
    seen["decayed tables"] += c.optimizer.decay_embeddings && c.optimizer.weight_decay > 0;
    const bool experts = m.moe.experts > 0, over_ranks = c.mesh[Axis::kExpert] > 1;
    seen["experts"] += experts, seen["experts over ranks"] += over_ranks;
    seen["experts over ranks x pipeline"] += over_ranks && pipeline;
    seen["experts over ranks x tensor"] += over_ranks && tensor;
    seen["replicas of experts over ranks"] += over_ranks && c.mesh[Axis::kReplica] > 1;
    seen["experts that no rank divides evenly"] += over_ranks && m.moe.experts % c.mesh[Axis::kExpert] != 0;
    seen["shared experts over ranks"] += over_ranks && m.moe.shared_d_ff > 0;
    seen["whole experts on tensor ranks"] += tensor && m.moe.tensor == model::ExpertCut::kExperts;
    seen["inputs scaled by experts"] += experts && m.moe.scale_input;
    seen["experts in groups"] += m.moe.rule.groups > 1;
    seen["selection bias"] += m.moe.selection_bias;
    seen["selection bias over ranks"] += m.moe.selection_bias && over_ranks;
    seen["selection bias x pipeline"] += m.moe.selection_bias && pipeline;
    seen["balance by the step before"] += m.moe.balance == model::Balance::kPrevious;
    seen["balance by the step before over ranks"] += m.moe.balance == model::Balance::kPrevious && over_ranks;
  }
  EXPECT_EQ(seen.size(), 99U) << ::testing::PrintToString(seen);
  for (const auto& [axis, times] : seen) EXPECT_GE(times, 4) << axis;
}

class RandomMesh : public ::testing::TestWithParam<int> {};

// The long form takes eight ranks, on which meshes of 2 to 8 are drawn: ranks beyond the mesh make another of the same
// kind if they suffice, or wait.
TEST_P(RandomMesh, ComputesWhatOneRankDoes) {
  comm::Communicator& world = bootstrap().world();
  if (world.size() == 1 || (long_form() && world.size() < 8)) return;
  const LayoutCase c = drawn(GetParam(), world.size());
  SCOPED_TRACE(str_cat("ASHLAR_MESH=", GetParam(), " on ", world.size(), " ranks: ", text_of(c)));
  ASSERT_EQ(model::slicing_problems(c.config, c.mesh[Axis::kTensor]), std::vector<std::string>{});
  ASSERT_EQ(model::constraint_errors(c.config), std::vector<std::string>{});
  const auto ranks = static_cast<int>(c.mesh.ranks());
  const int number = world.rank() / ranks;
  const auto group = world.split({.color = (number + 1) * ranks <= world.size() ? number : -1, .name = "mesh"});
  if (group) expect_numbers_of_one_rank(*group, c);
}

INSTANTIATE_TEST_SUITE_P(Numbers, RandomMesh, ::testing::Range(numbers().first, numbers().second));

}  // namespace
}  // namespace ashlar::testing
