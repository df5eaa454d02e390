#include "launch/hf/hf_tensors.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/error.h"
#include "core/base/strings.h"
#include "launch/hf/hf_config.h"

namespace ashlar::hf {
namespace {

using model::ModelConfig;
using model::Topology;

/// Returns the row blocks of q, k and v in the fused tensor of all three, group after group (TensorNames::qkv_groups):
///   GPT-2, Phi3, MPT: one group with all queries, then all keys, then all values.
///   NeoX, Falcon, GPTBigCode, BLOOM, Persimmon: one group per KV head with its queries, its key and its value. This
///   covers Falcon's three layouts: multi-query attention has one group, multi-head attention has n_heads groups, and
///   grouped-query attention has n_kv_heads groups.
///   CodeGen: four groups of heads; in each group the values come before the keys.
std::array<std::vector<RowBlock>, 3> fused_rows(const ModelConfig& m, const TensorNames& names) {
  const int64_t groups = names.qkv_groups > 0 ? names.qkv_groups : m.n_kv_heads;
  const int64_t queries = m.q_width() / groups, keys = m.kv_width() / groups;
  std::array<std::vector<RowBlock>, 3> rows;
  int64_t at = 0;
  for (int64_t g = 0; g < groups; ++g) {
    rows[0].push_back({at, g * queries, queries});
    rows[names.qkv_values_first ? 2 : 1].push_back({at + queries, g * keys, keys});
    rows[names.qkv_values_first ? 1 : 2].push_back({at + queries + keys, g * keys, keys});
    at += queries + 2 * keys;
  }
  return rows;
}

bool is_named(std::string_view name) { return !name.empty(); }

/// Builds the list of tensors of one model.
class Builder {
 public:
  Builder(const TensorNames& names, const ModelConfig& m, size_t expert_form)
      : m_(m), names_(names), expert_form_(expert_form) {}

  std::vector<TensorMapping> build() {
    const std::string prefix = names_.prefix;
    const int64_t width = m_.table_width();
    whole(prefix + names_.tokens + ".weight", "embed.tokens.weight", {m_.vocab_size, width});
    if (m_.embed_dim) whole(prefix + names_.project_in + ".weight", "embed.project.weight", {m_.d_model, width});
    if (m_.pos.type == model::PosType::kLearned) {
      whole(prefix + names_.positions + ".weight", "embed.positions.weight",
            {m_.pos.max_positions + m_.pos.learned_offset, m_.d_model});
    }
    if (m_.norm.embed) norm(prefix + names_.norm_embed, "embed.norm");
    for (int64_t i = 0; i < m_.n_layers; ++i) block(i);
    if (m_.norm.final) norm(prefix + names_.norm_final, "norm_final");
    if (m_.embed_dim) whole(prefix + names_.project_out + ".weight", "head.project.weight", {width, m_.d_model});
    if (!m_.tied) {
      whole(std::string(names_.head) + ".weight", "head.weight", {m_.vocab_size, width});
      if (is_named(names_.head_alias)) list_.back().hf_alias = std::string(names_.head_alias) + ".weight";
    }
    if (m_.bias.lm_head) whole(std::string(names_.head) + ".bias", "head.bias", {m_.vocab_size});
    return std::move(list_);
  }

 private:
  void whole(const std::string& hf, const std::string& ours, std::vector<int64_t> shape) {
    const int64_t rows = shape[0];
    list_.push_back({.hf_name = hf, .hf_shape = shape, .parts = {{ours, shape, {{0, 0, rows}}}}});
  }

  void norm(const std::string& hf, const std::string& ours) {
    if (m_.norm.affine != model::NormAffine::kNone) whole(hf + ".weight", ours + ".weight", {m_.d_model});
    if (m_.norm.affine == model::NormAffine::kScaleBias) whole(hf + ".bias", ours + ".bias", {m_.d_model});
  }

  /// Adds the norm of `heads` queries or keys, which has gains.
  void head_norm(const std::string& hf, const std::string& ours, int64_t heads, int64_t head_dim) {
    const std::vector<int64_t> shape = model::qk_norm_shape(m_, heads, head_dim);
    whole(hf + ".weight", ours + ".weight", shape);
    if (m_.qk_norm.bias) whole(hf + ".bias", ours + ".bias", shape);
  }

  struct Part {
    std::string name;  ///< Ashlar name, without .weight or .bias
    int64_t rows;
    std::vector<RowBlock> blocks;
  };

  /// Adds a linear layer of the file, which is one Ashlar layer or several fused ones. Each has `in` inputs.
  void linear(const std::string& hf, const std::vector<Part>& parts, int64_t in, bool bias) {
    int64_t out = 0;
    for (const Part& part : parts) out += part.rows;
    TensorMapping weight{.hf_name = hf + ".weight", .hf_shape = {out, in}};
    weight.transpose = names_.transposed;
    if (weight.transpose) weight.hf_shape = {in, out};
    TensorMapping vector{.hf_name = hf + ".bias", .hf_shape = {out}};
    for (const Part& part : parts) {
      weight.parts.push_back({part.name + ".weight", {part.rows, in}, part.blocks});
      vector.parts.push_back({part.name + ".bias", {part.rows}, part.blocks});
    }
    list_.push_back(std::move(weight));
    if (bias) list_.push_back(std::move(vector));
  }

  void block(int64_t i) {
    const TensorNames& n = names_;
    const std::string hf = str_cat(n.prefix, n.layers, i, ".");
    const std::string ours = str_cat("blocks.", i, ".");
    const bool parallel = m_.block.topology == Topology::kParallel;
    const bool output = m_.norm.placement == model::NormPlacement::kOutput;
    const bool two_norms = !parallel || m_.block.parallel_norms == 2;
    const bool renamed = parallel && two_norms && is_named(n.norm1_of_two);
    if (!output) {
      norm(hf + (renamed ? n.norm1_of_two : n.norm1), ours + "norm1");
      if (two_norms) norm(hf + (renamed ? n.norm2_of_two : n.norm2), ours + "norm2");
    }
    if (output || m_.norm.placement == model::NormPlacement::kSandwich) {
      norm(hf + n.norm1_out, ours + "norm1_out");
      norm(hf + n.norm2_out, ours + "norm2_out");
    }
    const model::LayerHeads heads = model::layer_heads(m_, i);
    if (model::qk_norm_has_gain(m_) && model::has_qk_norm(m_, i)) {
      head_norm(hf + n.q_norm, ours + "attn.q_norm", m_.n_heads, heads.head_dim);
      head_norm(hf + n.k_norm, ours + "attn.k_norm", heads.n_kv_heads, heads.head_dim);
    }
    if (m_.block.out_scalar) whole(hf + n.out_scalar, ours + "out_scalar", {1});

    if (m_.attn.sinks) whole(hf + n.sinks, ours + "attn.sinks", {m_.n_heads});
    const bool latent = m_.attn.kind == model::AttentionKind::kMla;
    latent ? latent_attention(hf + "self_attn.", ours + "attn.") : attention(hf, ours, heads);
    linear(hf + n.attn_out, {one(ours + "attn.out", m_.d_model)}, m_.n_heads * heads.v_head_dim, m_.bias.attn_out);
    if (!m_.has_experts(i) || m_.moe.beside_ffn) feed_forward(hf, ours);
    if (!m_.has_experts(i)) return;
    experts(hf, ours + "moe.");
    if (!m_.moe.beside_ffn) return;
    norm(hf + n.ffn_norm_out, ours + "ffn.norm_out");
    norm(hf + n.experts_norm_in, ours + "moe.norm_in");
    norm(hf + n.experts_norm_out, ours + "moe.norm_out");
  }

  void feed_forward(const std::string& hf, const std::string& ours) {
    const TensorNames& n = names_;
    if (m_.ffn.gated && is_named(n.gate_up)) {
      linear(hf + n.gate_up,
             {{ours + "ffn.gate", m_.d_ff, {{0, 0, m_.d_ff}}}, {ours + "ffn.up", m_.d_ff, {{m_.d_ff, 0, m_.d_ff}}}},
             m_.d_model, m_.bias.ffn);
    } else {
      if (m_.ffn.gated) linear(hf + n.gate, {one(ours + "ffn.gate", m_.d_ff)}, m_.d_model, m_.bias.ffn);
      linear(hf + n.up, {one(ours + "ffn.up", m_.d_ff)}, m_.d_model, m_.bias.ffn);
    }
    linear(hf + n.down, {one(ours + "ffn.down", m_.d_model)}, m_.d_ff, m_.bias.ffn);
    if (m_.ffn.act == Activation::kXielu) xielu(hf + "mlp.act_fn.", ours + "ffn.");
  }

  void experts(const std::string& hf, const std::string& ours) {
    const TensorNames& n = names_;
    ASHLAR_CHECK(expert_form_ < n.expert_forms.size(), "form ", expert_form_, " of the experts of ", hf);
    linear(hf + n.router, {one(ours + "router", m_.moe.experts)}, m_.d_model, false);
    if (is_named(n.router_alias)) list_.back().hf_alias = str_cat(hf, n.router_alias, ".weight");
    if (m_.moe.router_bias) whole(str_cat(hf, n.router, ".bias"), ours + "router.bias", {m_.moe.experts});
    if (m_.moe.router_norm) whole(hf + n.router_scale, ours + "router.scale", {m_.d_model});
    if (m_.moe.expert_scale) whole(hf + n.expert_scale, ours + "expert_scale", {m_.moe.experts});
    if (m_.moe.selection_bias) {
      whole(hf + n.selection_bias, ours + "router.selection_bias", {m_.moe.experts});
      list_.back().wide = true;
      if (n.selection_bias_row) {
        list_.back().hf_shape = {1, m_.moe.experts};
        list_.back().stacked = true;
      }
    }
    const ExpertForm& form = n.expert_forms[expert_form_];
    if (form.fused) {
      fused_experts(form, hf + form.experts, ours + "experts.");
    } else {
      for (int64_t e = 0; e < m_.moe.experts; ++e) {
        const std::string theirs = str_cat(hf, form.experts, e, ".");
        network(str_cat(ours, "experts.", e, "."), {theirs + form.gate, theirs + form.up, theirs + form.down},
                m_.moe.d_ff);
      }
    }
    if (m_.moe.shared_d_ff > 0) {
      const std::string shared = hf + n.shared;
      const int64_t F = m_.moe.shared_d_ff;
      if (is_named(n.shared_gate_up)) {
        linear(shared + n.shared_gate_up,
               {{ours + "shared.gate", F, {{0, 0, F}}}, {ours + "shared.up", F, {{F, 0, F}}}}, m_.d_model, m_.bias.ffn);
        linear(shared + n.shared_down, {one(ours + "shared.down", m_.d_model)}, F, m_.bias.ffn);
      } else {
        network(ours + "shared.", {shared + "gate_proj", shared + "up_proj", shared + n.shared_down}, F);
      }
    }
    if (m_.moe.shared_gate) linear(hf + n.shared_gate, {one(ours + "shared_gate", 1)}, m_.d_model, false);
  }

  /// Adds a feed-forward network with a tensor for each matrix. `hf`: names of gate, up and down in the files.
  void network(const std::string& ours, const std::array<std::string, 3>& hf, int64_t width) {
    if (m_.ffn.gated) linear(hf[0], {one(ours + "gate", width)}, m_.d_model, m_.bias.ffn);
    linear(hf[1], {one(ours + "up", width)}, m_.d_model, m_.bias.ffn);
    linear(hf[2], {one(ours + "down", m_.d_model)}, width, m_.bias.ffn);
  }

  /// Adds the tensors that hold the matrices of all experts, or their biases.
  void fused_experts(const ExpertForm& form, const std::string& hf, const std::string& ours) {
    const int64_t E = m_.moe.experts, F = m_.moe.d_ff, C = m_.d_model, step = form.interleaved ? 2 : 1;
    std::vector<Part> in, out;
    for (int64_t e = 0; e < E; ++e) {
      const std::string expert = str_cat(ours, e, ".");
      in.push_back({expert + "gate", F, {{2 * F * e, 0, F, step}}});
      in.push_back({expert + "up", F, {{2 * F * e + (form.interleaved ? 1 : F), 0, F, step}}});
      out.push_back({expert + "down", C, {{C * e, 0, C}}});
    }
    stacked(form, hf + form.gate_up, in, {E, 2 * F, C});
    stacked(form, hf + form.down, out, {E, C, F});
  }

  /// Adds matrices [shape[1], shape[2]] that lie one after another, and then their biases.
  void stacked(const ExpertForm& form, const std::string& hf, const std::vector<Part>& parts,
               const std::array<int64_t, 3>& shape) {
    const auto [E, rows, cols] = shape;
    TensorMapping weight{.hf_name = hf, .hf_shape = {E, rows, cols}, .transpose = form.transposed, .stacked = true};
    if (form.transposed) weight.hf_shape = {E, cols, rows};
    TensorMapping bias{.hf_name = hf + "_bias", .hf_shape = {E, rows}, .stacked = true};
    for (const Part& part : parts) {
      weight.parts.push_back({part.name + ".weight", {part.rows, cols}, part.blocks});
      bias.parts.push_back({part.name + ".bias", {part.rows}, part.blocks});
    }
    list_.push_back(std::move(weight));
    if (m_.bias.ffn) list_.push_back(std::move(bias));
  }

  /// Adds the two learned scalars of xIELU, and the two constants that the class also stores as tensors.
  void xielu(const std::string& hf, const std::string& ours) {
    for (const char* scalar : {"alpha_p", "alpha_n"}) whole(hf + scalar, ours + scalar, {1});
    list_.push_back({.hf_name = hf + "beta", .constant = kXieluBeta});
    list_.push_back({.hf_name = hf + "eps", .constant = kXieluEps});
  }

  /// In the file, the rotated dimensions of a head come last; in Ashlar they come first. The file has keys and values
  /// in one tensor, head by head; Ashlar has one tensor for all keys and one for all values.
  void latent_attention(const std::string& hf, const std::string& ours) {
    const int64_t H = m_.n_heads, D = m_.head_dim, R = m_.rope.dims, P = D - R;
    const int64_t V = model::layer_heads(m_, 0).v_head_dim, q_rank = m_.attn.q_rank, kv_rank = m_.attn.kv_rank;
    std::vector<RowBlock> q, k, v;
    for (int64_t h = 0; h < H; ++h) {
      q.push_back({h * D, h * D + R, P});
      q.push_back({h * D + P, h * D, R});
      k.push_back({h * (P + V), h * P, P});
      v.push_back({h * (P + V) + P, h * V, V});
    }
    if (q_rank > 0) {
      linear(hf + "q_a_proj", {one(ours + "q_a", q_rank)}, m_.d_model, m_.bias.qkv);
      whole(hf + "q_a_layernorm.weight", ours + "q_a_norm.weight", {q_rank});
      linear(hf + "q_b_proj", {{ours + "q_b", H * D, std::move(q)}}, q_rank, false);
    } else {
      linear(hf + "q_proj", {{ours + "q", H * D, std::move(q)}}, m_.d_model, false);
    }
    linear(hf + "kv_a_proj_with_mqa", {one(ours + "kv_a", kv_rank + R)}, m_.d_model, m_.bias.qkv);
    whole(hf + "kv_a_layernorm.weight", ours + "kv_a_norm.weight", {kv_rank});
    linear(hf + "kv_b_proj", {{ours + "k_b", H * P, std::move(k)}, {ours + "v_b", H * V, std::move(v)}}, kv_rank,
           false);
  }

  void attention(const std::string& hf, const std::string& ours, const model::LayerHeads& heads) {
    const TensorNames& n = names_;
    const std::array<std::string, 3> our_names = {ours + "attn.q", ours + "attn.k", ours + "attn.v"};
    const std::array<int64_t, 3> rows = {m_.n_heads * heads.head_dim, heads.k_width(), heads.v_width()};
    if (!is_named(n.qkv)) {
      const std::array<const char*, 3> hf_names = {n.q, n.k, n.v};
      for (size_t p = 0; p < (heads.values ? 3 : 2); ++p)
        linear(hf + hf_names[p], {one(our_names[p], rows[p])}, m_.d_model, m_.bias.qkv);
      return;
    }
    auto blocks = fused_rows(m_, n);
    std::vector<Part> parts;
    for (size_t p = 0; p < 3; ++p) parts.push_back({our_names[p], rows[p], std::move(blocks[p])});
    linear(hf + n.qkv, parts, m_.d_model, m_.bias.qkv);
  }

  static Part one(std::string name, int64_t rows) { return {std::move(name), rows, {{0, 0, rows}}}; }

  const ModelConfig& m_;
  const TensorNames& names_;
  size_t expert_form_;
  std::vector<TensorMapping> list_;
};

}  // namespace

RowLayout row_layout(const TensorMapping& mapping) {
  const std::vector<int64_t>& shape = mapping.hf_shape;
  const size_t first = mapping.stacked ? 1 : 0;
  RowLayout layout{.matrices = mapping.stacked ? shape[0] : 1, .rows = shape[first]};
  if (shape.size() > first + 1) layout.row_elems = shape[first + 1];
  if (mapping.transpose) std::swap(layout.rows, layout.row_elems);
  return layout;
}

std::vector<TensorMapping> tensor_mappings(const Family& family, const ModelConfig& config, size_t expert_form) {
  return Builder(family.tensors, config, expert_form).build();
}

bool is_ignored_buffer(const Family& family, std::string_view hf_name) {
  const std::vector<std::string_view>& ends = family.tensors.buffers;
  return std::ranges::any_of(ends, [&](std::string_view end) { return hf_name.ends_with(end); });
}

bool is_other_part(const Family& family, std::string_view hf_name) {
  return !family.tensors.other_part.empty() && hf_name.starts_with(family.tensors.other_part);
}

bool is_of_further_block(const HfConfig& config, std::string_view hf_name) {
  const TensorNames& n = config.family->tensors;
  if (is_named(n.further_blocks) && hf_name.find(n.further_blocks) != std::string_view::npos) return true;
  for (int64_t i = 0; i < config.further_layers; ++i)
    if (hf_name.starts_with(str_cat(n.prefix, n.layers, config.model.n_layers + i, "."))) return true;
  return false;
}

std::vector<std::string> head_names(const Family& family) {
  std::vector<std::string> names = {std::string(family.tensors.head) + ".weight"};
  if (is_named(family.tensors.head_alias)) names.push_back(std::string(family.tensors.head_alias) + ".weight");
  return names;
}

}  // namespace ashlar::hf
