// Files of classes with experts: the forms that experts have in them, what is left out, missing, twice or of the wrong
// shape.
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "tests/hf/hf_support.h"

namespace ashlar::hf {
namespace {

using model::ModelConfig;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using testing::golden_dir;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::read_golden;
using testing::Stored;
using testing::StoredModel;

/// Weights of a golden folder, changed.
class ExpertFolder {
 public:
  ExpertFolder(const std::string& folder, const std::function<void(StoredModel&)>& change)
      : ExpertFolder(folder, testing::golden_config(folder), change) {}
  ExpertFolder(const std::string& folder, const nlohmann::json& config,
               const std::function<void(StoredModel&)>& change) {
    StoredModel weights = testing::load_file(golden_dir(folder) / "model.safetensors");
    change(weights);
    testing::save_file(dir_.path() / "model.safetensors", weights);
    testing::spit(dir_.path() / "config.json", config.dump());
  }
  ImportedModel import() const { return import_hf(dir_.path()); }
  std::string error() const {
    return testing::error_of([&] { import(); }).what();
  }

 private:
  ashlar::testing::ScratchDir dir_;
};

void rename_tensor(StoredModel& m, const std::string& from, const std::string& to) {
  m[to] = m.at(from);
  m.erase(from);
}

/// The form of experts in a file, for the tensors of one layer: `each` + number + "." + gate, up, down.
struct PerExpert {
  std::string each, gate, up, down;
};

/// Puts the matrices of experts into tensors [experts, ...] of all of them, as transformers 5 has them in memory.
void fuse(StoredModel& m, const PerExpert& from, int64_t experts, const std::string& to) {
  Stored gate_up, down;
  for (int64_t e = 0; e < experts; ++e) {
    const auto take = [&](const std::string& name, Stored& into, int64_t times) {
      const std::string whole = str_cat(from.each, e, ".", name, ".weight");
      const Stored matrix = m.at(whole);
      m.erase(whole);
      into.shape = {experts, times * matrix.shape[0], matrix.shape[1]};
      into.bytes += matrix.bytes;
    };
    take(from.gate, gate_up, 2);
    take(from.up, gate_up, 2);
    take(from.down, down, 1);
  }
  m[to + "gate_up_proj"] = gate_up;
  m[to + "down_proj"] = down;
}

void expect_same_weights(ImportedModel& model, const char* folder) {
  ImportedModel plain = import_hf(golden_dir(folder));
  ASSERT_EQ(model.tensors().size(), plain.tensors().size());
  for (const io::TensorSpec& spec : plain.tensors())
    EXPECT_EQ(testing::read_tensor(model, spec.name), testing::read_tensor(plain, spec.name)) << spec.name;
}

TEST(ExpertForms, FusedFilesOfClassesWithATensorForEachExpert) {
  const PerExpert of_mixtral = {"block_sparse_moe.experts.", "w1", "w3", "w2"};
  const PerExpert of_qwen = {"mlp.experts.", "gate_proj", "up_proj", "down_proj"};
  const std::tuple<const char*, PerExpert, int64_t, std::string> files[] = {
      {"mixtral", of_mixtral, 4, "mlp.experts."},  {"mixtral", of_mixtral, 4, "block_sparse_moe.experts."},
      {"qwen2_moe", of_qwen, 5, "mlp.experts."},   {"qwen3_moe", of_qwen, 6, "mlp.experts."},
      {"olmoe", of_qwen, 6, "mlp.experts."},       {"deepseek_v2", of_qwen, 6, "mlp.experts."},
      {"deepseek_v3", of_qwen, 8, "mlp.experts."}, {"glm4_moe", of_qwen, 6, "mlp.experts."},
      {"ernie4_5_moe", of_qwen, 6, "mlp.experts."}};
  for (const auto& [folder, from, experts, to] : files) {
    SCOPED_TRACE(folder + (" " + to));
    const ModelConfig config = read_golden(folder).model;
    const ExpertFolder changed(folder, [&, from = from, experts = experts, to = to](StoredModel& m) {
      for (int64_t layer = 0; layer < config.n_layers; ++layer) {
        if (!config.has_experts(layer)) continue;
        const std::string block = str_cat("model.layers.", layer, ".");
        PerExpert of_layer = from;
        of_layer.each = block + from.each;
        fuse(m, of_layer, experts, block + to);
        if (to == "mlp.experts." && config.moe.d_ff == 28)
          rename_tensor(m, block + "block_sparse_moe.gate.weight", block + "mlp.gate.weight");
      }
    });
    ImportedModel model = changed.import();
    expect_same_weights(model, folder);
    // An export has the names of the published files.
    testing::ImportSource source(model);
    const ashlar::testing::ScratchDir out;
    testing::export_alone(model.config(), source, out.path() / "out");
    EXPECT_EQ(testing::slurp(out.path() / "out/model.safetensors"),
              testing::slurp(golden_dir(folder) / "model.safetensors"));
  }
}

// Blocks that predict further tokens are left out, as many as config.json says, and no other.
TEST(ExpertForms, FurtherBlocksAreLeftOut) {
  const auto with = [](const char* folder, const std::string& name) {
    return ExpertFolder(folder, [&](StoredModel& m) { m[name] = m.at("model.norm.weight"); });
  };
  for (const auto& [folder, name] : {std::pair{"deepseek_v3", "model.layers.2.eh_proj.weight"},
                                     {"glm4_moe", "model.layers.2.mlp.experts.0.up_proj.weight"},
                                     {"ernie4_5_moe", "model.mtp_block.0.self_attn.q_proj.weight"}}) {
    const ExpertFolder changed = with(folder, name);
    ImportedModel model = changed.import();
    EXPECT_THAT(model.notes(), Contains(HasSubstr("1 tensors of blocks that predict further tokens (MTP)"))) << folder;
    expect_same_weights(model, folder);
  }
  EXPECT_THAT(with("deepseek_v3", "model.layers.3.eh_proj.weight").error(), HasSubstr("unknown: 'model.layers.3."));
  EXPECT_THAT(with("qwen3_moe", "model.layers.2.eh_proj.weight").error(), HasSubstr("unknown: 'model.layers.2."));
}

// The class keeps the selection bias in fp32, whatever the dtype of the model.
TEST(ExpertForms, TheSelectionBiasStaysWide) {
  for (const char* folder : {"deepseek_v3", "ernie4_5_moe"}) {
    ImportedModel model = import_hf(golden_dir(folder));
    testing::ImportSource source(model);
    const ashlar::testing::ScratchDir out;
    testing::export_alone(model.config(), source, out.path() / "out", {.dtype = io::FileDType::kBF16});
    const io::SafetensorsReader before(golden_dir(folder) / "model.safetensors"),
        after(out.path() / "out/model.safetensors");
    int64_t biases = 0;
    for (const io::TensorEntry& tensor : after.tensors()) {
      const bool bias = tensor.name.ends_with("e_score_correction_bias");
      EXPECT_EQ(tensor.dtype, bias ? io::FileDType::kF32 : io::FileDType::kBF16) << tensor.name;
      if (!bias) continue;
      std::vector<std::byte> a(before.at(tensor.name).num_bytes()), b(tensor.num_bytes());
      before.read(before.at(tensor.name), a);
      after.read(tensor, b);
      EXPECT_TRUE(a == b) << tensor.name;
      ++biases;
    }
    EXPECT_EQ(biases, 1);
  }
}

TEST(ExpertForms, ATensorForEachExpertOfClassesThatFuseThem) {
  const std::pair<const char*, const char*> files[] = {
      {"granitemoe", "block_sparse_moe."}, {"gpt_oss", "mlp."}, {"llama4_text", "feed_forward."}};
  for (const auto& [folder, where] : files) {
    SCOPED_TRACE(folder);
    ImportedModel plain = import_hf(golden_dir(folder));
    const ExpertFolder changed(folder, [&, where = where](StoredModel& m) {
      std::erase_if(m, [](const auto& tensor) {
        return tensor.first.find(".experts.") != std::string::npos ||
               tensor.first.find("put_linear") != std::string::npos;
      });
      for (const io::TensorSpec& spec : plain.tensors()) {
        const size_t at = spec.name.find(".moe.experts.");
        if (at == std::string::npos) continue;
        std::string name = spec.name.substr(at + 5);  // experts.E.gate.weight
        name.insert(name.rfind('.'), "_proj");
        m[str_cat("model.layers.", spec.name.substr(7, at - 7), ".", where, name)] =
            Stored{spec.dtype, spec.shape, testing::read_tensor(plain, spec.name)};
      }
    });
    ImportedModel model = changed.import();
    expect_same_weights(model, folder);
  }
}

TEST(ExpertForms, NamesOfGraniteInMemory) {
  const ExpertFolder changed("granitemoe", [](StoredModel& m) {
    for (const char* layer : {"0", "1"}) {
      const std::string moe = str_cat("model.layers.", layer, ".block_sparse_moe.");
      rename_tensor(m, moe + "input_linear.weight", moe + "experts.gate_up_proj");
      rename_tensor(m, moe + "output_linear.weight", moe + "experts.down_proj");
      rename_tensor(m, moe + "router.layer.weight", moe + "router.weight");
    }
  });
  ImportedModel model = changed.import();
  expect_same_weights(model, "granitemoe");
}

// GraniteMoeShared: the shared expert's gate and up are one tensor, the gate's rows first.
TEST(ExpertForms, ASharedExpertOfGranite) {
  json config =
      testing::changed(testing::golden_config("granitemoe"), {{"model_type", "granitemoeshared"},
                                                              {"architectures", {"GraniteMoeSharedForCausalLM"}},
                                                              {"shared_intermediate_size", 10}});
  const ashlar::testing::ScratchDir dir;
  StoredModel weights = testing::load_file(golden_dir("granitemoe") / "model.safetensors");
  for (const char* layer : {"0", "1"}) {
    const std::string shared = str_cat("model.layers.", layer, ".shared_mlp.");
    std::vector<float> in(20 * 24), out(24 * 10);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
    for (size_t i = 0; i < out.size(); ++i) out[i] = -static_cast<float>(i);
    const auto bytes = [](const std::vector<float>& v) {
      return std::string(reinterpret_cast<const char*>(v.data()), 4 * v.size());
    };
    weights[shared + "input_linear.weight"] = {io::FileDType::kF32, {20, 24}, bytes(in)};
    weights[shared + "output_linear.weight"] = {io::FileDType::kF32, {24, 10}, bytes(out)};
  }
  testing::save_file(dir.path() / "model.safetensors", weights);
  testing::spit(dir.path() / "config.json", config.dump());
  ImportedModel model = import_hf(dir.path());
  EXPECT_EQ(model.config().family->class_name, "GraniteMoeSharedForCausalLM");
  EXPECT_EQ(model.config().model.moe.shared_d_ff, 10);
  EXPECT_EQ(testing::floats(testing::read_tensor(model, "blocks.0.moe.shared.gate.weight"))[239], 239);
  EXPECT_EQ(testing::floats(testing::read_tensor(model, "blocks.0.moe.shared.up.weight"))[0], 240);
  EXPECT_EQ(testing::floats(testing::read_tensor(model, "blocks.1.moe.shared.down.weight"))[7], -7);
  testing::ImportSource source(model);
  testing::export_alone(model.config(), source, dir.path() / "out");
  EXPECT_EQ(testing::load_file(dir.path() / "out/model.safetensors"), weights);
  EXPECT_EQ(&choose_family(model.config().model, nullptr), &testing::family("granitemoeshared"));
  config["shared_intermediate_size"] = 11;
  testing::spit(dir.path() / "config.json", config.dump());
  EXPECT_THAT(testing::error_of([&] { import_hf(dir.path()); }).what(),
              HasSubstr("shared_mlp.input_linear.weight' is [20,24], expected [22,24]"));
}

TEST(ExpertForms, WithoutThePrefix) {
  for (const char* folder : {"mixtral", "gpt_oss"}) {
    const ExpertFolder changed(folder, [](StoredModel& m) {
      StoredModel plain;
      for (const auto& [name, tensor] : m) plain[name.starts_with("model.") ? name.substr(6) : name] = tensor;
      m = plain;
    });
    ImportedModel model = changed.import();
    expect_same_weights(model, folder);
  }
}

/// The config.json of Llama 4 with images, whose text model is the golden one.
nlohmann::json with_images() {
  nlohmann::json text = testing::golden_config("llama4_text");
  text.erase("architectures");
  return {{"architectures", {"Llama4ForConditionalGeneration"}},
          {"model_type", "llama4"},
          {"torch_dtype", "float32"},
          {"boi_token_index", 60},
          {"image_token_index", 61},
          {"vision_config", {{"hidden_size", 8}, {"model_type", "llama4_vision_model"}}},
          {"text_config", text}};
}

/// The names of that class. A part of each other kind.
void add_image_encoder(StoredModel& m) {
  StoredModel whole;
  for (const auto& [name, tensor] : m) whole["language_model." + name] = tensor;
  whole["vision_model.layernorm_post.weight"] = whole["multi_modal_projector.linear_1.weight"] =
      m.at("model.norm.weight");
  m = whole;
}

TEST(ExpertForms, TheTextModelOfLlama4WithImages) {
  const ExpertFolder folder("llama4_text", with_images(), add_image_encoder);
  ImportedModel model = folder.import();
  EXPECT_EQ(model.config().model, read_golden("llama4_text").model);
  EXPECT_EQ(model.config().family->class_name, "Llama4ForCausalLM");
  expect_same_weights(model, "llama4_text");
  EXPECT_THAT(model.notes(),
              AllOf(Contains("only the text model of Llama4ForConditionalGeneration is imported, as Llama4ForCausalLM; "
                             "its image encoder is left out"),
                    Contains(HasSubstr("2 tensors of the image encoder are left out"))));
  const auto error = [](const std::function<void(StoredModel&)>& change) {
    return ExpertFolder("llama4_text", with_images(),
                        [&](StoredModel& m) {
                          add_image_encoder(m);
                          change(m);
                        })
        .error();
  };
  EXPECT_THAT(error([](StoredModel& m) { m["vision.weight"] = m.at("language_model.model.norm.weight"); }),
              HasSubstr("unknown: 'vision.weight'"));
  EXPECT_THAT(error([](StoredModel& m) { rename_tensor(m, "language_model.model.norm.weight", "model.norm.weight"); }),
              AllOf(HasSubstr("missing: 'model.norm.weight'"), HasSubstr("unknown: 'model.norm.weight'")));
}

TEST(ExpertForms, KeysBesideTheTextModelOfLlama4) {
  const auto error = [](const nlohmann::json& changes) {
    const std::string text = testing::changed(with_images(), changes).dump();
    return std::string(testing::error_of([&] { parse_hf_config(text, "c.json"); }).what());
  };
  EXPECT_THAT(error({{"-text_config", 0}}), HasSubstr("text_config: expected the settings of the text model"));
  EXPECT_THAT(error({{"text_config", 3}}), HasSubstr("text_config = 3"));
  EXPECT_THAT(error({{"logit_scale", 2}}), HasSubstr("logit_scale = 2: Llama4ForConditionalGeneration is not known"));
  EXPECT_THAT(error({{"quantization_config", {{"quant_method", "fbgemm_fp8"}}}}), HasSubstr("quantised weights"));
  EXPECT_THAT(error({{"model_type", "mixtral"}}), HasSubstr("but model_type belongs to MixtralForCausalLM"));
  nlohmann::json config = with_images();
  config["text_config"]["model_type"] = "mixtral";
  EXPECT_THAT(testing::error_of([&] { parse_hf_config(config.dump(), "c.json"); }).what(),
              HasSubstr("but model_type belongs to MixtralForCausalLM"));
  config = testing::changed(with_images(), {{"logit_scale", 2}, {"-architectures", 0}, {"eos_token_id", 7}});
  config["text_config"].erase("eos_token_id");
  const HfConfig read = parse_hf_config(config.dump(), "c.json", {"logit_scale"});
  EXPECT_EQ(read.model, read_golden("llama4_text").model) << "by the model type alone";
  EXPECT_EQ(read.extras.eos_token_ids, std::vector<int64_t>{7});
}

TEST(ExpertForms, AnExpertThatIsMissingOrTwiceIsNamed) {
  const std::string third = "model.layers.1.mlp.experts.3.";
  EXPECT_THAT(ExpertFolder("qwen3_moe", [&](StoredModel& m) { m.erase(third + "up_proj.weight"); }).error(),
              HasSubstr(str_cat("missing: '", third, "up_proj.weight'")));
  const auto gone = [&](StoredModel& m) {
    for (const char* matrix : {"gate", "up", "down"}) m.erase(str_cat(third, matrix, "_proj.weight"));
  };
  EXPECT_THAT(ExpertFolder("qwen3_moe", gone).error(),
              AllOf(HasSubstr(third + "gate_proj"), HasSubstr(third + "down_proj"), Not(HasSubstr("experts.2"))));
  // Beside the experts that have tensors of their own.
  const std::string fused = "model.layers.1.mlp.experts.down_proj";
  EXPECT_THAT(ExpertFolder("qwen3_moe", [&](StoredModel& m) { m[fused] = m.at(third + "down_proj.weight"); }).error(),
              AllOf(HasSubstr("experts that the files also have under other names: '" + fused + "'"),
                    Not(HasSubstr("unknown")), Not(HasSubstr("missing"))));
  const std::string of_gpt = "model.layers.0.mlp.experts.2.up_proj.weight";
  EXPECT_THAT(ExpertFolder("gpt_oss", [&](StoredModel& m) { m[of_gpt] = m.at("model.norm.weight"); }).error(),
              HasSubstr("experts that the files also have under other names: '" + of_gpt + "'"));
  // One more than the configuration has.
  const std::string seventh = "model.layers.1.mlp.experts.6.up_proj.weight";
  EXPECT_THAT(ExpertFolder("qwen3_moe", [&](StoredModel& m) { m[seventh] = m.at(third + "up_proj.weight"); }).error(),
              HasSubstr("unknown: '" + seventh + "'"));
  EXPECT_THAT(ExpertFolder("gpt_oss",
                           [](StoredModel& m) {
                             Stored& down = m.at("model.layers.1.mlp.experts.down_proj_bias");
                             down.shape[0] = 3;
                             down.bytes.resize(3 * 24 * 4);
                           })
                  .error(),
              HasSubstr("'model.layers.1.mlp.experts.down_proj_bias' is [3,24], expected [4,24]"));
}

TEST(ExpertForms, ARouterOfTheWrongWidthIsNamed) {
  EXPECT_THAT(ExpertFolder("olmoe",
                           [](StoredModel& m) {
                             Stored& gate = m.at("model.layers.0.mlp.gate.weight");
                             gate.shape[0] = 5;
                             gate.bytes.resize(5 * 24 * 4);
                           })
                  .error(),
              HasSubstr("'model.layers.0.mlp.gate.weight' is [5,24], expected [6,24]"));
}

// Windows of a few rows give the same file.
TEST(ExpertForms, ExportInSmallWindows) {
  for (const char* folder : {"gpt_oss", "granitemoe", "llama4_text"}) {
    ImportedModel model = import_hf(golden_dir(folder));
    testing::ImportSource source(model);
    const ashlar::testing::ScratchDir out;
    testing::export_alone(model.config(), source, out.path() / "out", {.window_bytes = 5 * 24 * 4});
    EXPECT_EQ(testing::slurp(out.path() / "out/model.safetensors"),
              testing::slurp(golden_dir(folder) / "model.safetensors"))
        << folder;
    EXPECT_LE(source.most_bytes(), size_t{5} * 24 * 4) << folder;
  }
}

TEST(ExpertForms, ANaNOfAnFp16RouterIsNamed) {
  ExpertFolder changed("olmoe", [](StoredModel& m) {
    Stored& gate = m.at("model.layers.1.mlp.gate.weight");
    gate.dtype = io::FileDType::kF16;
    gate.bytes.assign(static_cast<size_t>(2 * 6 * 24), '\0');
    const uint16_t nan = 0x7e00;
    std::memcpy(gate.bytes.data() + 2 * (3 * 24 + 5), &nan, 2);
  });
  ImportedModel model = changed.import();
  const Error error = testing::error_of([&] { testing::read_tensor(model, "blocks.1.moe.router.weight"); });
  EXPECT_EQ(error.code(), ExitCode::kNonFinite);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("model.layers.1.mlp.gate.weight"), HasSubstr("[3, 5]"), HasSubstr("nan")));
}

TEST(ExpertForms, ANonFiniteWeightIsNamedWithItsExpert) {
  ExpertFolder changed("gpt_oss", [](StoredModel& m) {
    const float nan = std::nanf("");
    // Expert 2, input 3, column 9 of 32: row 4 of its up matrix.
    std::memcpy(m.at("model.layers.1.mlp.experts.gate_up_proj").bytes.data() + 4 * ((2 * 24 + 3) * 32 + 9), &nan, 4);
  });
  ImportedModel model = changed.import();
  EXPECT_NO_THROW(testing::read_tensor(model, "blocks.1.moe.experts.2.gate.weight"));
  EXPECT_THAT(testing::error_of([&] { testing::read_tensor(model, "blocks.1.moe.experts.2.up.weight"); }).what(),
              AllOf(HasSubstr("model.layers.1.mlp.experts.gate_up_proj"), HasSubstr("experts.2.up.weight"),
                    HasSubstr("[4, 3]")));
}

}  // namespace
}  // namespace ashlar::hf
