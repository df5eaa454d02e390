#include "parallel/model/model_constraints.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "core/backend/elementwise.h"
#include "core/base/strings.h"
#include "parallel/model/attention_options.h"

namespace ashlar::model {

namespace {

/// Returns true if a size is positive; else adds an error.
bool check_positive(std::string_view key, int64_t v, std::vector<std::string>& errors) {
  if (v < 1) errors.push_back(str_cat(key, " = ", v, ": expected 1 or more; give a positive size"));
  return v >= 1;
}

/// Adds the errors of keys that change the heads of layers with full attention (attn.global_*, attn.k_eq_v).
void add_head_kind_errors(const ModelConfig& c, std::vector<std::string>& errors) {
  const AttentionConfig& a = c.attn;
  const auto add = [&](const auto&... parts) { errors.push_back(str_cat(parts...)); };
  if (a.global_head_dim && (*a.global_head_dim < 1 || *a.global_head_dim > 512))
    add("attn.global_head_dim = ", *a.global_head_dim, ": expected 1 to 512; Gemma 4 uses 512");
  if (a.global_n_kv_heads && (*a.global_n_kv_heads < 1 || (c.n_heads > 0 && c.n_heads % *a.global_n_kv_heads != 0)))
    add("attn.global_n_kv_heads = ", *a.global_n_kv_heads, ": expected a divisor of model.n_heads = ", c.n_heads,
        ", since every KV head serves the same number of query heads; change attn.global_n_kv_heads or model.n_heads");
  if (a.k_eq_v && a.v_head_dim > 0 && a.v_head_dim != a.global_head_dim.value_or(c.head_dim))
    add("attn.k_eq_v = true: expected attn.v_head_dim to be ", a.global_head_dim.value_or(c.head_dim),
        ", the width of the keys that serve as values, got ", a.v_head_dim, "; remove attn.k_eq_v or attn.v_head_dim");
}

void add_size_errors(const ModelConfig& c, std::vector<std::string>& errors) {
  const auto add = [&](const auto&... parts) { errors.push_back(str_cat(parts...)); };
  const auto positive = [&](std::string_view key, int64_t v) { return check_positive(key, v, errors); };
  positive("model.d_model", c.d_model);
  positive("model.n_layers", c.n_layers);
  positive("model.d_ff", c.d_ff);
  positive("vocab.size", c.vocab_size);
  positive("vocab.pad_to", c.vocab_pad_to);
  const bool heads = positive("model.n_heads", c.n_heads);
  if (positive("model.n_kv_heads", c.n_kv_heads) && heads && c.n_heads % c.n_kv_heads != 0)
    add("model.n_kv_heads = ", c.n_kv_heads, ": expected a divisor of model.n_heads = ", c.n_heads,
        ", since every KV head serves the same number of query heads; change model.n_kv_heads or model.n_heads");
  if (c.head_dim < 1 || c.head_dim > 512)
    add("model.head_dim = ", c.head_dim, ": expected 1 to 512; change model.head_dim or model.n_heads");
  add_head_kind_errors(c, errors);
}

void add_block_errors(const ModelConfig& c, std::vector<std::string>& errors) {
  const auto add = [&](const auto&... parts) { errors.push_back(str_cat(parts...)); };
  if (!(c.norm.variant.eps > 0)) add("norm.eps = ", c.norm.variant.eps, ": expected a number above 0; 1e-5 is usual");
  if (c.norm.variant.unit_offset && c.norm.affine == NormAffine::kNone)
    add("norm.unit_offset = true: expected false with norm.affine = \"none\", which has no gain; change "
        "norm.unit_offset or norm.affine");
  if (c.ffn.clamp && !(*c.ffn.clamp > 0))
    add("ffn.clamp = ", *c.ffn.clamp, ": expected a number above 0, or \"none\"; phi-3-small uses 20");
  if (c.ffn.clamp && !c.ffn.gated)
    add("ffn.clamp = ", *c.ffn.clamp, ": expected \"none\" with ffn.gated = false; change ffn.clamp or ffn.gated");
  if (c.ffn.linear_offset != 0 && !c.ffn.gated)
    add("ffn.linear_offset = ", c.ffn.linear_offset,
        ": expected 0 with ffn.gated = false; the offset is added to the linear half of a gated FFN; change "
        "ffn.linear_offset or ffn.gated");
  if (c.ffn.act == Activation::kXielu && c.ffn.gated)
    add("ffn.gated = true: expected false with ffn.act = \"xielu\", which has no gated form; change ffn.gated or "
        "ffn.act");
  if (c.block.parallel_norms != 1 && c.block.parallel_norms != 2)
    add("block.parallel_norms = ", c.block.parallel_norms,
        ": expected 1 (attention and FFN share a norm) or 2 (a norm for each)");
  if (c.block.topology == Topology::kSerial && c.block.parallel_norms != 1)
    add("block.parallel_norms = ", c.block.parallel_norms,
        ": expected only with block.topology = \"parallel\"; remove block.parallel_norms");
  if (c.block.topology == Topology::kParallel && c.norm.placement != NormPlacement::kPre)
    add("norm.placement = \"", name_of(c.norm.placement),
        "\": expected \"pre\", the only placement that block.topology = \"parallel\" supports; change norm.placement "
        "or block.topology");
  if (c.qk_norm.kind == QkNorm::kL2 && c.qk_norm.type != NormType::kRmsNorm)
    add("attn.qk_norm_type = \"", name_of(c.qk_norm.type),
        "\": expected \"rmsnorm\" with attn.qk_norm = \"l2\"; change attn.qk_norm_type or attn.qk_norm");
  if (c.qk_norm.bias && !qk_norm_has_gain(c))
    add("attn.qk_norm_bias = true: expected false with attn.qk_norm = \"", name_of(c.qk_norm.kind),
        "\", which has no gain; change attn.qk_norm_bias or attn.qk_norm");
  if (!(c.qk_norm.eps > 0)) add("attn.qk_norm_eps = ", c.qk_norm.eps, ": expected a number above 0; 1e-5 is usual");
}

void add_expert_errors(const ModelConfig& c, std::vector<std::string>& errors) {
  const MoeConfig& m = c.moe;
  const auto add = [&](const auto&... parts) { errors.push_back(str_cat(parts...)); };
  if (m.experts < 0) add("moe.experts = ", m.experts, ": expected 0 or more; 0 is a model without experts");
  if (m.experts <= 0) return;
  check_positive("moe.d_ff", m.d_ff, errors);
  if (m.top_k < 1 || m.top_k > m.experts)
    add("moe.top_k = ", m.top_k, ": expected 1 to moe.experts = ", m.experts, "; lower moe.top_k or raise moe.experts");
  if (!check_positive("moe.every", m.every, errors)) return;
  if (m.first_layer < 0) add("moe.first_layer = ", m.first_layer, ": expected 0 or more; layers are counted from 0");
  for (size_t i = 0; i < m.dense_layers.size(); ++i) {
    const int64_t layer = m.dense_layers[i];
    if (layer >= 0 && layer < c.n_layers && (i == 0 || layer > m.dense_layers[i - 1])) continue;
    add("moe.dense_layers = a list with ", layer, ": expected ascending layers from 0 to ", c.n_layers - 1,
        ", each once; change the list");
    break;
  }
  if (c.n_layers > 0 && c.expert_layers() == 0)
    add("moe.experts = ", m.experts, ": expected at least one layer with experts, got none of ", c.n_layers,
        " by moe.first_layer = ", m.first_layer, ", moe.every = ", m.every,
        " and moe.dense_layers; change these keys, or remove moe.experts");
  if (m.rule.groups < 1 || m.experts % m.rule.groups != 0) {
    add("moe.groups = ", m.rule.groups, ": expected a divisor of moe.experts = ", m.experts,
        "; change moe.groups or moe.experts");
  } else {
    const int64_t size = m.experts / m.rule.groups;
    if (m.rule.top_groups < 1 || m.rule.top_groups > m.rule.groups ||
        (m.top_k <= m.experts && m.rule.top_groups * size < m.top_k))
      add("moe.top_groups = ", m.rule.top_groups, ": expected at most moe.groups = ", m.rule.groups, " groups, of ",
          size, " experts each, that hold at least moe.top_k = ", m.top_k,
          " experts; raise moe.top_groups or lower moe.top_k");
    if (m.rule.groups > 1 && m.rule.group_score == GroupScore::kTopTwo && size < 2)
      add("moe.group_score = \"top_two\": expected groups of at least 2 experts, got moe.experts / moe.groups = ", size,
          "; set moe.group_score = \"max\", or lower moe.groups");
  }
  if (c.ffn.act == Activation::kXielu)
    add("moe.experts = ", m.experts,
        ": expected another activation than ffn.act = \"xielu\", whose scalars belong to a layer; change ffn.act or "
        "remove moe.experts");
  if (m.shared_d_ff < 0) add("moe.shared_d_ff = ", m.shared_d_ff, ": expected 0 or more; 0 is no shared expert");
  if (m.shared_gate && m.shared_d_ff == 0)
    add("moe.shared_gate = true: expected a shared expert; set moe.shared_d_ff or remove moe.shared_gate");
  if (m.beside_ffn && (c.block.topology == Topology::kParallel || c.norm.placement == NormPlacement::kPost ||
                       c.norm.placement == NormPlacement::kOutput))
    add("moe.beside_ffn = true: expected block.topology = \"serial\" with norm.placement = \"pre\" or \"sandwich\"; "
        "change these keys or remove moe.beside_ffn");
  if (!(m.rule.scale > 0)) add("moe.scale = ", m.rule.scale, ": expected a number above 0; 1 is usual");
  const auto not_negative = [&](const char* key, double value) {
    if (!(value >= 0)) add(key, " = ", value, ": expected 0 or more; 0 turns it off");
  };
  not_negative("moe.sum_floor", m.rule.sum_floor);
  not_negative("moe.sum_eps", m.rule.sum_eps);
  not_negative("moe.bias_rate", m.bias_rate);
  not_negative("moe.balance_coef", m.balance_coef);
  not_negative("moe.z_coef", m.z_coef);
}

void add_latent_errors(const ModelConfig& c, std::vector<std::string>& errors) {
  const auto add = [&](const auto&... parts) { errors.push_back(str_cat(parts...)); };
  constexpr std::string_view kWith = " with attn.kind = \"mla\"";
  if (c.attn.v_head_dim < 0 || c.attn.v_head_dim > 512)
    add("attn.v_head_dim = ", c.attn.v_head_dim, ": expected 1 to 512, or 0 to use model.head_dim");
  if (!c.latent()) return;
  if (c.attn.kv_rank < 1) add("attn.kv_rank = ", c.attn.kv_rank, ": expected 1 or more", kWith, "; DeepSeek uses 512");
  if (c.attn.q_rank < 0)
    add("attn.q_rank = ", c.attn.q_rank, ": expected 0 or more; 0 projects the queries by one full matrix");
  if (!(c.attn.latent_eps > 0))
    add("attn.latent_eps = ", c.attn.latent_eps, ": expected a number above 0; 1e-6 is usual");
  if (c.pos.type != PosType::kRope)
    add("pos.type = \"", name_of(c.pos.type), "\": expected \"rope\"", kWith,
        ", whose attention keys have a separate rotated part; change pos.type or attn.kind");
  if (c.pos.type == PosType::kRope && c.rope.dims >= c.head_dim)
    add("rope.dims = ", c.rope.dims, ": expected less than model.head_dim = ", c.head_dim, kWith,
        ": rope.dims columns of a head rotate, and the others come from the latent; set e.g. rope.dims = ",
        std::max<int64_t>(2, c.head_dim / 3 / 2 * 2));
  if (c.rope.scaling == RopeScaling::kProportional)
    add("rope.scaling = \"proportional\": expected another scaling", kWith,
        ", where only a part of each head rotates; change rope.scaling or attn.kind");
  if (c.n_kv_heads != c.n_heads)
    add("model.n_kv_heads = ", c.n_kv_heads, ": expected ", c.n_heads, ", the value of model.n_heads,", kWith,
        ", where every head has its own keys and values; remove model.n_kv_heads");
  const auto refuse = [&](bool given, std::string_view key, const auto& value, std::string_view off) {
    if (given)
      add(key, " = ", value, " is not supported", kWith, ": expected ", off, "; change ", key, " or attn.kind");
  };
  refuse(c.qk_norm.kind != QkNorm::kNone, "attn.qk_norm", str_cat("\"", name_of(c.qk_norm.kind), "\""), "\"none\"");
  refuse(c.attn.clip_qkv.has_value(), "attn.clip_qkv", c.attn.clip_qkv.value_or(0), "\"none\"");
  refuse(c.attn.sinks, "attn.sinks", "true", "false");
  refuse(c.attn.k_eq_v, "attn.k_eq_v", "true", "false");
  refuse(c.attn.v_norm, "attn.v_norm", "true", "false");
  refuse(c.attn.global_head_dim.has_value(), "attn.global_head_dim", c.attn.global_head_dim.value_or(0), "none");
  refuse(c.attn.global_n_kv_heads.has_value(), "attn.global_n_kv_heads", c.attn.global_n_kv_heads.value_or(0), "none");
  refuse(c.rope.global_dims.has_value(), "rope.global_dims", c.rope.global_dims.value_or(0), "none");
}

void add_scaling_errors(const ModelConfig& c, std::vector<std::string>& errors) {
  const RopeConfig& r = c.rope;
  const auto add = [&](const auto&... parts) { errors.push_back(str_cat(parts...)); };
  const std::string kind = str_cat("with rope.scaling = \"", name_of(r.scaling), "\"");
  const bool has_factor = r.scaling == RopeScaling::kLinear || r.scaling == RopeScaling::kLlama3 ||
                          r.scaling == RopeScaling::kYarn || r.scaling == RopeScaling::kLongrope;
  if (has_factor && !(r.factor >= 1))
    add("rope.factor = ", r.factor, ": expected 1 or more ", kind,
        "; rope.factor is the extended context length / the original one");
  if (has_factor && r.scaling != RopeScaling::kLinear && r.original_positions < 2)
    add("rope.original_positions = ", r.original_positions, ": expected 2 or more ", kind,
        "; give the context length before scaling");
  if (r.scaling == RopeScaling::kLlama3 && !(r.high_freq_factor >= r.low_freq_factor && r.low_freq_factor > 0))
    add("rope.high_freq_factor = ", r.high_freq_factor, ", rope.low_freq_factor = ", r.low_freq_factor,
        ": expected rope.high_freq_factor >= rope.low_freq_factor > 0; 4 and 1 are usual");
  if (r.scaling == RopeScaling::kYarn && !(r.beta_fast > r.beta_slow && r.beta_slow > 0))
    add("rope.beta_fast = ", r.beta_fast, ", rope.beta_slow = ", r.beta_slow,
        ": expected rope.beta_fast > rope.beta_slow > 0; 32 and 1 are usual");
  if (r.scaling == RopeScaling::kYarn && !(r.base > 1))
    add("rope.base = ", r.base, ": expected more than 1 ", kind, "; 10000 is usual");
  if (!(r.attention_factor > 0))
    add("rope.attention_factor = ", r.attention_factor,
        ": expected a number above 0; remove rope.attention_factor to use the default");
  const auto a_pair = [&](const char* key, const std::vector<double>& factors) {
    if (r.scaling == RopeScaling::kLongrope && std::ssize(factors) != r.dims / 2)
      add(key, ": expected ", r.dims / 2, " numbers (rope.dims / 2, one per rotary pair) ", kind, ", got ",
          std::ssize(factors), "; change the list or rope.dims");
    for (const double factor : factors) {
      if (factor > 0) continue;
      add(key, " = a list with ", factor, ": expected only numbers above 0, since each divides a frequency");
      break;
    }
  };
  a_pair("rope.short_factor", r.short_factor);
  a_pair("rope.long_factor", r.long_factor);
  if (r.scaling == RopeScaling::kDynamic && (!(r.alpha >= 1) || r.dims < 4))
    add("rope.alpha = ", r.alpha, ", rope.dims = ", r.dims,
        ": expected rope.alpha of 1 or more and rope.dims of 4 or more ", kind);
  for (const double base : r.base_cycle) {
    if (base >= 0) continue;
    add("rope.base_cycle = a list with ", base, ": expected bases above 0, or 0 for layers that do not rotate");
    break;
  }
}

/// Adds the errors of keys that give layers different rotary bases or different numbers of rotated columns.
void add_rope_kind_errors(const ModelConfig& c, std::vector<std::string>& errors) {
  const RopeConfig& r = c.rope;
  const auto add = [&](const auto&... parts) { errors.push_back(str_cat(parts...)); };
  constexpr const char* kConflict = " conflicts with rope.base_cycle, which sets the base of every layer; remove ";
  if (r.local_base && !(*r.local_base > 0))
    add("rope.local_base = ", *r.local_base, ": expected a number above 0, or \"none\"; Gemma 3 uses 10000");
  if (r.local_base && !r.base_cycle.empty())
    add("rope.local_base = ", *r.local_base, kConflict, "rope.local_base or rope.base_cycle");
  if (!r.global_enabled && !r.base_cycle.empty())
    add("rope.global_enabled = false", kConflict, "rope.global_enabled or rope.base_cycle");
  if (c.head_dim < 1 || (!r.global_dims && !c.attn.global_head_dim)) return;
  const int64_t dims = global_rope_dims(c), width = c.attn.global_head_dim.value_or(c.head_dim);
  if (dims < 2 || dims % 2 != 0 || dims > width)
    add("rope.global_dims = ", dims, r.global_dims ? "" : " (rope.dims * attn.global_head_dim / model.head_dim)",
        ": expected an even number from 2 to ", width,
        ", the width of a head in layers with full attention; set rope.global_dims to such a number");
  if (r.scaling == RopeScaling::kLongrope && dims != r.dims)
    add("rope.global_dims = ", dims, ": expected ", r.dims,
        ", the value of rope.dims, with rope.scaling = \"longrope\", which has one list of factors for all layers; "
        "change rope.global_dims or "
        "rope.scaling");
}

void add_position_errors(const ModelConfig& c, std::vector<std::string>& errors) {
  const auto add = [&](const auto&... parts) { errors.push_back(str_cat(parts...)); };
  if (c.pos.type == PosType::kLearned) check_positive("pos.max_positions", c.pos.max_positions, errors);
  if (c.pos.learned_offset < 0) add("pos.learned_offset = ", c.pos.learned_offset, ": expected 0 or more; OPT uses 2");
  if (c.pos.learned_offset != 0 && c.pos.type != PosType::kLearned && c.pos.type != PosType::kSinusoidal)
    add("pos.learned_offset = ", c.pos.learned_offset, ": expected 0 with pos.type = \"", name_of(c.pos.type),
        "\", which has no table of positions; change pos.learned_offset or pos.type");
  if (c.pos.type == PosType::kT5Bias) {
    if (c.pos.t5_num_buckets < 2)
      add("pos.t5_num_buckets = ", c.pos.t5_num_buckets, ": expected 2 or more; T5 uses 32");
    else if (2 * c.pos.t5_max_distance <= c.pos.t5_num_buckets)
      add("pos.t5_max_distance = ", c.pos.t5_max_distance,
          ": expected more than pos.t5_num_buckets / 2 = ", c.pos.t5_num_buckets / 2,
          ", since each bucket of the first half holds a single distance; T5 uses 128");
  }
  if (c.pos.type == PosType::kSinusoidal && c.d_model < 4)
    add("model.d_model = ", c.d_model, ": expected 4 or more with pos.type = \"sinusoidal\", whose frequencies ",
        "divide by d_model/2 - 1; change model.d_model or pos.type");
  if (c.pos.type == PosType::kRope) {
    if (c.rope.dims < 2 || c.rope.dims % 2 != 0 || c.rope.dims > c.head_dim)
      add("rope.dims = ", c.rope.dims, ": expected an even number from 2 to model.head_dim = ", c.head_dim,
          "; change rope.dims or rope.fraction");
    if (!(c.rope.base > 0)) add("rope.base = ", c.rope.base, ": expected a number above 0; 10000 is usual");
    add_scaling_errors(c, errors);
    add_rope_kind_errors(c, errors);
  }
}

std::string masked_ids_problem(const ModelConfig& c) {
  for (size_t i = 0; i < c.masked_ids.size(); ++i) {
    const int64_t id = c.masked_ids[i];
    if (id < 0 || id >= c.vocab_size)
      return str_cat("head.masked_ids = ", id, " (entry ", i + 1, "): expected ids from 0 to ", c.vocab_size - 1,
                     ", below vocab.size; remove ", id, " from the list");
    if (i > 0 && id <= c.masked_ids[i - 1])
      return str_cat("head.masked_ids = ", id, " (entry ", i + 1, ") after ", c.masked_ids[i - 1],
                     ": expected ascending ids, each once; sort the list and remove repeated ids");
  }
  if (c.masked_ids.empty() || static_cast<int64_t>(c.masked_ids.size()) < c.vocab_size) return "";
  return str_cat("head.masked_ids = all ", c.vocab_size,
                 " ids: expected at least one id that is not masked; remove ids from the list");
}

/// Adds the errors of the embedding, the head, the loss and initial weights.
void add_head_errors(const ModelConfig& c, std::vector<std::string>& errors) {
  const auto add = [&](const auto&... parts) { errors.push_back(str_cat(parts...)); };
  if (!(c.embed_scale > 0)) add("embed.scale = ", c.embed_scale, ": expected a number above 0; 1 is usual");
  if (!(c.logit_scale > 0)) add("head.logit_scale = ", c.logit_scale, ": expected a number above 0; 1 is usual");
  if (c.softcap && !(*c.softcap > 0))
    add("head.softcap = ", *c.softcap, ": expected a number above 0, or \"none\"; Gemma 2 uses 30");
  if (const std::string text = masked_ids_problem(c); !text.empty()) errors.push_back(text);
  if (!(c.loss.z_coef >= 0)) add("loss.z_coef = ", c.loss.z_coef, ": expected 0 or more; 0 turns the z-loss off");
  if (!(c.init.std > 0)) add("init.std = ", c.init.std, ": expected a number above 0; 0.02 is usual");
  if (c.init.trunc_sigma && !(*c.init.trunc_sigma >= RandomFill::kLeastTruncSigma))
    add("init.trunc_sigma = ", *c.init.trunc_sigma, ": expected ", RandomFill::kLeastTruncSigma,
        " or more, or \"none\"; OLMo uses 3");
  if (!(c.init.residual_scale > 0))
    add("init.residual_scale = ", c.init.residual_scale,
        ": expected a number above 0; 1 leaves the standard deviations of init.scheme unchanged");
}

}  // namespace

std::vector<std::string> constraint_errors(const ModelConfig& c) {
  std::vector<std::string> errors;
  const auto add = [&](const auto&... parts) { errors.push_back(str_cat(parts...)); };
  add_size_errors(c, errors);
  add_block_errors(c, errors);
  add_expert_errors(c, errors);
  add_latent_errors(c, errors);
  if (!(c.block.residual_multiplier > 0))
    add("block.residual_multiplier = ", c.block.residual_multiplier, ": expected a number above 0; 1 is usual");
  if (c.embed_dim) check_positive("model.embed_dim", *c.embed_dim, errors);
  add_position_errors(c, errors);
  const auto probability = [&](std::string_view key, double p) {
    if (!(p >= 0 && p < 1)) add(key, " = ", p, ": expected a probability from 0 to below 1; 0 turns dropout off");
  };
  probability("dropout.embed", c.dropout.embed);
  probability("dropout.attn", c.dropout.attn);
  probability("dropout.resid", c.dropout.resid);
  add_attention_errors(c, errors);
  add_head_errors(c, errors);
  return errors;
}

}  // namespace ashlar::model
