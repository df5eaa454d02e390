#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/strings.h"
#include "launch/hf/hf_config.h"

namespace ashlar::hf {
namespace {

using model::ModelConfig;
using model::NormAffine;
using model::PosType;
using model::Topology;
using Json = nlohmann::ordered_json;

double default_scale(const ModelConfig& m) { return 1.0 / std::sqrt(static_cast<double>(m.head_dim)); }
bool close(double a, double b) { return std::abs(a - b) <= 1e-12 * std::abs(b); }

/// Collects the axes that a class lacks.
class Judge {
 public:
  Judge(Family family, const ModelConfig& m) : family_(family), m_(m) {}

  std::vector<std::string> verdict() {
    common();
    switch (family_) {
      case Family::kGpt2: gpt2(); break;
      case Family::kGptJ: gptj(); break;
      case Family::kGptNeoX: gpt_neox(); break;
      case Family::kLlama: llama(); break;
      case Family::kQwen2: qwen2(); break;
      case Family::kPhi: phi(); break;
      case Family::kPhi3: phi3(); break;
      case Family::kStableLm: stablelm(); break;
      case Family::kFalcon: falcon(); break;
    }
    return std::move(found_);
  }

 private:
  template <typename Got, typename... Want>
  void need(bool holds, std::string_view axis, const Got& got, const Want&... want) {
    if (!holds) found_.push_back(str_cat(axis, " = ", got, ": ", class_name(family_), " has ", want...));
  }
  static std::string_view word(bool v) { return v ? "true" : "false"; }

  void common() { need(m_.norm.final, "norm.final", "false", "a final norm"); }
  void norm(NormType type) {
    need(m_.norm.type == type, "norm.type", model::name_of(m_.norm.type), model::name_of(type));
    const NormAffine affine = type == NormType::kLayerNorm ? NormAffine::kScaleBias : NormAffine::kScale;
    need(m_.norm.affine == affine, "norm.affine", model::name_of(m_.norm.affine), model::name_of(affine));
  }
  void topology(Topology topology) {
    need(m_.block.topology == topology, "block.topology", model::name_of(m_.block.topology), model::name_of(topology));
  }
  void norms(int count) {
    need(m_.block.topology == Topology::kSerial || m_.block.parallel_norms == count, "block.parallel_norms",
         m_.block.parallel_norms, count);
  }
  void gated(bool gated) { need(m_.ffn.gated == gated, "ffn.gated", word(m_.ffn.gated), word(gated)); }
  void bias(std::string_view axis, bool got, bool want) { need(got == want, axis, word(got), word(want)); }
  void biases(bool qkv, bool attn_out, bool ffn, bool lm_head) {
    bias("bias.qkv", m_.bias.qkv, qkv);
    bias("bias.attn_out", m_.bias.attn_out, attn_out);
    bias("bias.ffn", m_.bias.ffn, ffn);
    bias("bias.lm_head", m_.bias.lm_head, lm_head);
  }
  void multi_head() { need(m_.n_kv_heads == m_.n_heads, "model.n_kv_heads", m_.n_kv_heads, "one KV head a head"); }
  void narrow_heads() {
    need(m_.head_dim * m_.n_heads == m_.d_model, "model.head_dim", m_.head_dim, "d_model / n_heads");
  }
  void rotary(RopeStyle style, bool whole_heads) {
    need(m_.pos.type == PosType::kRope, "pos.type", model::name_of(m_.pos.type), "rope");
    if (m_.pos.type != PosType::kRope) return;
    need(m_.rope.style == style, "rope.style", model::name_of(m_.rope.style), model::name_of(style));
    if (whole_heads) need(m_.rope.dims == m_.head_dim, "rope.dims", m_.rope.dims, "the whole head, ", m_.head_dim);
  }
  void scale() {
    need(close(m_.attn_scale, default_scale(m_)), "attn.scale", m_.attn_scale, "head_dim^-0.5 = ", default_scale(m_));
  }
  void dropout(std::string_view axis, double got, double want) { need(got == want, axis, got, want); }

  void gpt2() {
    topology(Topology::kSerial);
    norm(NormType::kLayerNorm);
    gated(false);
    biases(true, true, true, false);
    multi_head();
    narrow_heads();
    need(m_.pos.type == PosType::kLearned, "pos.type", model::name_of(m_.pos.type), "learned");
    if (m_.attn_scale != 1.0) scale();
  }
  void gptj() {
    topology(Topology::kParallel);
    norms(1);
    norm(NormType::kLayerNorm);
    gated(false);
    biases(false, false, true, true);
    multi_head();
    narrow_heads();
    rotary(RopeStyle::kInterleaved, false);
    if (m_.pos.type == PosType::kRope) need(m_.rope.base == 10000.0, "rope.base", m_.rope.base, "10000");
    scale();
  }
  void gpt_neox() {
    norms(2);
    norm(NormType::kLayerNorm);
    gated(false);
    biases(m_.bias.qkv, m_.bias.qkv, true, false);
    multi_head();
    narrow_heads();
    rotary(RopeStyle::kHalf, false);
    scale();
    dropout("dropout.embed", m_.dropout.embed, m_.dropout.resid);
  }
  void llama() {
    topology(Topology::kSerial);
    norm(NormType::kRmsNorm);
    gated(true);
    biases(m_.bias.qkv, m_.bias.qkv, m_.bias.ffn, false);
    need(m_.d_model % m_.n_heads == 0, "model.n_heads", m_.n_heads, "a divisor of d_model");
    rotary(RopeStyle::kHalf, true);
    scale();
    dropout("dropout.embed", m_.dropout.embed, 0);
    dropout("dropout.resid", m_.dropout.resid, 0);
  }
  void qwen2() {
    topology(Topology::kSerial);
    norm(NormType::kRmsNorm);
    gated(true);
    biases(true, false, false, false);
    rotary(RopeStyle::kHalf, true);
    scale();
    dropout("dropout.embed", m_.dropout.embed, 0);
    dropout("dropout.resid", m_.dropout.resid, 0);
  }
  void phi() {
    topology(Topology::kParallel);
    norms(1);
    norm(NormType::kLayerNorm);
    gated(false);
    biases(true, true, true, true);
    rotary(RopeStyle::kHalf, false);
    scale();
  }
  void phi3() {
    topology(Topology::kSerial);
    norm(NormType::kRmsNorm);
    gated(true);
    biases(false, false, false, false);
    rotary(RopeStyle::kHalf, false);
    scale();
    dropout("dropout.embed", m_.dropout.embed, 0);
  }
  void stablelm() {
    norms(1);
    norm(NormType::kLayerNorm);
    gated(true);
    biases(m_.bias.qkv, false, false, false);
    narrow_heads();
    rotary(RopeStyle::kHalf, false);
    scale();
    dropout("dropout.embed", m_.dropout.embed, 0);
    dropout("dropout.resid", m_.dropout.resid, 0);
  }
  void falcon() {
    norm(NormType::kLayerNorm);
    gated(false);
    biases(m_.bias.qkv, m_.bias.qkv, m_.bias.qkv, false);
    narrow_heads();
    need(m_.block.topology == Topology::kParallel || m_.n_kv_heads == 1 || m_.n_kv_heads == m_.n_heads,
         "model.n_kv_heads", m_.n_kv_heads, "1 or one a head in a serial block");
    rotary(RopeStyle::kHalf, true);
    scale();
    dropout("dropout.embed", m_.dropout.embed, 0);
    dropout("dropout.attn", m_.dropout.attn, 0);
    dropout("dropout.resid", m_.dropout.resid, 0);
  }

  Family family_;
  const ModelConfig& m_;
  std::vector<std::string> found_;
};

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : "; ") + text;
  return all;
}

const char* activation_name(Activation act) {
  switch (act) {
    case Activation::kRelu: return "relu";
    case Activation::kGeluErf: return "gelu";
    case Activation::kGeluTanh: return "gelu_new";
    case Activation::kSilu: return "silu";
    case Activation::kRelu2: return "relu2";
    case Activation::kQuickGelu: return "quick_gelu";
  }
  throw Bug("Activation out of range");
}

/// The fraction that int(head_dim * fraction) turns back into dims: the quotient may round to just below.
double fraction_of(const ModelConfig& m) {
  double fraction = static_cast<double>(m.rope.dims) / static_cast<double>(m.head_dim);
  while (model::rope_dims_of(m.head_dim, fraction) < m.rope.dims) {
    fraction = std::nextafter(fraction, std::numeric_limits<double>::infinity());
  }
  return fraction;
}

void put_rope(Json& j, const ModelConfig& m, bool has_fraction, const char* base_key = "rope_theta",
              const char* fraction_key = "partial_rotary_factor") {
  Json parameters = {{"rope_type", "default"}, {"rope_theta", m.rope.base}};
  if (has_fraction) parameters["partial_rotary_factor"] = fraction_of(m);
  j["rope_parameters"] = parameters;  // transformers 5
  j[base_key] = m.rope.base;          // transformers 4
  if (has_fraction) j[fraction_key] = fraction_of(m);
  j["rope_scaling"] = nullptr;
}

void put_gpt_sizes(Json& j, const HfConfig& c) {
  const ModelConfig& m = c.model;
  j["vocab_size"] = m.vocab_size;
  j["n_positions"] = c.family == Family::kGpt2 ? m.pos.max_positions : c.extras.max_positions;
  j["n_embd"] = m.d_model;
  j["n_layer"] = m.n_layers;
  j["n_head"] = m.n_heads;
  j["n_inner"] = m.d_ff;
  j["activation_function"] = activation_name(m.ffn.act);
  j["layer_norm_epsilon"] = m.norm.eps;
  j["embd_pdrop"] = m.dropout.embed;
  j["attn_pdrop"] = m.dropout.attn;
  j["resid_pdrop"] = m.dropout.resid;
}

void put_sizes(Json& j, const HfConfig& c) {
  const ModelConfig& m = c.model;
  j["vocab_size"] = m.vocab_size;
  j["max_position_embeddings"] = c.extras.max_positions;
  j["hidden_size"] = m.d_model;
  j["num_hidden_layers"] = m.n_layers;
  j["num_attention_heads"] = m.n_heads;
  j[c.family == Family::kFalcon ? "ffn_hidden_size" : "intermediate_size"] = m.d_ff;
  j[c.family == Family::kFalcon ? "activation" : "hidden_act"] = activation_name(m.ffn.act);
  j["attention_dropout"] = m.dropout.attn;
  switch (c.family) {
    case Family::kLlama:
    case Family::kQwen2:
    case Family::kPhi3: j["rms_norm_eps"] = m.norm.eps; break;
    case Family::kFalcon: j["layer_norm_epsilon"] = m.norm.eps; break;
    default: j["layer_norm_eps"] = m.norm.eps; break;
  }
}

/// head_dim is written where the class reads it and it is not width / heads.
void put_head_dim(Json& j, const ModelConfig& m) {
  if (m.head_dim * m.n_heads != m.d_model) j["head_dim"] = m.head_dim;
}

void put_falcon(Json& j, const ModelConfig& m) {
  const bool is_parallel = m.block.topology == Topology::kParallel;
  const bool one_norm = !is_parallel || m.block.parallel_norms == 1;
  const bool old_layout = one_norm && (m.n_kv_heads == 1 || m.n_kv_heads == m.n_heads);
  j["new_decoder_architecture"] = !old_layout;
  j["multi_query"] = old_layout ? m.n_kv_heads == 1 : true;
  j["parallel_attn"] = is_parallel;
  j["num_kv_heads"] = m.n_kv_heads;
  if (!old_layout) j["num_ln_in_parallel_attn"] = m.block.parallel_norms;
  j["bias"] = m.bias.qkv;
  j["alibi"] = false;
  j["hidden_dropout"] = m.dropout.resid;
  put_rope(j, m, false);
}

void put_class(Json& j, const HfConfig& c) {
  const ModelConfig& m = c.model;
  const bool is_parallel = m.block.topology == Topology::kParallel;
  switch (c.family) {
    case Family::kGpt2:
      put_gpt_sizes(j, c);
      j["scale_attn_weights"] = m.attn_scale != 1.0;
      j["scale_attn_by_inverse_layer_idx"] = false;
      return;
    case Family::kGptJ:
      put_gpt_sizes(j, c);
      j["rotary_dim"] = m.rope.dims;
      return;
    case Family::kFalcon: put_sizes(j, c); return put_falcon(j, m);
    default: break;
  }
  put_sizes(j, c);
  if (c.family != Family::kGptNeoX) j["num_key_value_heads"] = m.n_kv_heads;
  switch (c.family) {
    case Family::kGptNeoX:
      j["use_parallel_residual"] = is_parallel;
      j["attention_bias"] = m.bias.qkv;
      j["hidden_dropout"] = m.dropout.resid;
      put_rope(j, m, true, "rotary_emb_base", "rotary_pct");
      break;
    case Family::kLlama:
      j["head_dim"] = m.head_dim;
      j["attention_bias"] = m.bias.qkv;
      j["mlp_bias"] = m.bias.ffn;
      put_rope(j, m, false);
      break;
    case Family::kQwen2:
      put_head_dim(j, m);
      j["use_sliding_window"] = false;
      put_rope(j, m, false);
      break;
    case Family::kPhi:
      put_head_dim(j, m);
      j["embd_pdrop"] = m.dropout.embed;
      j["resid_pdrop"] = m.dropout.resid;
      j["qk_layernorm"] = false;
      put_rope(j, m, true);
      break;
    case Family::kPhi3:
      put_head_dim(j, m);
      j["original_max_position_embeddings"] = c.extras.max_positions;
      j["sliding_window"] = nullptr;
      j["resid_pdrop"] = m.dropout.resid;
      put_rope(j, m, true);
      break;
    case Family::kStableLm:
      j["use_parallel_residual"] = is_parallel;
      j["use_qkv_bias"] = m.bias.qkv;
      j["qk_layernorm"] = false;
      j["hidden_dropout"] = m.dropout.resid;
      put_rope(j, m, true);
      break;
    default: throw Bug("hf::Family out of range");
  }
}

Json id_or_null(const std::optional<int64_t>& id) { return id ? Json(*id) : Json(nullptr); }

}  // namespace

std::vector<std::string> obstacles(Family family, const ModelConfig& config) { return Judge(family, config).verdict(); }

ModelConfig completed(Family family, const ModelConfig& config) {
  ModelConfig m = config;
  if (m.norm.type == NormType::kLayerNorm) m.norm.affine = NormAffine::kScaleBias;
  if (m.norm.affine == NormAffine::kNone) m.norm.affine = NormAffine::kScale;
  switch (family) {
    case Family::kGpt2: m.bias.qkv = m.bias.attn_out = m.bias.ffn = true; break;
    case Family::kGptJ: m.bias.ffn = m.bias.lm_head = true; break;
    case Family::kGptNeoX: m.bias.ffn = true; [[fallthrough]];
    case Family::kLlama: m.bias.qkv = m.bias.attn_out = m.bias.qkv || m.bias.attn_out; break;
    case Family::kQwen2: m.bias.qkv = true; break;
    case Family::kPhi: m.bias = {.qkv = true, .attn_out = true, .ffn = true, .lm_head = true}; break;
    case Family::kFalcon:
      m.bias.qkv = m.bias.attn_out = m.bias.ffn = m.bias.qkv || m.bias.attn_out || m.bias.ffn;
      break;
    case Family::kPhi3:
    case Family::kStableLm: break;
  }
  return m;
}

bool is_completion(const ModelConfig& config, std::string_view name) {
  const bool norm = name.find("norm") != std::string_view::npos;
  if (norm && name.ends_with(".weight")) return config.norm.affine == NormAffine::kNone;
  if (!name.ends_with(".bias")) return false;
  if (norm) return config.norm.affine != NormAffine::kScaleBias;
  if (name.find(".attn.out.") != std::string_view::npos) return !config.bias.attn_out;
  if (name.find(".attn.") != std::string_view::npos) return !config.bias.qkv;
  if (name.find(".ffn.") != std::string_view::npos) return !config.bias.ffn;
  return !config.bias.lm_head;
}

Family choose_family(const ModelConfig& config, std::optional<Family> wanted) {
  const auto in_the_way = [&](Family family) { return obstacles(family, completed(family, config)); };
  Family nearest = wanted.value_or(kFamilies.front());
  std::vector<std::string> fewest = in_the_way(nearest);
  if (!wanted) {
    for (const Family family : kFamilies) {
      if (obstacles(family, config).empty()) return family;
      std::vector<std::string> found = in_the_way(family);
      if (found.size() >= fewest.size()) continue;
      nearest = family;
      fewest = std::move(found);
    }
  }
  if (fewest.empty()) return nearest;
  throw input_error("hf",
                    wanted ? "this model is no " : "no Hugging Face class that is written has this model; nearest is ",
                    class_name(nearest), ": ", joined(fewest));
}

std::string write_hf_config(const HfConfig& config, std::string_view dtype) {
  if (const auto found = obstacles(config.family, config.model); !found.empty()) throw Bug(joined(found));
  if (config.family != Family::kGpt2 && config.extras.max_positions < 1) {
    throw input_error("hf", "expected the longest context in tokens, got ", config.extras.max_positions,
                      "; a model with rotary positions does not say it, so give it");
  }
  Json j;
  j["architectures"] = {class_name(config.family)};
  j["model_type"] = model_type(config.family);
  put_class(j, config);
  j["tie_word_embeddings"] = config.model.tied;
  j["initializer_range"] = config.model.init.std;
  // All three are written even when unknown: the class default may lie beyond the vocabulary.
  j["bos_token_id"] = id_or_null(config.extras.bos_token_id);
  if (config.extras.eos_token_ids.size() > 1) {
    j["eos_token_id"] = config.extras.eos_token_ids;
  } else {
    j["eos_token_id"] = config.extras.eos_token_ids.empty() ? Json(nullptr) : Json(config.extras.eos_token_ids[0]);
  }
  j["pad_token_id"] = id_or_null(config.extras.pad_token_id);
  j["use_cache"] = true;
  j["dtype"] = dtype;        // transformers 5
  j["torch_dtype"] = dtype;  // transformers 4
  return j.dump(2) + "\n";
}

}  // namespace ashlar::hf
