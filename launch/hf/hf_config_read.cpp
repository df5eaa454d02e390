#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.h"
#include "core/io/json.h"
#include "core/io/posix_file.h"
#include "launch/hf/common_keys.h"
#include "launch/hf/config_reader.h"
#include "launch/hf/hf_config.h"

namespace ashlar::hf {
namespace {

using model::ModelConfig;
using model::NormAffine;
using model::PosType;
using model::Topology;

/// One file being read: the keys, the result, and what the families share.
class Import {
 public:
  Import(const nlohmann::json& root, HfConfig& out, std::vector<std::string>& errors)
      : r_(root, "", errors, out.notes), out_(out), m_(out.model), errors_(errors) {}

  void read() {
    switch (out_.family) {
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
    read_common_keys(r_, out_);
  }
  ConfigReader& reader() { return r_; }

 private:
  // -- shapes

  void gpt_sizes(int64_t vocab, int64_t positions, int64_t width, int64_t layers, int64_t heads) {
    m_.vocab_size = r_.size({"vocab_size"}, vocab);
    out_.extras.max_positions = r_.size({"n_positions", "max_position_embeddings"}, positions);
    // n_ctx was the length of the causal mask buffer of old versions: nothing reads it now.
    r_.ignore({"n_ctx"});
    m_.d_model = r_.size({"n_embd", "hidden_size"}, width);
    m_.n_layers = r_.size({"n_layer", "num_hidden_layers"}, layers);
    m_.n_heads = m_.n_kv_heads = r_.size({"n_head", "num_attention_heads"}, heads);
    m_.d_ff = r_.optional_size({"n_inner"}).value_or(4 * m_.d_model);
    fixed_head_dim();
  }

  void sizes(int64_t vocab, int64_t positions, int64_t width, int64_t layers, int64_t heads) {
    m_.vocab_size = r_.size({"vocab_size"}, vocab);
    out_.extras.max_positions = r_.size({"max_position_embeddings"}, positions);
    m_.d_model = r_.size({"hidden_size"}, width);
    m_.n_layers = r_.size({"num_hidden_layers"}, layers);
    m_.n_heads = r_.size({"num_attention_heads"}, heads);
  }

  /// Absent means what the class says, null always the number of heads.
  void kv_heads(std::optional<int64_t> absent) {
    if (!r_.has("num_key_value_heads") && absent) {
      m_.n_kv_heads = *absent;
      r_.add_note(str_cat("num_key_value_heads is absent: ", *absent, ", the default of the class"));
    } else {
      m_.n_kv_heads = r_.optional_size({"num_key_value_heads"}).value_or(m_.n_heads);
    }
  }

  /// The class has no head_dim of its own.
  void fixed_head_dim() {
    m_.head_dim = derived_head_dim();
    const auto given = r_.optional_size({"head_dim"});
    if (given && *given != m_.head_dim) {
      r_.refuse("head_dim", class_name(out_.family), " has width / heads = ", m_.head_dim,
                "; remove it or change the sizes");
    }
  }

  void free_head_dim() {
    const auto given = r_.optional_size({"head_dim"});
    m_.head_dim = given ? *given : derived_head_dim();
  }

  int64_t derived_head_dim() {
    if (m_.d_model % m_.n_heads != 0) {
      r_.add_error(str_cat("hidden size ", m_.d_model, " is not divisible by the number of heads ", m_.n_heads,
                           "; expected a multiple"));
    }
    return std::max<int64_t>(m_.d_model / m_.n_heads, 1);
  }

  // -- parts

  void layernorm(const char* eps_key, double eps) {
    m_.norm = {.type = NormType::kLayerNorm, .affine = NormAffine::kScaleBias, .eps = r_.number({eps_key}, eps)};
  }
  void rmsnorm(double eps) {
    m_.norm = {.type = NormType::kRmsNorm, .affine = NormAffine::kScale, .eps = r_.number({"rms_norm_eps"}, eps)};
  }

  void ffn(const char* key, std::string_view fallback, bool gated) {
    m_.ffn.gated = gated;
    const std::string name = r_.text({key}, fallback);
    static constexpr std::pair<std::string_view, Activation> kActivations[] = {
        {"relu", Activation::kRelu},
        {"relu2", Activation::kRelu2},
        {"gelu", Activation::kGeluErf},
        {"gelu_python", Activation::kGeluErf},
        {"gelu_new", Activation::kGeluTanh},
        {"gelu_fast", Activation::kGeluTanh},
        {"gelu_pytorch_tanh", Activation::kGeluTanh},
        {"gelu_python_tanh", Activation::kGeluTanh},
        {"gelu_accurate", Activation::kGeluTanh},
        {"quick_gelu", Activation::kQuickGelu},
        {"silu", Activation::kSilu},
        {"swish", Activation::kSilu},
    };
    for (const auto& [spelling, act] : kActivations) {
      if (spelling != name) continue;
      m_.ffn.act = act;
      // Named by its axis and the word the file uses: the axis exists, no kernel serves it yet.
      if (act == Activation::kRelu2 || act == Activation::kQuickGelu) break;
      return;
    }
    m_.ffn.act = Activation::kSilu;
    r_.refuse(key, "ffn.act is served for relu, gelu (erf), gelu_new and its spellings (tanh), silu");
  }

  struct Rotary {
    const char* base_key = "rope_theta";
    const char* fraction_key = "partial_rotary_factor";
    double fraction = 1.0;      ///< when the file says none
    bool uses_fraction = true;  ///< false: the class rotates whole heads whatever the file says
  };

  void rope(const Rotary& keys) {
    m_.pos.type = PosType::kRope;
    m_.rope.style = RopeStyle::kHalf;
    const nlohmann::json* scaling = r_.object("rope_scaling");
    const nlohmann::json* parameters = r_.object("rope_parameters");
    if (scaling != nullptr && parameters != nullptr && *scaling != *parameters) {
      r_.add_error("rope_scaling and rope_parameters are two names of one value and differ; keep one");
    }
    const nlohmann::json* dict = scaling != nullptr ? scaling : parameters;
    std::optional<double> base, fraction;
    if (dict != nullptr) {
      ConfigReader d(*dict, scaling != nullptr ? "rope_scaling." : "rope_parameters.", errors_, out_.notes);
      const std::string type = d.text({"rope_type", "type"}, "default");
      base = d.optional_number({"rope_theta"});
      fraction = d.optional_number({"partial_rotary_factor"});
      if (type == "default") {
        d.ignore({"original_max_position_embeddings"});
        for (const std::string& key : d.unread_keys()) {
          d.refuse(key.c_str(), "unknown here; rope.scaling is served for none, so only rope_theta and ",
                   "partial_rotary_factor may stand beside rope_type");
        }
      } else {
        d.refuse(d.has("rope_type") ? "rope_type" : "type", "rope.scaling is served for none (\"default\") only");
      }
    }
    m_.rope.base = agreed(base, keys.base_key).value_or(10000.0);
    const double share = agreed(fraction, keys.fraction_key).value_or(keys.fraction);
    if (keys.uses_fraction) {
      if (!(share > 0 && share <= 1)) {
        r_.add_error(str_cat(keys.fraction_key, " = ", share, ": rope.fraction must be above 0 and at most 1"));
      }
      m_.rope.dims = model::rope_dims_of(m_.head_dim, std::clamp(share, 0.0, 1.0));
    } else {
      m_.rope.dims = m_.head_dim;
      if (share != 1.0) {
        r_.add_note(str_cat(keys.fraction_key, " = ", share, " has no effect in ", class_name(out_.family)));
      }
    }
  }

  /// A value inside the rotary dictionary and the same at top level: transformers 4 and 5 would pick differently.
  std::optional<double> agreed(std::optional<double> inner, const char* key) {
    const auto outer = r_.optional_number({key});
    if (inner && outer && *inner != *outer) {
      r_.refuse(key, "the rotary dictionary says ", *inner, "; keep one");
    }
    return inner ? inner : outer;
  }

  void attention(double scale) { m_.attn_scale = scale; }
  void attention() { m_.attn_scale = 1.0 / std::sqrt(static_cast<double>(m_.head_dim)); }

  void parallel(int norms) {
    m_.block.topology = Topology::kParallel;
    m_.block.parallel_norms = norms;
  }

  void init_scheme(model::InitScheme scheme) {
    m_.init.scheme = scheme;
    m_.init.std = r_.number({"initializer_range"}, 0.02);
    // transformers does not mind 0; a scheme needs a spread, and imported weights do not read it.
    if (m_.init.std == 0) m_.init.std = 0.02;
  }

  void refuse_if(const char* key, bool fallback, std::string_view why) {
    if (r_.boolean({key}, fallback)) r_.refuse(key, why);
  }

  // -- classes

  void gpt2() {
    gpt_sizes(50257, 1024, 768, 12, 12);
    layernorm("layer_norm_epsilon", 1e-5);
    ffn("activation_function", "gelu_new", false);
    m_.bias = {.qkv = true, .attn_out = true, .ffn = true, .lm_head = false};
    m_.pos = {.type = PosType::kLearned, .max_positions = out_.extras.max_positions};
    attention();
    if (!r_.boolean({"scale_attn_weights"}, true)) attention(1.0);
    refuse_if("scale_attn_by_inverse_layer_idx", false, "attn.scale is one value for all layers; expected false");
    refuse_if("add_cross_attention", false, "cross-attention is not an axis; expected false");
    r_.ignore({"reorder_and_upcast_attn"});  // the order of roundings in half precision
    m_.dropout = {.embed = r_.number({"embd_pdrop"}, 0.1),
                  .attn = r_.number({"attn_pdrop"}, 0.1),
                  .resid = r_.number({"resid_pdrop"}, 0.1)};
    r_.ignore(
        {"summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout"});
    m_.tied = r_.boolean({"tie_word_embeddings"}, true);
    init_scheme(model::InitScheme::kGpt2);
  }

  void gptj() {
    gpt_sizes(50400, 2048, 4096, 28, 16);
    parallel(1);
    layernorm("layer_norm_epsilon", 1e-5);
    ffn("activation_function", "gelu_new", false);
    m_.bias = {.qkv = false, .attn_out = false, .ffn = true, .lm_head = true};
    m_.pos.type = PosType::kRope;
    m_.rope = {.base = 10000.0, .dims = 0, .style = RopeStyle::kInterleaved};
    if (r_.has("rotary_dim") && !r_.has_value("rotary_dim")) {
      r_.refuse("rotary_dim", "the class has no meaning for null; expected the number of rotated dimensions");
    }
    m_.rope.dims = r_.optional_size({"rotary_dim"}).value_or(64);
    r_.ignore({"rotary"});  // "rotary": true in the published file; the class always rotates
    attention();
    m_.dropout = {.embed = r_.number({"embd_pdrop"}, 0.0),
                  .attn = r_.number({"attn_pdrop"}, 0.0),
                  .resid = r_.number({"resid_pdrop"}, 0.0)};
    r_.ignore({"summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels",
               "summary_first_dropout", "scale_attn_weights"});
    m_.tied = r_.boolean({"tie_word_embeddings"}, false);
    init_scheme(model::InitScheme::kNormal);
  }

  void gpt_neox() {
    sizes(50432, 2048, 6144, 44, 64);
    m_.n_kv_heads = m_.n_heads;
    fixed_head_dim();
    m_.d_ff = r_.size({"intermediate_size"}, 24576);
    if (r_.boolean({"use_parallel_residual"}, true)) parallel(2);
    layernorm("layer_norm_eps", 1e-5);
    ffn("hidden_act", "gelu", false);
    const bool bias = r_.boolean({"attention_bias"}, true);
    m_.bias = {.qkv = bias, .attn_out = bias, .ffn = true, .lm_head = false};
    rope({.base_key = "rotary_emb_base", .fraction_key = "rotary_pct", .fraction = 0.25});
    must_agree("rope_theta", m_.rope.base);
    must_agree_dims("partial_rotary_factor");
    attention();
    // hidden_dropout acts after the embedding and on both branches.
    m_.dropout.attn = r_.number({"attention_dropout"}, 0.0);
    m_.dropout.embed = m_.dropout.resid = r_.number({"hidden_dropout"}, 0.0);
    // The published 20B file has the BERT names of its dropouts; the class does not read them.
    r_.ignore({"classifier_dropout", "attention_probs_dropout_prob", "hidden_dropout_prob"});
    m_.tied = r_.boolean({"tie_word_embeddings"}, false);
    init_scheme(model::InitScheme::kNormal);
  }

  /// Top-level names that this class does not read, though its neighbours do.
  void must_agree(const char* key, double effective) {
    const auto given = r_.optional_number({key});
    if (given && *given != effective) {
      r_.refuse(key, class_name(out_.family), " does not read it, and would use ", effective, "; remove one");
    }
  }
  void must_agree_dims(const char* key) {
    const auto given = r_.optional_number({key});
    if (given && (!(*given > 0 && *given <= 1) || model::rope_dims_of(m_.head_dim, *given) != m_.rope.dims)) {
      r_.refuse(key, class_name(out_.family), " does not read it, and would rotate ", m_.rope.dims,
                " dimensions; remove one");
    }
  }

  void llama() {
    sizes(32000, 2048, 4096, 32, 32);
    kv_heads(std::nullopt);
    free_head_dim();
    m_.d_ff = r_.size({"intermediate_size"}, 11008);
    rmsnorm(1e-6);
    ffn("hidden_act", "silu", true);
    const bool bias = r_.boolean({"attention_bias"}, false);
    m_.bias = {.qkv = bias, .attn_out = bias, .ffn = r_.boolean({"mlp_bias"}, false), .lm_head = false};
    rope({.uses_fraction = false});
    attention();
    m_.dropout.attn = r_.number({"attention_dropout"}, 0.0);
    // Splits a product into slices of the same sum; max_sequence_length is of the first published files.
    r_.ignore({"pretraining_tp", "max_sequence_length", "is_llama_config"});
    refuse_if("rope_interleaved", false, "the class rotates halves; expected false");
    m_.tied = r_.boolean({"tie_word_embeddings"}, false);
    init_scheme(model::InitScheme::kNormal);
  }

  void qwen2() {
    sizes(151936, 32768, 4096, 32, 32);
    kv_heads(32);
    free_head_dim();
    m_.d_ff = r_.size({"intermediate_size"}, 22016);
    rmsnorm(1e-6);
    ffn("hidden_act", "silu", true);
    m_.bias.qkv = true;
    rope({.uses_fraction = false});
    attention();
    qwen2_window();
    m_.dropout.attn = r_.number({"attention_dropout"}, 0.0);
    m_.tied = r_.boolean({"tie_word_embeddings"}, false);
    init_scheme(model::InitScheme::kNormal);
  }

  void qwen2_window() {
    const bool uses = r_.boolean({"use_sliding_window"}, false);
    r_.ignore({"sliding_window"});
    const nlohmann::json* first = r_.raw("max_window_layers");
    const int64_t full_layers = first != nullptr && first->is_number_integer() ? first->get<int64_t>() : 28;
    const bool has_window = !r_.has("sliding_window") || r_.has_value("sliding_window");
    if (uses && has_window && full_layers < m_.n_layers) {
      r_.refuse("use_sliding_window", "layers from max_window_layers = ", full_layers,
                " on would slide; attn.window_cycle is served for [-1] (full) only");
    }
    full_layer_types();
  }

  void full_layer_types() {
    const nlohmann::json* types = r_.raw("layer_types");
    if (types == nullptr) return;
    const bool all_full = types->is_array() && std::all_of(types->begin(), types->end(), [](const nlohmann::json& t) {
                            return t == "full_attention";
                          });
    if (!all_full) {
      r_.refuse("layer_types", "attn.window_cycle is served for [-1] only: expected a list of \"full_attention\"");
    } else if (static_cast<int64_t>(types->size()) != m_.n_layers) {
      r_.add_error(
          str_cat("layer_types has ", types->size(), " entries for ", m_.n_layers, " layers; expected one each"));
    }
  }

  void phi() {
    sizes(51200, 2048, 2048, 24, 32);
    kv_heads(std::nullopt);
    free_head_dim();
    m_.d_ff = r_.size({"intermediate_size"}, 8192);
    parallel(1);
    layernorm("layer_norm_eps", 1e-5);
    ffn("hidden_act", "gelu_new", false);
    m_.bias = {.qkv = true, .attn_out = true, .ffn = true, .lm_head = true};
    rope({.fraction = 0.5});
    attention();
    refuse_if("qk_layernorm", false, "attn.qk_norm is served for none only; expected false");
    m_.dropout = {.embed = r_.number({"embd_pdrop"}, 0.0),
                  .attn = r_.number({"attention_dropout"}, 0.0),
                  .resid = r_.number({"resid_pdrop"}, 0.0)};
    m_.tied = r_.boolean({"tie_word_embeddings"}, false);
    init_scheme(model::InitScheme::kNormal);
  }

  void phi3() {
    sizes(32064, 4096, 3072, 32, 32);
    kv_heads(std::nullopt);
    free_head_dim();
    m_.d_ff = r_.size({"intermediate_size"}, 8192);
    rmsnorm(1e-5);
    ffn("hidden_act", "silu", true);
    rope({});
    attention();
    r_.ignore({"original_max_position_embeddings"});  // read by longrope alone
    refuse_if("attention_bias", false, "the class has no biases; expected false");
    refuse_if("lm_head_bias", false, "the class has no biases; expected false");
    if (r_.raw("sliding_window") != nullptr) {
      r_.refuse("sliding_window", "attn.window_cycle is served for [-1] (full) only; expected null");
    }
    full_layer_types();
    m_.dropout.attn = r_.number({"attention_dropout"}, 0.0);
    m_.dropout.resid = r_.number({"resid_pdrop"}, 0.0);
    if (r_.number({"embd_pdrop"}, 0.0) != 0) {
      r_.add_note(str_cat(r_.shown("embd_pdrop"), " has no effect in ", class_name(out_.family)));
    }
    m_.tied = r_.boolean({"tie_word_embeddings"}, false);
    init_scheme(model::InitScheme::kNormal);
  }

  void stablelm() {
    sizes(50304, 4096, 2560, 32, 32);
    kv_heads(32);
    fixed_head_dim();
    m_.d_ff = r_.size({"intermediate_size"}, 6912);
    if (r_.boolean({"use_parallel_residual"}, false)) parallel(1);
    layernorm("layer_norm_eps", 1e-5);
    ffn("hidden_act", "silu", true);
    m_.bias.qkv = r_.boolean({"use_qkv_bias"}, false);
    rope({.fraction = 0.25});
    attention();
    refuse_if("qk_layernorm", false, "attn.qk_norm is served for none only; expected false");
    m_.dropout.attn = r_.number({"attention_dropout"}, 0.0);
    if (r_.number({"hidden_dropout"}, 0.0) != 0) {
      r_.refuse("hidden_dropout", "it acts on the FFN branch alone, dropout.resid on both; expected 0");
    }
    m_.tied = r_.boolean({"tie_word_embeddings"}, false);
    init_scheme(model::InitScheme::kNormal);
  }

  void falcon() {
    m_.vocab_size = r_.size({"vocab_size"}, 65024);
    out_.extras.max_positions = r_.size({"max_position_embeddings"}, 2048);
    m_.d_model = r_.size({"hidden_size", "n_embed"}, 4544);
    m_.n_layers = r_.size({"num_hidden_layers"}, 32);
    m_.n_heads = r_.size({"num_attention_heads"}, 71);
    fixed_head_dim();
    m_.d_ff = r_.optional_size({"ffn_hidden_size"}).value_or(4 * m_.d_model);
    falcon_block();
    layernorm("layer_norm_epsilon", 1e-5);
    ffn("activation", "gelu", false);
    const bool bias = r_.boolean({"bias"}, false);
    m_.bias = {.qkv = bias, .attn_out = bias, .ffn = bias, .lm_head = false};
    refuse_if("alibi", false, "pos.type alibi is not served; expected false");
    refuse_if("apply_residual_connection_post_layernorm", false,
              "norm.placement is served for pre only; expected false");
    r_.ignore({"ff_factor"});  // of the published 11B; the class reads ffn_hidden_size
    rope({.uses_fraction = false});
    attention();
    // In a parallel block hidden_dropout drops the sum of both branches, in a serial one attention_dropout drops the
    // attention branch: neither is dropout.resid or dropout.attn.
    for (const char* key : {"hidden_dropout", "attention_dropout"}) {
      if (r_.number({key}, 0.0) != 0) r_.refuse(key, "what it drops in this class is no dropout axis; expected 0");
    }
    m_.tied = r_.boolean({"tie_word_embeddings"}, true);
    init_scheme(model::InitScheme::kNormal);
  }

  void falcon_block() {
    const bool new_architecture = r_.boolean({"new_decoder_architecture"}, false);
    const bool multi_query = r_.boolean({"multi_query"}, true);
    const bool is_parallel = r_.boolean({"parallel_attn"}, true);
    const auto kv = r_.optional_size({"num_kv_heads"});
    const auto norms = r_.optional_size({"num_ln_in_parallel_attn"});
    if (new_architecture) {
      m_.n_kv_heads = kv.value_or(m_.n_heads);
      if (!is_parallel) {
        r_.refuse("parallel_attn", "new_decoder_architecture = true is parallel always; expected true");
      }
      if (norms.value_or(2) > 2) r_.refuse("num_ln_in_parallel_attn", "block.parallel_norms is 1 or 2");
      parallel(norms.value_or(2) == 1 ? 1 : 2);
      return;
    }
    // One KV head whatever num_kv_heads says: the published 7B says 71.
    m_.n_kv_heads = multi_query ? 1 : m_.n_heads;
    if (!multi_query && kv && *kv != m_.n_heads) {
      r_.refuse("num_kv_heads", "multi_query = false of the old architecture has one KV head a head; expected ",
                m_.n_heads);
    }
    if (norms.value_or(1) != 1) {
      r_.refuse("num_ln_in_parallel_attn", "the old architecture has one norm for both branches; expected 1 or null");
    }
    if (is_parallel) parallel(1);
  }

  ConfigReader r_;
  HfConfig& out_;
  ModelConfig& m_;
  std::vector<std::string>& errors_;
};

std::string joined(const std::vector<std::string>& errors) {
  std::string text;
  for (const std::string& error : errors) text += (text.empty() ? "" : "; ") + error;
  return text;
}

Family family_of(const nlohmann::json& root, const std::string& name) {
  std::string served;
  for (const Family family : kFamilies) served += (served.empty() ? "" : ", ") + std::string(class_name(family));
  const auto unknown = [&](const std::string& got) {
    return input_error("hf", io::printable(name), ": ", got, " is not a class that is read; expected one of ", served);
  };
  std::optional<Family> by_class, by_type;
  if (root.contains("architectures") && !root["architectures"].is_null()) {
    const nlohmann::json& list = root["architectures"];
    if (!list.is_array() || list.size() != 1 || !list[0].is_string()) {
      throw unknown("architectures = " + io::printable(list.dump(-1, ' ', true)));
    }
    by_class = family_from_class(list[0].get<std::string>());
    if (!by_class) throw unknown("architectures = " + io::printable(list[0].get<std::string>()));
  }
  if (root.contains("model_type") && !root["model_type"].is_null()) {
    const std::string type = root["model_type"].is_string() ? root["model_type"].get<std::string>() : "";
    by_type = family_from_model_type(type);
    if (!by_type) throw unknown("model_type = " + io::printable(root["model_type"].dump(-1, ' ', true)));
  }
  if (!by_class && !by_type) throw unknown("a config with neither architectures nor model_type");
  if (by_class && by_type && *by_class != *by_type) {
    throw input_error("hf", io::printable(name), ": architectures says ", class_name(*by_class), ", model_type says ",
                      class_name(*by_type), "; expected one model");
  }
  return by_class ? *by_class : *by_type;
}

}  // namespace

HfConfig parse_hf_config(const std::string& json, const std::string& name,
                         const std::vector<std::string>& ignored_keys) {
  HfConfig config;
  std::vector<std::string> errors;
  const auto no_config = [&](const std::string& sentence) {
    return input_error("hf", io::printable(name), ": ", sentence, "; expected the config.json of a Hugging Face model");
  };
  io::reading_json(no_config, [&] {
    const nlohmann::json root = nlohmann::json::parse(json);
    if (!root.is_object()) throw no_config("it is not a JSON object");
    config.family = family_of(root, name);
    Import import(root, config, errors);
    import.read();
    for (const std::string& key : ignored_keys) {
      if (!root.contains(key)) errors.push_back(str_cat("the key to ignore, ", io::printable(key), ", is not there"));
    }
    for (const std::string& key : import.reader().unread_keys()) {
      if (std::find(ignored_keys.begin(), ignored_keys.end(), key) != ignored_keys.end()) continue;
      import.reader().refuse(key.c_str(), class_name(config.family),
                             " is not known to read this key; if it changes nothing, say so with --ignore-key ", key);
    }
  });
  if (errors.empty()) errors = model::constraint_errors(config.model);
  if (!errors.empty()) throw input_error("hf", io::printable(name), ": ", joined(errors));
  return config;
}

}  // namespace ashlar::hf
