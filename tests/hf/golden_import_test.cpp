#include <cmath>
#include <set>

#include "parallel/model/parameter_count.h"
#include "tests/hf/hf_support.h"

// Every element of every imported tensor against the file, by index formulas written here from the description of each
// layout, independent of the mapping list under test.
namespace ashlar::hf {
namespace {

using testing::golden_dir;
using testing::kGolden;
using testing::StoredModel;

/// Where an element lies in the file.
struct At {
  std::string tensor;
  int64_t row = 0;
  int64_t col = 0;
  bool transposed = false;  ///< stored [in, out]
  int64_t expert = -1;      ///< which matrix or vector of a stack whose name has no .weight; -1: no stack
};

/// The layout of one class, told element by element. `part` is ours without `.weight`/`.bias`.
struct Layout {
  std::string_view type;  ///< model_type
  model::ModelConfig m;

  At locate(const std::string& part, int64_t row, int64_t col) const {
    const int64_t D = m.head_dim, H = m.n_heads, G = m.n_kv_heads;
    if (part == "embed.tokens") return {tokens(), row, col};
    if (part == "embed.positions") return {"transformer.wpe", row, col};
    if (part == "norm_final") return {final_norm(), row, col};
    if (part == "head") return {type == "gpt_neox" ? "embed_out" : "lm_head", row, col};
    const size_t dot = part.find('.', 7);
    const std::string layer = part.substr(7, dot - 7);
    const std::string what = part.substr(dot + 1);
    const std::string b = block(layer);
    const int64_t head = row / D, dim = row % D;
    if (type == "gpt2") {
      if (what == "attn.q") return {b + "attn.c_attn", row, col, true};
      if (what == "attn.k") return {b + "attn.c_attn", m.d_model + row, col, true};
      if (what == "attn.v") return {b + "attn.c_attn", 2 * m.d_model + row, col, true};
      if (what == "attn.out") return {b + "attn.c_proj", row, col, true};
      if (what == "ffn.up") return {b + "mlp.c_fc", row, col, true};
      if (what == "ffn.down") return {b + "mlp.c_proj", row, col, true};
      return {b + (what == "norm1" ? "ln_1" : "ln_2"), row, col};
    }
    if (type == "gptj") {
      if (what == "attn.out") return {b + "attn.out_proj", row, col};
      if (what.starts_with("attn.")) return {b + "attn." + what.substr(5) + "_proj", row, col};
      if (what == "norm1") return {b + "ln_1", row, col};
      return {b + (what == "ffn.up" ? "mlp.fc_in" : "mlp.fc_out"), row, col};
    }
    if (type == "gpt_neox") {
      if (what == "attn.q") return {b + "attention.query_key_value", head * 3 * D + dim, col};
      if (what == "attn.k") return {b + "attention.query_key_value", head * 3 * D + D + dim, col};
      if (what == "attn.v") return {b + "attention.query_key_value", head * 3 * D + 2 * D + dim, col};
      if (what == "attn.out") return {b + "attention.dense", row, col};
      if (what == "norm1") return {b + "input_layernorm", row, col};
      if (what == "norm2") return {b + "post_attention_layernorm", row, col};
      return {b + (what == "ffn.up" ? "mlp.dense_h_to_4h" : "mlp.dense_4h_to_h"), row, col};
    }
    if (type == "phi") {
      if (what == "attn.out") return {b + "self_attn.dense", row, col};
      if (what.starts_with("attn.")) return {b + "self_attn." + what.substr(5) + "_proj", row, col};
      if (what == "norm1") return {b + "input_layernorm", row, col};
      return {b + (what == "ffn.up" ? "mlp.fc1" : "mlp.fc2"), row, col};
    }
    if (type == "falcon") {
      const std::string qkv = b + "self_attention.query_key_value";
      const int64_t per = H / G;
      // The documented layouts: [G][H/G q, k, v] x D; multi-query is [H q][k][v] x D, one KV head a head [H][q, k, v]
      // x D.
      if (what == "attn.q") {
        return {qkv, (G == 1 ? head : head / per * (per + 2) + head % per) * D + dim, col};
      }
      if (what == "attn.k") return {qkv, (G == 1 ? H : head * (per + 2) + per) * D + dim, col};
      if (what == "attn.v") return {qkv, (G == 1 ? H + 1 : head * (per + 2) + per + 1) * D + dim, col};
      if (what == "attn.out") return {b + "self_attention.dense", row, col};
      const bool two = m.block.topology == model::Topology::kParallel && m.block.parallel_norms == 2;
      if (what == "norm1") return {b + (two ? "ln_attn" : "input_layernorm"), row, col};
      if (what == "norm2") return {b + (two ? "ln_mlp" : "post_attention_layernorm"), row, col};
      return {b + (what == "ffn.up" ? "mlp.dense_h_to_4h" : "mlp.dense_4h_to_h"), row, col};
    }
    if (type == "phi3") {
      if (what == "attn.q") return {b + "self_attn.qkv_proj", row, col};
      if (what == "attn.k") return {b + "self_attn.qkv_proj", H * D + row, col};
      if (what == "attn.v") return {b + "self_attn.qkv_proj", (H + G) * D + row, col};
      if (what == "ffn.gate") return {b + "mlp.gate_up_proj", row, col};
      if (what == "ffn.up") return {b + "mlp.gate_up_proj", m.d_ff + row, col};
      return llama(b, what, row, col);
    }
    if (what.starts_with("moe.")) return of_experts(b, what.substr(4), row, col);
    if (type == "llama4_text" && what.starts_with("ffn."))
      return {b + "feed_forward." + what.substr(4) + "_proj", row, col};
    if (type.starts_with("deepseek") && what.starts_with("attn.")) return of_latents(b + "self_attn.", what, row, col);
    if (type == "glm4") {
      if (what == "ffn.gate") return {b + "mlp.gate_up_proj", row, col};
      if (what == "ffn.up") return {b + "mlp.gate_up_proj", m.d_ff + row, col};
      if (what == "norm1_out") return {b + "post_self_attn_layernorm", row, col};
      if (what == "norm2_out") return {b + "post_mlp_layernorm", row, col};
      return llama(b, what, row, col);
    }
    return llama(b, what, row, col);
  }

 private:
  At of_experts(const std::string& b, const std::string& what, int64_t row, int64_t col) const {
    const bool fused = type == "granitemoe" || type == "gpt_oss" || type == "llama4_text";
    std::string layer = "mlp.", router = "gate";
    if (type == "mixtral" || type == "granitemoe") layer = "block_sparse_moe.";
    if (type == "llama4_text") layer = "feed_forward.";
    if (type == "gpt_oss" || type == "llama4_text") router = "router";
    if (type == "granitemoe") router = "router.layer";
    if (what == "router") return {b + layer + router, row, col};
    if (what == "router.selection_bias") {
      // [1, experts] in files of ERNIE: a stack of one vector.
      if (type == "ernie4_5_moe") return {b + layer + "moe_statics.e_score_correction_bias", row, col, false, 0};
      return {b + layer + router + ".e_score_correction_bias", row, col};
    }
    if (what == "shared_gate") return {b + "mlp.shared_expert_gate", row, col};
    if (what.starts_with("shared.")) {
      const std::string shared = type == "qwen2_moe" || type == "llama4_text" ? "shared_expert." : "shared_experts.";
      return {b + layer + shared + what.substr(7) + "_proj", row, col};
    }
    const size_t dot = what.find('.', 8);
    const std::string number = what.substr(8, dot - 8), matrix = what.substr(dot + 1);
    if (!fused) {
      std::string name = matrix + "_proj";
      if (type == "mixtral") name = matrix == "gate" ? "w1" : matrix == "up" ? "w3" : "w2";
      return {b + layer + "experts." + number + "." + name, row, col};
    }
    const bool down = matrix == "down";
    if (!down) row = type == "gpt_oss" ? 2 * row + (matrix == "up") : row + (matrix == "up" ? m.moe.d_ff : 0);
    const int64_t expert = std::stoll(number);
    if (type == "granitemoe")
      return {b + layer + (down ? "output_linear" : "input_linear") + ".weight", row, col, false, expert};
    return {b + layer + "experts." + (down ? "down_proj" : "gate_up_proj"), row, col, true, expert};
  }
  /// The rotated rows of a query head come first here, and last in the file; a head has its keys, then its values.
  At of_latents(const std::string& b, const std::string& what, int64_t row, int64_t col) const {
    const int64_t D = m.head_dim, R = m.rope.dims, P = D - R, V = m.attn.v_head_dim;
    if (what == "attn.q_a") return {b + "q_a_proj", row, col};
    if (what == "attn.q_b") return {b + "q_b_proj", row / D * D + (row % D < R ? row % D + P : row % D - R), col};
    if (what == "attn.kv_a") return {b + "kv_a_proj_with_mqa", row, col};
    if (what == "attn.k_b") return {b + "kv_b_proj", row / P * (P + V) + row % P, col};
    if (what == "attn.v_b") return {b + "kv_b_proj", row / V * (P + V) + P + row % V, col};
    if (what == "attn.out") return {b + "o_proj", row, col};
    return {b + (what == "attn.q_a_norm" ? "q_a_layernorm" : "kv_a_layernorm"), row, col};
  }
  static At llama(const std::string& b, const std::string& what, int64_t row, int64_t col) {
    if (what == "attn.out") return {b + "self_attn.o_proj", row, col};
    if (what.ends_with("_norm") || what == "attn.sinks") return {b + "self_attn." + what.substr(5), row, col};
    if (what.starts_with("attn.")) return {b + "self_attn." + what.substr(5) + "_proj", row, col};
    if (what.starts_with("ffn.")) return {b + "mlp." + what.substr(4) + "_proj", row, col};
    return {b + (what == "norm1" ? "input_layernorm" : "post_attention_layernorm"), row, col};
  }
  std::string block(const std::string& i) const {
    if (type == "gpt2" || type == "gptj" || type == "falcon") return "transformer.h." + i + ".";
    if (type == "gpt_neox") return "gpt_neox.layers." + i + ".";
    return "model.layers." + i + ".";
  }
  std::string tokens() const {
    if (type == "gpt2" || type == "gptj") return "transformer.wte";
    if (type == "falcon") return "transformer.word_embeddings";
    if (type == "gpt_neox") return "gpt_neox.embed_in";
    return "model.embed_tokens";
  }
  std::string final_norm() const {
    if (type == "gpt2" || type == "gptj" || type == "falcon") return "transformer.ln_f";
    if (type == "gpt_neox") return "gpt_neox.final_layer_norm";
    if (type == "phi") return "model.final_layernorm";
    return "model.norm";
  }
};

/// Numbers of a file that are no parameters: the selection biases, one number for each expert of each layer.
int64_t buffer_elements(const model::ModelConfig& m) {
  int64_t elements = 0;
  for (int64_t layer = 0; layer < m.n_layers; ++layer)
    if (m.moe.selection_bias && m.has_experts(layer)) elements += m.moe.experts;
  return elements;
}

class GoldenImport : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenImport, EveryElementIsWhereItsLayoutSays) {
  ImportedModel model = import_hf(golden_dir(GetParam()));
  const StoredModel file = testing::load_file(golden_dir(GetParam()) / "model.safetensors");
  const Layout layout{model.config().family->model_type, model.config().model};
  std::set<std::string> used;
  int64_t elements = 0;
  for (const io::TensorSpec& spec : model.tensors()) {
    EXPECT_EQ(spec.dtype, io::FileDType::kF32);
    const std::vector<float> ours = testing::floats(testing::read_tensor(model, spec.name));
    // Sinks and selection biases have neither .weight nor .bias.
    const bool whole = spec.name.ends_with("sinks") || spec.name.ends_with("selection_bias");
    const size_t dot = whole ? spec.name.size() : spec.name.rfind('.');
    const std::string part = spec.name.substr(0, dot), kind = spec.name.substr(dot);
    const int64_t cols = spec.shape.size() > 1 ? spec.shape[1] : 1;
    ASSERT_EQ(static_cast<int64_t>(ours.size()), spec.num_elems());
    for (int64_t i = 0; i < spec.num_elems(); ++i) {
      const At at = layout.locate(part, i / cols, i % cols);
      const bool stack = at.expert >= 0;
      const std::string name = at.tensor + (stack ? (kind == ".bias" ? "_bias" : "") : kind);
      const auto found = file.find(name);
      ASSERT_NE(found, file.end()) << name;
      std::vector<int64_t> shape = found->second.shape;
      int64_t index = 0;
      if (stack) {
        shape.erase(shape.begin());
        index = at.expert * shape[0] * (shape.size() > 1 ? shape[1] : 1);
      }
      ASSERT_EQ(shape.size(), spec.shape.size()) << spec.name;
      const bool turned = at.transposed && shape.size() == 2;
      const int64_t width = shape.size() > 1 ? shape[1] : 1;
      index += turned ? at.col * width + at.row : at.row * width + at.col;
      float expected = 0;
      std::memcpy(&expected, found->second.bytes.data() + index * 4, 4);
      ASSERT_EQ(ours[static_cast<size_t>(i)], expected) << spec.name << " element " << i;
      used.insert(name);
    }
    elements += spec.num_elems();
  }
  // Nothing of the file is left over, and nothing was used twice: the counts agree.
  EXPECT_EQ(used.size(), file.size());
  int64_t stored = 0;
  for (const auto& [name, tensor] : file) stored += static_cast<int64_t>(tensor.bytes.size() / 4);
  EXPECT_EQ(elements, stored);
  EXPECT_EQ(elements, model::count_parameters(layout.m).total() + buffer_elements(layout.m));
}

TEST_P(GoldenImport, ExportGivesTheSameFileAndTheSameModel) {
  const std::filesystem::path source = golden_dir(GetParam());
  ImportedModel model = import_hf(source);
  const ashlar::testing::ScratchDir dir;
  testing::ImportSource tensors(model);
  const Exported report = testing::export_alone(model.config(), tensors, dir.path() / "out");
  EXPECT_EQ(report.dtype, "float32");
  const model::ModelConfig& m = model.config().model;
  EXPECT_EQ(report.bytes, 4 * (model::count_parameters(m).total() + buffer_elements(m)));
  EXPECT_EQ(report.files, 1U);
  // The whole file, header included: names, order, shapes and every bit.
  EXPECT_EQ(testing::slurp(dir.path() / "out/model.safetensors"), testing::slurp(source / "model.safetensors"));
  const HfConfig again = parse_hf_config(testing::slurp(dir.path() / "out/config.json"), "exported");
  EXPECT_EQ(again.family, model.config().family);
  EXPECT_EQ(again.model, model.config().model);
  EXPECT_EQ(again.extras, model.config().extras);
  // An export never overwrites.
  EXPECT_EQ(testing::error_of([&] { testing::export_alone(model.config(), tensors, dir.path() / "out"); }).code(),
            ExitCode::kInput);
}

TEST_P(GoldenImport, HalfPrecisionFilesComeBackBitForBit) {
  StoredModel file = testing::load_file(golden_dir(GetParam()) / "model.safetensors");
  for (const auto dtype : {io::FileDType::kBF16, io::FileDType::kF16, io::FileDType::kF64}) {
    // Other finite bits of the right size will do: nothing may look further at the values when the dtype stays.
    StoredModel other;
    for (const auto& [name, tensor] : file) {
      std::string bytes = tensor.bytes;
      bytes.resize(tensor.bytes.size() / 4 * static_cast<size_t>(io::size_of(dtype)), '\x5a');
      for (size_t i = 1; i < bytes.size(); i += 2) bytes[i] = static_cast<char>(bytes[i] & 0xbf);  // of the exponent
      other[name] = {dtype, tensor.shape, bytes};
    }
    const ashlar::testing::ScratchDir dir;
    std::filesystem::copy_file(golden_dir(GetParam()) / "config.json", dir.path() / "config.json");
    testing::save_file(dir.path() / "model.safetensors", other);
    ImportedModel model = import_hf(dir.path());
    testing::ImportSource tensors(model);
    testing::export_alone(model.config(), tensors, dir.path() / "out");
    EXPECT_EQ(testing::load_file(dir.path() / "out/model.safetensors"), other);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenImport, ::testing::ValuesIn(testing::golden_folders()),
                         [](const auto& folder) { return std::string(folder.param); });

/// What each folder holds, read off its config.json by hand.
struct Expected {
  const char* folder;
  std::string_view type;
  int64_t width, layers, heads, kv, head_dim, d_ff, vocab;
  model::Topology topology;
  int norms;
  int64_t rope_dims;
  double rope_base, eps;
  Activation act;
  bool gated, tied;
  bool qkv, out, ffn, head;
};

TEST(GoldenConfig, AxesOfEveryFolder) {
  using model::Topology;
  constexpr auto S = Topology::kSerial, P = Topology::kParallel;
  constexpr auto kTanh = Activation::kGeluTanh, kErf = Activation::kGeluErf, kSilu = Activation::kSilu;
  const Expected table[] = {
      {"gpt2", "gpt2", 48, 3, 4, 4, 12, 96, 97, S, 1, 0, 1e4, 1e-3, kTanh, false, true, true, true, true, false},
      {"gptj", "gptj", 48, 3, 4, 4, 12, 96, 97, P, 1, 6, 1e4, 1e-5, kTanh, false, false, false, false, true, true},
      {"gpt_neox", "gpt_neox", 48,   3,     4,     4,     12,   96,   97,   P,    2,
       6,          1e4,        1e-5, kTanh, false, false, true, true, true, false},
      {"gpt_neox_serial",
       "gpt_neox",
       48,
       3,
       4,
       4,
       12,
       96,
       97,
       S,
       1,
       6,
       1e4,
       1e-5,
       kErf,
       false,
       false,
       true,
       true,
       true,
       false},
      {"llama", "llama", 48, 3, 4, 4, 12, 96, 97, S, 1, 12, 1e4, 1e-6, kSilu, true, false, false, false, false, false},
      {"llama_gqa_tied",
       "llama",
       48,
       3,
       4,
       2,
       12,
       96,
       97,
       S,
       1,
       12,
       5e5,
       1e-5,
       kSilu,
       true,
       true,
       false,
       false,
       false,
       false},
      {"llama_wide", "llama", 48,   3,     4,    2,     16,   96,   97,   S,    1,
       16,           1e3,     1e-6, kSilu, true, false, true, true, true, false},
      {"qwen2", "qwen2", 48, 3, 4, 1, 12, 96, 97, S, 1, 12, 1e4, 1e-3, kSilu, true, false, true, false, false, false},
      {"phi", "phi", 48, 3, 4, 2, 12, 96, 97, P, 1, 6, 1e4, 1e-5, kTanh, false, false, true, true, true, true},
      {"falcon7", "falcon", 48,   3,    4,     1,    12,    96,    97,    P,    1,
       12,        1e4,      1e-5, kErf, false, true, false, false, false, false},
      {"falcon40", "falcon", 48,   3,    4,     2,    12,    96,    97,    P,    2,
       12,         1e4,      1e-5, kErf, false, true, false, false, false, false},
      {"falcon2_11b", "falcon", 48,   3,     4,     2,     12,    96,    97,   P, 1, 12,
       1e4,           1e-5,     kErf, false, false, false, false, false, false},
      {"stablelm", "stablelm", 60,   2,     5,    5,     12,   84,    89,    S,    1,
       4,          1e4,        1e-4, kSilu, true, false, true, false, false, false},
      {"stablelm_parallel",
       "stablelm",
       64,
       3,
       4,
       2,
       16,
       72,
       101,
       P,
       1,
       4,
       1e4,
       1e-5,
       kSilu,
       true,
       false,
       false,
       false,
       false,
       false},
      {"phi3", "phi3", 48, 3, 6, 2, 8, 68, 83, S, 1, 6, 2e4, 1e-5, kSilu, true, false, false, false, false, false},
      {"phi3_legacy", "phi3", 48,    2,    4,    4,     12,    96,    97,   S, 1, 12,
       1e4,           1e-5,   kSilu, true, true, false, false, false, false},
      {"falcon_rw", "falcon", 48, 3, 4, 4, 12, 96, 97, S, 1, 12, 1e4, 1e-5, kErf, false, true, true, true, true, false},
      {"falcon_mha_parallel",
       "falcon",
       40,
       2,
       5,
       5,
       8,
       160,
       97,
       P,
       1,
       8,
       1e4,
       1e-5,
       kErf,
       false,
       false,
       false,
       false,
       false,
       false},
      {"qwen3", "qwen3", 30, 2, 5, 1, 8, 50, 55, S, 1, 8, 1e4, 3e-4, kSilu, true, false, false, false, false, false},
      {"glm4", "glm4", 30, 2, 5, 1, 8, 50, 55, S, 1, 4, 1e4, 3e-4, kSilu, true, false, true, false, false, false},
  };
  std::set<std::string> seen;
  for (const Expected& e : table) {
    SCOPED_TRACE(e.folder);
    seen.insert(e.folder);
    const HfConfig config = parse_hf_config(testing::slurp(golden_dir(e.folder) / "config.json"), e.folder);
    const model::ModelConfig& m = config.model;
    EXPECT_EQ(config.family->model_type, e.type);
    EXPECT_EQ(m.d_model, e.width);
    EXPECT_EQ(m.n_layers, e.layers);
    EXPECT_EQ(m.n_heads, e.heads);
    EXPECT_EQ(m.n_kv_heads, e.kv);
    EXPECT_EQ(m.head_dim, e.head_dim);
    EXPECT_EQ(m.d_ff, e.d_ff);
    EXPECT_EQ(m.vocab_size, e.vocab);
    EXPECT_EQ(m.vocab_pad_to, 1);
    EXPECT_EQ(m.block.topology, e.topology);
    EXPECT_EQ(m.block.parallel_norms, e.norms);
    const bool learned = e.type == "gpt2";
    EXPECT_EQ(m.pos.type, learned ? model::PosType::kLearned : model::PosType::kRope);
    EXPECT_EQ(m.pos.max_positions, learned ? 64 : 0);
    EXPECT_EQ(m.rope.dims, e.rope_dims);
    EXPECT_EQ(m.rope.base, e.rope_base);
    const bool interleaved = e.type == "gptj" || e.type == "glm4";
    EXPECT_EQ(m.rope.style, interleaved ? RopeStyle::kInterleaved : RopeStyle::kHalf);
    EXPECT_EQ(m.norm.placement, e.type == "glm4" ? model::NormPlacement::kSandwich : model::NormPlacement::kPre);
    EXPECT_EQ(m.qk_norm.kind, e.type == "qwen3" ? model::QkNorm::kHead : model::QkNorm::kNone);
    EXPECT_EQ(m.norm.variant.eps, e.eps);
    const bool rms =
        e.type == "llama" || e.type == "qwen2" || e.type == "phi3" || e.type == "qwen3" || e.type == "glm4";
    EXPECT_EQ(m.norm.variant.type, rms ? NormType::kRmsNorm : NormType::kLayerNorm);
    EXPECT_EQ(m.norm.affine, rms ? model::NormAffine::kScale : model::NormAffine::kScaleBias);
    EXPECT_EQ(m.ffn.act, e.act);
    EXPECT_EQ(m.ffn.gated, e.gated);
    EXPECT_EQ(m.tied, e.tied);
    EXPECT_EQ(m.bias, (model::BiasConfig{e.qkv, e.out, e.ffn, e.head}));
    EXPECT_DOUBLE_EQ(m.attn.scale, 1 / std::sqrt(static_cast<double>(e.head_dim)));
    EXPECT_EQ(m.dropout, model::DropoutConfig{});
    EXPECT_EQ(config.extras.max_positions, 64);
    EXPECT_EQ(config.extras.eos_token_ids, std::vector<int64_t>{0});
    EXPECT_TRUE(config.notes.empty()) << config.notes[0];
  }
  EXPECT_EQ(seen.size(), kGolden.size());
}

}  // namespace
}  // namespace ashlar::hf
