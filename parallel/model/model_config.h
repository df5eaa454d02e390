#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/backend/activation.h"
#include "core/backend/attention.h"
#include "core/backend/cross_entropy.h"
#include "core/backend/norm.h"
#include "core/backend/rope.h"
#include "core/backend/routing.h"

namespace ashlar::model {

using ashlar::Activation;
using ashlar::GroupScore;
using ashlar::name_of;
using ashlar::NormType;
using ashlar::RopeStyle;
using ashlar::RouterRule;
using ashlar::RouterScore;
using ashlar::ZKind;

enum class NormAffine : uint8_t { kNone, kScale, kScaleBias };
constexpr auto names_of(NormAffine) { return enum_names<NormAffine>("none", "scale", "scale_bias"); }

/// Position of the norms of a serial block (block.h has the formulas).
enum class NormPlacement : uint8_t { kPre, kPost, kSandwich, kOutput };
constexpr auto names_of(NormPlacement) { return enum_names<NormPlacement>("pre", "post", "sandwich", "output"); }

enum class Topology : uint8_t { kSerial, kParallel };
constexpr auto names_of(Topology) { return enum_names<Topology>("serial", "parallel"); }

/// Method that changes the rotary frequencies for contexts longer than in training.
enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn, kLongrope, kProportional, kDynamic };
constexpr auto names_of(RopeScaling) {
  return enum_names<RopeScaling>("none", "linear", "llama3", "yarn", "longrope", "proportional", "dynamic");
}

/// Norm of queries and keys. head: over each head, one gain for all heads; head_per: over each head, one gain per head;
/// full: over all heads as one row; l2: over each head, without a gain.
enum class QkNorm : uint8_t { kNone, kHead, kHeadPer, kFull, kL2 };
constexpr auto names_of(QkNorm) { return enum_names<QkNorm>("none", "head", "head_per", "full", "l2"); }

enum class QkNormOrder : uint8_t { kBeforeRope, kAfterRope };
constexpr auto names_of(QkNormOrder) { return enum_names<QkNormOrder>("before_rope", "after_rope"); }

enum class PosType : uint8_t { kNone, kSinusoidal, kLearned, kRope, kAlibi, kT5Bias };
constexpr auto names_of(PosType) {
  return enum_names<PosType>("none", "sinusoidal", "learned", "rope", "alibi", "t5_bias");
}

/// Meaning of a window W in attn.window_cycle: a query attends to the last W tokens including its own (sliding), or, in
/// the chunk of W tokens that contains the query, to all tokens up to the query (chunked).
enum class WindowKind : uint8_t { kSliding, kChunked };
constexpr auto names_of(WindowKind) { return enum_names<WindowKind>("sliding", "chunked"); }

/// Computation of queries, keys and values: by one matrix each (attention.h), or from low-rank latents
/// (latent_attention.h).
enum class AttentionKind : uint8_t { kStandard, kMla };
constexpr auto names_of(AttentionKind) { return enum_names<AttentionKind>("standard", "mla"); }

/// Layers whose rotary frequencies are scaled: all layers that rotate, or only layers with full attention.
enum class ScaledLayers : uint8_t { kAll, kFull };
constexpr auto names_of(ScaledLayers) { return enum_names<ScaledLayers>("all", "full"); }

/// Layers to which a setting applies, by whether their queries and keys rotate.
enum class RotationKind : uint8_t { kAll, kRotated, kUnrotated };
constexpr auto names_of(RotationKind) { return enum_names<RotationKind>("all", "rotated", "unrotated"); }

/// Counts of choices in the balance loss of experts: those of each sequence, or those of the previous step.
enum class Balance : uint8_t { kNone, kSequence, kPrevious };
constexpr auto names_of(Balance) { return enum_names<Balance>("none", "sequence", "previous"); }

/// How the experts of a layer are divided over the tensor ranks: a slice of every expert on each of them, or whole
/// experts.
enum class ExpertCut : uint8_t { kSlices, kExperts };
constexpr auto names_of(ExpertCut) { return enum_names<ExpertCut>("slices", "experts"); }

/// Initial values of matrices; init.h has the formulas.
enum class InitScheme : uint8_t { kNormal, kGpt2, kSmallWang, kFanIn, kMitchell, kT5, kXavier, kKaiming };
constexpr auto names_of(InitScheme) {
  return enum_names<InitScheme>("normal", "gpt2", "small_wang", "fan_in", "mitchell", "t5", "xavier", "kaiming");
}

struct NormConfig {
  NormVariant variant;  ///< with unit_offset gains start at 0
  NormAffine affine = NormAffine::kScale;
  NormPlacement placement = NormPlacement::kPre;
  bool final = true;   ///< a norm between the last block and the head
  bool embed = false;  ///< a norm after the embedding
  bool operator==(const NormConfig&) const = default;
};

struct BlockConfig {
  Topology topology = Topology::kSerial;
  int parallel_norms = 1;            ///< parallel only: 1 = attention and FFN share a norm, 2 = one each
  double residual_multiplier = 1.0;  ///< factor on each branch output before it joins the residual stream
  bool out_scalar = false;           ///< a learned scalar per layer that multiplies the block's output
  bool operator==(const BlockConfig&) const = default;
};

struct BiasConfig {
  bool qkv = false;
  bool attn_out = false;
  bool ffn = false;  ///< all FFN linears: gate, up and down
  bool lm_head = false;
  bool operator==(const BiasConfig&) const = default;
};

struct FfnConfig {
  Activation act = Activation::kSilu;
  bool gated = true;                 ///< Wdown(act(Wgate x) * Wup x), else Wdown act(Wup x)
  std::optional<double> clamp = {};  ///< gated: upper limit of Wgate x, and limit of |Wup x|
  double linear_offset = 0.0;        ///< gated: number added to Wup x after the clamp
  bool operator==(const FfnConfig&) const = default;
};

/// Experts in place of the feed-forward network of some layers (experts.h). Experts have the activation, biases, clamp
/// and offset of FfnConfig. Used only if experts > 0.
struct MoeConfig {
  int64_t experts = 0;                ///< number of routed experts of a layer; 0: no layer has experts
  int64_t top_k = 2;                  ///< experts that process a token
  int64_t d_ff = 0;                   ///< width of an expert
  int64_t first_layer = 0;            ///< layers before this one have no experts
  int64_t every = 1;                  ///< layer i has experts only if every divides i + 1
  std::vector<int64_t> dense_layers;  ///< further layers without experts, ascending
  int64_t shared_d_ff = 0;            ///< width of the shared expert, which processes every token; 0: none
  bool shared_gate = false;           ///< the shared expert's output is multiplied by sigmoid(w x)
  bool scale_input = false;           ///< weights multiply the input of an expert, not its output (Llama 4)
  /// How experts are chosen and weighted, as the kernels take it. Its fields are the keys moe.score to moe.group_score.
  RouterRule rule;
  bool router_bias = false;   ///< a bias on the router's logits
  bool router_norm = false;   ///< the router reads d_model^-0.5 g * rmsnorm(x) of the residual stream x, g learned
  bool expert_scale = false;  ///< a learned factor of each expert on its weights
  bool beside_ffn = false;    ///< a dense FFN of d_ff beside the experts, each with norms (experts_beside_ffn.h)
  /// A number for each expert that is added to its score when experts are chosen, and never to a weight. After each
  /// step it moves by bias_rate, up for experts with fewer choices than the mean, down for those with more.
  bool selection_bias = false;
  double bias_rate = 1e-3;
  Balance balance = Balance::kSequence;
  double balance_coef = 0.01;  ///< factor of the balance loss, whose value is 1 at balance
  double z_coef = 0;           ///< factor of the mean squared log-sum-exp of the router's logits
  ExpertCut tensor = ExpertCut::kSlices;
  bool operator==(const MoeConfig&) const = default;
};

struct PosConfig {
  PosType type = PosType::kRope;
  int64_t max_positions = 0;      ///< number of positions of the learned table; 0 for the other types
  int64_t learned_offset = 0;     ///< learned, sinusoidal: number of table rows before position 0
  double alibi_scale = 1;         ///< alibi: factor on the slopes
  int64_t t5_num_buckets = 32;    ///< t5_bias: number of buckets, the rows of the table
  int64_t t5_max_distance = 128;  ///< t5_bias: larger distances are in the last bucket
  bool t5_shared = true;          ///< t5_bias: one table for all layers, else one per layer
  bool operator==(const PosConfig&) const = default;
};

/// Used only when pos.type is rope; dims is 0 otherwise. rope_frequencies.h has the formulas of scaling; a field that
/// the scaling type does not use keeps its default.
struct RopeConfig {
  double base = 10000.0;
  int64_t dims = 0;                         ///< the first `dims` columns of each head rotate; even
  std::optional<int64_t> global_dims = {};  ///< rope.dims of layers with full attention (global_rope_dims)
  RopeStyle style = RopeStyle::kHalf;
  bool reversed = false;                  ///< rotate by the negative angle
  std::vector<double> base_cycle;         ///< bases of the layers, repeated; 0: no rotation; replaces `base`
  std::optional<double> local_base = {};  ///< base of layers with a window; replaces `base`; not with base_cycle
  bool global_enabled = true;             ///< false: layers with full attention do not rotate; not with base_cycle
  RopeScaling scaling = RopeScaling::kNone;
  ScaledLayers scaled_layers = ScaledLayers::kAll;
  double factor = 1;                              ///< used by linear, llama3, yarn, longrope
  double low_freq_factor = 1;                     ///< used by llama3
  double high_freq_factor = 4;                    ///< used by llama3
  int64_t original_positions = 0;                 ///< used by llama3, yarn, longrope; context length before scaling
  double beta_fast = 32;                          ///< used by yarn
  double beta_slow = 1;                           ///< used by yarn
  bool truncate = true;                           ///< used by yarn
  double attention_factor = 1;                    ///< yarn, longrope: factor on cos and sin
  std::vector<double> short_factor, long_factor;  ///< longrope, one per pair
  double alpha = 1;                               ///< used by dynamic
  bool operator==(const RopeConfig&) const = default;
};

/// The norm of queries and keys. Used only when kind is not none. Its gains use the same unit_offset as the other
/// norms.
struct QkNormConfig {
  QkNorm kind = QkNorm::kNone;
  NormType type = NormType::kRmsNorm;
  bool bias = false;
  QkNormOrder order = QkNormOrder::kBeforeRope;
  double eps = 1e-5;
  RotationKind layers = RotationKind::kAll;  ///< layers with this norm
  bool operator==(const QkNormConfig&) const = default;
};

/// Attention, besides head counts and widths.
struct AttentionConfig {
  AttentionKind kind = AttentionKind::kStandard;
  int64_t q_rank = 0;                             ///< mla: rank of the latent of queries; 0: one full matrix
  int64_t kv_rank = 0;                            ///< mla: rank of the latent of keys and values
  int64_t v_head_dim = 0;                         ///< width of a head's values; 0: head_dim
  double latent_eps = 1e-6;                       ///< mla: eps of the norms of the latents
  std::optional<int64_t> global_head_dim = {};    ///< head_dim of layers with full attention; replaces model.head_dim
  std::optional<int64_t> global_n_kv_heads = {};  ///< KV heads of layers with full attention; replaces model.n_kv_heads
  bool k_eq_v = false;  ///< layers with full attention have no value matrix: values are the keys before their norm
  bool v_norm = false;  ///< RMS norm of every head's values, without a gain
  double scale = 0;     ///< factor on q.k, usually head_dim^-0.5
  std::optional<double> softcap;             ///< scores s become cap * tanh(s / cap)
  std::optional<double> clip_qkv;            ///< clamps q, k, v to [-c, c], after biases and a norm that precedes rope
  std::vector<int64_t> window_cycle = {-1};  ///< windows of the layers in tokens, repeated; -1: full attention
  bool last_layer_full = false;              ///< true: the last layer has full attention, regardless of the cycle
  WindowKind window_kind = WindowKind::kSliding;
  bool sinks = false;  ///< each query head has a learned score that has no value vector
  /// In layers with a temperature, queries at position t are multiplied by
  /// 1 + temperature_beta ln(1 + floor((t + temperature_offset) / temperature_positions)).
  double temperature_beta = 0;
  int64_t temperature_positions = 0;  ///< 0 turns the temperature off
  int64_t temperature_offset = 0;
  RotationKind temperature_layers = RotationKind::kAll;
  bool operator==(const AttentionConfig&) const = default;
};

struct DropoutConfig {
  double embed = 0.0;
  double attn = 0.0;   ///< dropout on attention probabilities
  double resid = 0.0;  ///< dropout on each branch output before it joins the residual stream
  bool operator==(const DropoutConfig&) const = default;
};

struct LossConfig {
  double z_coef = 0.0;  ///< factor of the z-loss: mean(log(Z)^2), Z = sum exp(logit), or mean(m^2), m = max logit
  ZKind z_kind = ZKind::kLse;
  bool operator==(const LossConfig&) const = default;
};

struct InitConfig {
  InitScheme scheme = InitScheme::kGpt2;
  double std = 0.02;            ///< standard deviation of tables; for schemes normal and gpt2 also of matrices
  double residual_scale = 1.0;  ///< factor on the std of the two linears that write to the residual stream
  /// Values beyond this many standard deviations are drawn again; `std` is the deviation before truncation.
  std::optional<double> trunc_sigma = {};
  bool operator==(const InitConfig&) const = default;
};

/// Everything that defines a model, with every default resolved. Contains supported values only, since the
/// configuration schema refuses others. Shapes by name: C = d_model, H = n_heads, G = n_kv_heads, D = head_dim, F =
/// d_ff, V = vocab_padded, L = n_layers. n_heads * head_dim need not equal d_model; query head h reads KV head h /
/// (n_heads / n_kv_heads).
struct ModelConfig {
  int64_t d_model = 0;
  int64_t n_layers = 0;
  int64_t n_heads = 0;
  int64_t n_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t d_ff = 0;
  std::optional<int64_t> embed_dim = {};  ///< width of the token tables if not d_model; two matrices
                                          ///< without bias then convert between the two widths
  int64_t vocab_size = 0;                 ///< number of valid ids
  int64_t vocab_pad_to = 1;  ///< table rows are rounded up to a multiple of this; padded ids are masked in the loss
  NormConfig norm;
  BlockConfig block;
  BiasConfig bias;
  FfnConfig ffn;
  MoeConfig moe;
  PosConfig pos;
  RopeConfig rope;
  AttentionConfig attn;
  QkNormConfig qk_norm;
  DropoutConfig dropout;
  double embed_scale = 1.0;  ///< factor on the token embedding, before positions are added
  bool tied = false;         ///< the head reads the embedding table
  double logit_scale = 1.0;
  std::optional<double> softcap = {};    ///< logits become cap * tanh(logit / cap)
  bool norm_rows = false;                ///< rows of the head are normalized to length one
  std::vector<int64_t> masked_ids = {};  ///< ids whose logits are -inf, ascending
  LossConfig loss;
  InitConfig init;

  int64_t vocab_padded() const { return (vocab_size + vocab_pad_to - 1) / vocab_pad_to * vocab_pad_to; }
  int64_t table_width() const { return embed_dim.value_or(d_model); }
  int64_t q_width() const { return n_heads * head_dim; }
  int64_t kv_width() const { return n_kv_heads * head_dim; }
  bool latent() const { return attn.kind == AttentionKind::kMla; }
  bool has_experts(int64_t layer) const;  ///< true if the layer has experts in place of a feed-forward network
  int64_t expert_layers_before(int64_t layer) const;  ///< number of layers with experts among the first `layer`
  int64_t expert_layers() const { return expert_layers_before(n_layers); }
  bool operator==(const ModelConfig&) const = default;
};

/// Returns the window of each layer; -1 for full attention.
std::vector<int64_t> layer_windows(const ModelConfig& config);
/// Returns the shortest list that gives these values per layer when it is repeated.
template <typename T>
std::vector<T> shortest_cycle(const std::vector<T>& by_layer) {
  for (size_t length = 1; length < by_layer.size(); ++length)
    if (std::equal(by_layer.begin() + static_cast<std::ptrdiff_t>(length), by_layer.end(), by_layer.begin()))
      return {by_layer.begin(), by_layer.begin() + static_cast<std::ptrdiff_t>(length)};
  return by_layer;
}
/// KV heads and head widths of one layer: the values of the keys model.*, or of attn.global_* in layers with full
/// attention. Every layer has n_heads query heads.
struct LayerHeads {
  int64_t n_kv_heads = 0, head_dim = 0, v_head_dim = 0;
  bool values = true;  ///< true if the layer has a value matrix
  int64_t k_width() const { return n_kv_heads * head_dim; }
  int64_t v_width() const { return n_kv_heads * v_head_dim; }
  bool operator==(const LayerHeads&) const = default;
};
LayerHeads layer_heads(const ModelConfig& config, int64_t layer);
/// Returns the number of columns of a head that rotate in layers with full attention: rope.global_dims. If that key is
/// absent, the columns are the same fraction of the head as rope.dims is of model.head_dim.
int64_t global_rope_dims(const ModelConfig& config);
/// True if the layer is of this kind.
bool is_of_kind(const ModelConfig& config, int64_t layer, RotationKind kind);
/// True if the layer has a norm of queries and keys.
bool has_qk_norm(const ModelConfig& config, int64_t layer);
/// True if the norm of queries and keys has a gain.
bool qk_norm_has_gain(const ModelConfig& config);

/// Shape of the QK-norm gain and bias: [head_dim] (kHead), [heads, head_dim] (kHeadPer), else [heads * head_dim].
std::vector<int64_t> qk_norm_shape(const ModelConfig& config, int64_t heads, int64_t head_dim);

/// Number of norms in a block: 2 if serial (4 with sandwich norms), parallel_norms if parallel.
int64_t norms_per_block(const ModelConfig& config);

/// Returns the layers that have experts, in ascending order.
std::vector<int64_t> expert_layers_of(const ModelConfig& config);

/// Returns the default FFN width: if gated, 8/3 d_model rounded up to a multiple of `multiple_of`; else 4 d_model.
int64_t derived_d_ff(int64_t d_model, bool gated, int64_t multiple_of = 256);

/// Returns rope.dims for rope.fraction: the integer part of head_dim * fraction.
int64_t rope_dims_of(int64_t head_dim, double fraction);

}  // namespace ashlar::model
