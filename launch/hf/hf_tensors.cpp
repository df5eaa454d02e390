#include "launch/hf/hf_tensors.h"

#include <array>
#include <utility>

#include "core/base/error.h"
#include "core/base/strings.h"

namespace ashlar::hf {
namespace {

using model::ModelConfig;
using model::Topology;

/// The names of one block, below its prefix. Our linears that share a Hugging Face tensor have the same name.
struct BlockNames {
  const char* layers;  ///< "h." or "layers."
  const char* norm1;
  const char* norm2;
  const char* q;
  const char* k;
  const char* v;
  const char* attn_out;
  const char* gate;
  const char* up;
  const char* down;
  const char* norm1_out = "";
  const char* norm2_out = "";
  const char* q_norm = "self_attn.q_norm";
  const char* k_norm = "self_attn.k_norm";
  const char* sinks = "self_attn.sinks";
  const char* out_scalar = "layer_scalar";
};

struct ModelNames {
  const char* tokens;
  const char* norm_final;
  const char* head;
  BlockNames block;
  const char* positions = "";  ///< a learned table of them
  const char* project_in = "";
  const char* project_out = "";
  const char* norm_embed = "";
};

const ModelNames& names_of(Family family) {
  static constexpr ModelNames kGpt2 = {
      "wte",
      "ln_f",
      "lm_head",
      {"h.", "ln_1", "ln_2", "attn.c_attn", "attn.c_attn", "attn.c_attn", "attn.c_proj", "", "mlp.c_fc", "mlp.c_proj"},
      "wpe"};
  static constexpr ModelNames kOpenAiGpt = {
      "tokens_embed",
      "",
      "lm_head",
      {"h.", "ln_1", "ln_2", "attn.c_attn", "attn.c_attn", "attn.c_attn", "attn.c_proj", "", "mlp.c_fc", "mlp.c_proj"},
      "positions_embed"};
  static constexpr ModelNames kGptJ = {
      "wte",
      "ln_f",
      "lm_head",
      {"h.", "ln_1", "", "attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.out_proj", "", "mlp.fc_in", "mlp.fc_out"}};
  static constexpr ModelNames kNeoX = {
      "embed_in",
      "final_layer_norm",
      "embed_out",
      {"layers.", "input_layernorm", "post_attention_layernorm", "attention.query_key_value",
       "attention.query_key_value", "attention.query_key_value", "attention.dense", "", "mlp.dense_h_to_4h",
       "mlp.dense_4h_to_h"}};
  static constexpr ModelNames kLlama = {
      "embed_tokens",
      "norm",
      "lm_head",
      {"layers.", "input_layernorm", "post_attention_layernorm", "self_attn.q_proj", "self_attn.k_proj",
       "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}};
  static constexpr ModelNames kPhi = {"embed_tokens",
                                      "final_layernorm",
                                      "lm_head",
                                      {"layers.", "input_layernorm", "", "self_attn.q_proj", "self_attn.k_proj",
                                       "self_attn.v_proj", "self_attn.dense", "", "mlp.fc1", "mlp.fc2"}};
  static constexpr ModelNames kPhi3 = {
      "embed_tokens",
      "norm",
      "lm_head",
      {"layers.", "input_layernorm", "post_attention_layernorm", "self_attn.qkv_proj", "self_attn.qkv_proj",
       "self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.gate_up_proj", "mlp.down_proj"}};
  static constexpr ModelNames kFalcon = {
      "word_embeddings",
      "ln_f",
      "lm_head",
      {"h.", "input_layernorm", "post_attention_layernorm", "self_attention.query_key_value",
       "self_attention.query_key_value", "self_attention.query_key_value", "self_attention.dense", "",
       "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"}};
  static constexpr ModelNames kBloom = {
      "word_embeddings",
      "ln_f",
      "lm_head",
      {"h.", "input_layernorm", "post_attention_layernorm", "self_attention.query_key_value",
       "self_attention.query_key_value", "self_attention.query_key_value", "self_attention.dense", "",
       "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"},
      "",
      "",
      "",
      "word_embeddings_layernorm"};
  static constexpr ModelNames kPersimmon = {
      "embed_tokens",
      "final_layernorm",
      "lm_head",
      {"layers.", "input_layernorm", "post_attention_layernorm", "self_attn.query_key_value",
       "self_attn.query_key_value", "self_attn.query_key_value", "self_attn.dense", "", "mlp.dense_h_to_4h",
       "mlp.dense_4h_to_h", "", "", "self_attn.q_layernorm", "self_attn.k_layernorm"}};
  // With the names of Llama's norms, which stand behind the branches where swin_norm is set.
  static constexpr ModelNames kChameleon = {
      "embed_tokens",
      "norm",
      "lm_head",
      {"layers.", "input_layernorm", "post_attention_layernorm", "self_attn.q_proj", "self_attn.k_proj",
       "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "input_layernorm",
       "post_attention_layernorm"}};
  static constexpr ModelNames kNanoChat = {"embed_tokens",
                                           "",
                                           "lm_head",
                                           {"layers.", "", "", "self_attn.q_proj", "self_attn.k_proj",
                                            "self_attn.v_proj", "self_attn.o_proj", "", "mlp.fc1", "mlp.fc2"}};
  static constexpr ModelNames kOlmo2 = {
      "embed_tokens",
      "norm",
      "lm_head",
      {"layers.", "", "", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
       "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "post_attention_layernorm", "post_feedforward_layernorm"}};
  static constexpr ModelNames kGemma2 = {
      "embed_tokens",
      "norm",
      "lm_head",
      {"layers.", "input_layernorm", "pre_feedforward_layernorm", "self_attn.q_proj", "self_attn.k_proj",
       "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
       "post_attention_layernorm", "post_feedforward_layernorm"}};
  static constexpr ModelNames kGlm = {
      "embed_tokens",
      "norm",
      "lm_head",
      {"layers.", "input_layernorm", "post_attention_layernorm", "self_attn.q_proj", "self_attn.k_proj",
       "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.gate_up_proj", "mlp.down_proj",
       "post_self_attn_layernorm", "post_mlp_layernorm"}};
  static constexpr ModelNames kHyperClovaX = {
      "embed_tokens",
      "norm",
      "lm_head",
      {"layers.", "input_layernorm", "post_attention_layernorm", "self_attn.q_proj", "self_attn.k_proj",
       "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "post_norm1",
       "post_norm2"}};
  static constexpr ModelNames kHunYuan = {
      "embed_tokens",
      "norm",
      "lm_head",
      {"layers.", "input_layernorm", "post_attention_layernorm", "self_attn.q_proj", "self_attn.k_proj",
       "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "", "",
       "self_attn.query_layernorm", "self_attn.key_layernorm"}};
  static constexpr ModelNames kStarcoder2 = {
      "embed_tokens",
      "norm",
      "lm_head",
      {"layers.", "input_layernorm", "post_attention_layernorm", "self_attn.q_proj", "self_attn.k_proj",
       "self_attn.v_proj", "self_attn.o_proj", "", "mlp.c_fc", "mlp.c_proj"}};
  static constexpr ModelNames kGptNeo = {
      "wte",
      "ln_f",
      "lm_head",
      {"h.", "ln_1", "ln_2", "attn.attention.q_proj", "attn.attention.k_proj", "attn.attention.v_proj",
       "attn.attention.out_proj", "", "mlp.c_fc", "mlp.c_proj"},
      "wpe"};
  static constexpr ModelNames kApertus = {
      "embed_tokens",
      "norm",
      "lm_head",
      {"layers.", "attention_layernorm", "feedforward_layernorm", "self_attn.q_proj", "self_attn.k_proj",
       "self_attn.v_proj", "self_attn.o_proj", "", "mlp.up_proj", "mlp.down_proj"}};
  static constexpr ModelNames kMpt = {"wte",
                                      "norm_f",
                                      "lm_head",
                                      {"blocks.", "norm_1", "norm_2", "attn.Wqkv", "attn.Wqkv", "attn.Wqkv",
                                       "attn.out_proj", "", "ffn.up_proj", "ffn.down_proj"}};
  constexpr auto fairseq = [](const char* layers) {
    return BlockNames{layers,
                      "self_attn_layer_norm",
                      "final_layer_norm",
                      "self_attn.q_proj",
                      "self_attn.k_proj",
                      "self_attn.v_proj",
                      "self_attn.out_proj",
                      "",
                      "fc1",
                      "fc2"};
  };
  static constexpr ModelNames kOpt = {"decoder.embed_tokens",     "decoder.final_layer_norm", "lm_head",
                                      fairseq("decoder.layers."), "decoder.embed_positions",  "decoder.project_in",
                                      "decoder.project_out"};
  static constexpr ModelNames kBioGpt = {"embed_tokens", "layer_norm", "output_projection", fairseq("layers."),
                                         "embed_positions"};
  static constexpr ModelNames kXglm = {"embed_tokens", "layer_norm", "lm_head", fairseq("layers.")};
  static constexpr ModelNames kCodeGen = {"wte",
                                          "ln_f",
                                          "lm_head",
                                          {"h.", "ln_1", "", "attn.qkv_proj", "attn.qkv_proj", "attn.qkv_proj",
                                           "attn.out_proj", "", "mlp.fc_in", "mlp.fc_out"}};
  static constexpr ModelNames kQwen = {"wte",
                                       "ln_f",
                                       "lm_head",
                                       {"h.", "ln_1", "ln_2", "attn.c_attn", "attn.c_attn", "attn.c_attn",
                                        "attn.c_proj", "mlp.w2", "mlp.w1", "mlp.c_proj"}};
  static constexpr ModelNames kBaichuan = {
      "embed_tokens",
      "norm",
      "lm_head",
      {"layers.", "input_layernorm", "post_attention_layernorm", "self_attn.W_pack", "self_attn.W_pack",
       "self_attn.W_pack", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}};
  switch (family) {
    case Family::kApertus: return kApertus;
    case Family::kStarcoder2: return kStarcoder2;
    case Family::kGptNeo: return kGptNeo;
    case Family::kMpt: return kMpt;
    case Family::kOpt: return kOpt;
    case Family::kBioGpt: return kBioGpt;
    case Family::kXglm: return kXglm;
    case Family::kCodeGen: return kCodeGen;
    case Family::kQwen: return kQwen;
    case Family::kBaichuan: return kBaichuan;
    case Family::kGptBigCode:
    case Family::kGpt2: return kGpt2;
    case Family::kOpenAiGpt: return kOpenAiGpt;
    case Family::kGptJ: return kGptJ;
    case Family::kGptNeoX: return kNeoX;
    case Family::kLlama:
    case Family::kQwen2:
    case Family::kStableLm:
    case Family::kGemma:
    case Family::kNemotron:
    case Family::kArcee:
    case Family::kJais2:
    case Family::kQwen3:
    case Family::kMistral:
    case Family::kMinistral:
    case Family::kMinistral3:
    case Family::kOlmo:
    case Family::kGranite:
    case Family::kGraniteSwa:
    case Family::kCohere2:
    case Family::kCwm:
    case Family::kCohere:
    case Family::kHelium:
    case Family::kSeedOss:
    case Family::kErnie45:
    case Family::kMiniCpm3:
    case Family::kYoutu:
    case Family::kSmolLm3: return kLlama;
    case Family::kBloom: return kBloom;
    case Family::kPersimmon: return kPersimmon;
    case Family::kChameleon: return kChameleon;
    case Family::kNanoChat: return kNanoChat;
    case Family::kGemma2:
    case Family::kGemma3:
    case Family::kGemma4:
    case Family::kVaultGemma: return kGemma2;
    case Family::kOlmo3:
    case Family::kExaone4:
    case Family::kOlmo2: return kOlmo2;
    case Family::kGlm:
    case Family::kGlm4: return kGlm;
    case Family::kHyperClovaX: return kHyperClovaX;
    case Family::kHunYuan: return kHunYuan;
    case Family::kPhi: return kPhi;
    case Family::kPhi3: return kPhi3;
    case Family::kFalcon: return kFalcon;
  }
  throw Bug("hf::Family out of range");
}

/// Rows of a fused q, k, v in the file: one group after another, in each the queries, then k, then v.
///   GPT-2, Phi3, MPT   one group: all queries, all keys, all values
///   NeoX, Falcon,      one group for each KV head: its queries, its key, its value. (Falcon's three layouts are this
///   GPTBigCode, BLOOM, one: multi-query is one group, one KV head a head is n_heads groups of three.)
///   Persimmon
///   CodeGen            four groups of heads, in each the values before the keys
struct FusedLayout {
  int64_t groups = 1;
  bool values_first = false;
};

/// Row blocks of q, k and v.
std::array<std::vector<RowBlock>, 3> fused_rows(const ModelConfig& m, FusedLayout layout) {
  const int64_t queries = m.q_width() / layout.groups;
  const int64_t keys = m.kv_width() / layout.groups;
  std::array<std::vector<RowBlock>, 3> rows;
  int64_t at = 0;
  for (int64_t g = 0; g < layout.groups; ++g) {
    rows[0].push_back({at, g * queries, queries});
    rows[layout.values_first ? 2 : 1].push_back({at + queries, g * keys, keys});
    rows[layout.values_first ? 1 : 2].push_back({at + queries + keys, g * keys, keys});
    at += queries + 2 * keys;
  }
  return rows;
}

/// Builds the list for one model.
class Builder {
 public:
  Builder(Family family, const ModelConfig& m) : family_(family), m_(m), names_(names_of(family)) {}

  std::vector<TensorMapping> build() {
    const std::string prefix(name_prefix(family_));
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
      // transformers 5 calls it so in memory, and some of its files too.
      if (family_ == Family::kGptNeoX) list_.back().hf_alias = "lm_head.weight";
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

  /// Of the queries or keys of `heads` heads.
  void head_norm(const std::string& hf, const std::string& ours, int64_t heads, int64_t head_dim) {
    if (!model::qk_norm_has_gain(m_)) return;
    const std::vector<int64_t> shape = model::qk_norm_shape(m_, heads, head_dim);
    whole(hf + ".weight", ours + ".weight", shape);
    if (m_.qk_norm.bias) whole(hf + ".bias", ours + ".bias", shape);
  }

  struct Part {
    std::string name;  ///< ours, without .weight
    int64_t rows;
    std::vector<RowBlock> blocks;
  };

  /// A linear of the file, made of one or more of ours; all read `in` inputs.
  void linear(const std::string& hf, const std::vector<Part>& parts, int64_t in, bool bias) {
    int64_t out = 0;
    for (const Part& part : parts) out += part.rows;
    TensorMapping weight{.hf_name = hf + ".weight", .hf_shape = {out, in}};
    weight.transpose = family_ == Family::kGpt2 || family_ == Family::kOpenAiGpt;
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
    const BlockNames& n = names_.block;
    const std::string hf = str_cat(name_prefix(family_), n.layers, i, ".");
    const std::string ours = str_cat("blocks.", i, ".");
    const bool parallel = m_.block.topology == Topology::kParallel;
    const bool output = m_.norm.placement == model::NormPlacement::kOutput;
    const bool two_norms = !parallel || m_.block.parallel_norms == 2;
    // Falcon renames its norms when a parallel block has two.
    const bool falcon_two = family_ == Family::kFalcon && two_norms && parallel;
    if (!output) {
      norm(hf + (falcon_two ? "ln_attn" : n.norm1), ours + "norm1");
      if (two_norms) norm(hf + (falcon_two ? "ln_mlp" : n.norm2), ours + "norm2");
    }
    if (output || m_.norm.placement == model::NormPlacement::kSandwich) {
      norm(hf + n.norm1_out, ours + "norm1_out");
      norm(hf + n.norm2_out, ours + "norm2_out");
    }
    const model::LayerHeads heads = model::layer_heads(m_, i);
    head_norm(hf + n.q_norm, ours + "attn.q_norm", m_.n_heads, heads.head_dim);
    head_norm(hf + n.k_norm, ours + "attn.k_norm", heads.n_kv_heads, heads.head_dim);
    if (m_.block.out_scalar) whole(hf + n.out_scalar, ours + "out_scalar", {1});

    if (m_.attn.sinks) whole(hf + n.sinks, ours + "attn.sinks", {m_.n_heads});
    const bool latent = m_.attn.kind == model::AttentionKind::kMla;
    latent ? latent_attention(hf + "self_attn.", ours + "attn.") : attention(hf, ours, heads);
    linear(hf + n.attn_out, {one(ours + "attn.out", m_.d_model)}, m_.n_heads * heads.v_head_dim, m_.bias.attn_out);

    if (m_.ffn.gated && std::string_view(n.gate) == n.up) {
      linear(hf + n.up,
             {{ours + "ffn.gate", m_.d_ff, {{0, 0, m_.d_ff}}}, {ours + "ffn.up", m_.d_ff, {{m_.d_ff, 0, m_.d_ff}}}},
             m_.d_model, m_.bias.ffn);
    } else {
      if (m_.ffn.gated) linear(hf + n.gate, {one(ours + "ffn.gate", m_.d_ff)}, m_.d_model, m_.bias.ffn);
      linear(hf + n.up, {one(ours + "ffn.up", m_.d_ff)}, m_.d_model, m_.bias.ffn);
    }
    linear(hf + n.down, {one(ours + "ffn.down", m_.d_model)}, m_.d_ff, m_.bias.ffn);
    if (m_.ffn.act == Activation::kXielu) xielu(hf + "mlp.act_fn.", ours + "ffn.");
  }

  /// Two scalars, and the constants that the class keeps beside them.
  void xielu(const std::string& hf, const std::string& ours) {
    for (const char* scalar : {"alpha_p", "alpha_n"}) whole(hf + scalar, ours + scalar, {1});
    list_.push_back({.hf_name = hf + "beta", .constant = kXieluBeta});
    list_.push_back({.hf_name = hf + "eps", .constant = kXieluEps});
  }

  /// A head of the file has its rotated columns last, ours first; keys and values of a head lie side by side in the
  /// file, of all heads here.
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
    const BlockNames& n = names_.block;
    const std::array<std::string, 3> our_names = {ours + "attn.q", ours + "attn.k", ours + "attn.v"};
    const std::array<int64_t, 3> rows = {m_.n_heads * heads.head_dim, heads.k_width(), heads.v_width()};
    if (std::string_view(n.q) != n.k) {
      const std::array<const char*, 3> hf_names = {n.q, n.k, n.v};
      for (size_t p = 0; p < (heads.values ? 3 : 2); ++p)
        linear(hf + hf_names[p], {one(our_names[p], rows[p])}, m_.d_model, m_.bias.qkv);
      return;
    }
    auto blocks = fused_rows(m_, fused_layout());
    std::vector<Part> parts;
    for (size_t p = 0; p < 3; ++p) parts.push_back({our_names[p], rows[p], std::move(blocks[p])});
    linear(hf + n.q, parts, m_.d_model, m_.bias.qkv);
  }

  FusedLayout fused_layout() const {
    switch (family_) {
      case Family::kGptNeoX:
      case Family::kFalcon:
      case Family::kBloom:
      case Family::kPersimmon:
      case Family::kGptBigCode: return {.groups = m_.n_kv_heads};
      case Family::kCodeGen: return {.groups = 4, .values_first = true};
      default: return {};
    }
  }

  static Part one(std::string name, int64_t rows) { return {std::move(name), rows, {{0, 0, rows}}}; }

  Family family_;
  const ModelConfig& m_;
  const ModelNames& names_;
  std::vector<TensorMapping> list_;
};

}  // namespace

std::vector<TensorMapping> tensor_mappings(Family family, const ModelConfig& config) {
  return Builder(family, config).build();
}

bool is_ignored_buffer(Family family, std::string_view hf_name) {
  // By the end of the name; a parameter never ends so in the same class.
  switch (family) {
    case Family::kGpt2:
    case Family::kOpenAiGpt: return hf_name.ends_with(".attn.bias") || hf_name.ends_with(".attn.masked_bias");
    case Family::kGptJ:
      return hf_name.ends_with(".attn.bias") || hf_name.ends_with(".attn.masked_bias") ||
             hf_name.ends_with(".attn.embed_positions");
    case Family::kGptNeoX:
      return hf_name.ends_with(".attention.bias") || hf_name.ends_with(".attention.masked_bias") ||
             hf_name.ends_with("rotary_emb.inv_freq");
    case Family::kCodeGen:
    case Family::kGptBigCode:
      return hf_name.ends_with(".attn.bias") || hf_name.ends_with(".attn.masked_bias") ||
             hf_name.ends_with(".attn.causal_mask") || hf_name.ends_with(".attn.embed_positions");
    case Family::kOpt:
    case Family::kBloom:
    case Family::kBioGpt: return false;
    case Family::kXglm: return hf_name.ends_with("embed_positions.weights");
    case Family::kFalcon: return hf_name.ends_with("rotary_emb.inv_freq") || hf_name.ends_with("maybe_rotary.inv_freq");
    case Family::kGptNeo:
      return hf_name.ends_with(".attn.attention.bias") || hf_name.ends_with(".attn.attention.masked_bias");
    default: return hf_name.ends_with("rotary_emb.inv_freq");
  }
}

bool is_other_part(Family family, std::string_view hf_name) {
  return family == Family::kChameleon && hf_name.starts_with("model.vqmodel.");
}

std::vector<std::string> head_names(Family family) {
  if (family == Family::kGptNeoX) return {"embed_out.weight", "lm_head.weight"};
  if (family == Family::kBioGpt) return {"output_projection.weight"};
  return {"lm_head.weight"};
}

}  // namespace ashlar::hf
