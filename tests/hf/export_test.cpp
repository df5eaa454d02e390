#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "launch/config/run_config.h"
#include "launch/config/schema.h"
#include "launch/hf/convert.h"
#include "launch/hf/family.h"
#include "launch/hf/hf_config.h"
#include "launch/zoo/published.h"
#include "tests/hf/hf_support.h"

namespace ashlar::hf {
namespace {

using testing::golden_dir;
using ::testing::HasSubstr;
using testing::read_golden;
using testing::StoredModel;

/// A copy of a golden folder whose tensors were changed.
ImportedModel import_changed(const ashlar::testing::ScratchDir& dir, const char* folder, const StoredModel& model) {
  std::filesystem::copy_file(golden_dir(folder) / "config.json", dir.path() / "config.json",
                             std::filesystem::copy_options::overwrite_existing);
  testing::save_file(dir.path() / "model.safetensors", model);
  return import_hf(dir.path());
}

StoredModel golden_tensors(const char* folder) { return testing::load_file(golden_dir(folder) / "model.safetensors"); }

TEST(HfImport, WithoutPrefixWithOldBuffersAndARepeatedTiedHead) {
  StoredModel changed;
  for (auto& [name, tensor] : golden_tensors("gpt2")) changed[name.substr(std::string("transformer.").size())] = tensor;
  changed["h.0.attn.bias"] = {io::FileDType::kU8, {1, 1, 64, 64}, std::string(64 * 64, '\1')};
  changed["h.0.attn.masked_bias"] = {io::FileDType::kF32, {}, std::string(4, '\0')};
  changed["lm_head.weight"] = changed["wte.weight"];
  const ashlar::testing::ScratchDir dir;
  ImportedModel model = import_changed(dir, "gpt2", changed);
  ImportedModel plain = import_hf(golden_dir("gpt2"));
  for (const io::TensorSpec& spec : plain.tensors()) {
    EXPECT_EQ(testing::read_tensor(model, spec.name), testing::read_tensor(plain, spec.name)) << spec.name;
  }
  EXPECT_EQ(model.notes().size(), 2U);
  changed["lm_head.weight"].bytes[100] ^= 1;
  EXPECT_THAT(testing::error_of([&] { import_changed(dir, "gpt2", changed); }).what(),
              HasSubstr("expected 'lm_head.weight' to equal 'wte.weight'"));
}

TEST(HfImport, NeoxHeadUnderEitherName) {
  StoredModel changed = golden_tensors("gpt_neox");
  changed["lm_head.weight"] = changed["embed_out.weight"];
  const ashlar::testing::ScratchDir dir;
  EXPECT_THAT(testing::error_of([&] { import_changed(dir, "gpt_neox", changed); }).what(),
              HasSubstr("unknown: 'lm_head.weight'"));
  changed.erase("embed_out.weight");
  ImportedModel model = import_changed(dir, "gpt_neox", changed);
  EXPECT_EQ(testing::read_tensor(model, "head.weight"), golden_tensors("gpt_neox")["embed_out.weight"].bytes);
}

TEST(HfImport, NamesWhatIsMissingUnknownOrWrong) {
  const ashlar::testing::ScratchDir dir;
  StoredModel changed = golden_tensors("llama");
  const testing::Stored taken = changed["model.layers.1.mlp.up_proj.weight"];
  changed.erase("model.layers.1.mlp.up_proj.weight");
  changed["model.layers.1.mlp.extra.weight"] = taken;
  changed["model.norm.weight"] = {io::FileDType::kF32, {47}, std::string(47 * 4, '\0')};
  changed["model.layers.0.input_layernorm.weight"] = {io::FileDType::kI32, {48}, std::string(48 * 4, '\0')};
  const Error error = testing::error_of([&] { import_changed(dir, "llama", changed); });
  EXPECT_EQ(error.code(), ExitCode::kInput);
  EXPECT_THAT(error.what(), HasSubstr("missing: 'model.layers.1.mlp.up_proj.weight'"));
  EXPECT_THAT(error.what(), HasSubstr("unknown: 'model.layers.1.mlp.extra.weight'"));
  EXPECT_THAT(error.what(), HasSubstr("'model.norm.weight' is [47], expected [48]"));
  EXPECT_THAT(error.what(), HasSubstr("is I32, expected F32"));
}

TEST(HfImport, WrongConfigForTheWeights) {
  const ashlar::testing::ScratchDir dir;
  auto config = nlohmann::json::parse(testing::slurp(golden_dir("llama") / "config.json"));
  std::filesystem::copy_file(golden_dir("llama") / "model.safetensors", dir.path() / "model.safetensors");
  for (const auto& [key, value] : {std::pair<const char*, nlohmann::json>{"num_hidden_layers", 2147483647},
                                   {"num_hidden_layers", 2},
                                   {"tie_word_embeddings", true},
                                   {"attention_bias", true},
                                   {"vocab_size", 96}}) {
    auto changed = config;
    changed[key] = value;
    testing::spit(dir.path() / "config.json", changed.dump());
    EXPECT_EQ(testing::error_of([&] { import_hf(dir.path()); }).code(), ExitCode::kInput) << key;
  }
  std::filesystem::remove(dir.path() / "config.json");
  EXPECT_THAT(testing::error_of([&] { import_hf(dir.path()); }).what(), HasSubstr("config.json"));
}

TEST(HfImport, ShardsReadAsOneFile) {
  const ashlar::testing::ScratchDir dir;
  std::filesystem::copy_file(golden_dir("phi3") / "config.json", dir.path() / "config.json");
  StoredModel shards[2];
  nlohmann::json index;
  int i = 0;
  for (auto& [name, tensor] : golden_tensors("phi3")) {
    index["weight_map"][name] = i % 2 == 0 ? "a.safetensors" : "b.safetensors";
    shards[i++ % 2][name] = tensor;
  }
  testing::save_file(dir.path() / "a.safetensors", shards[0]);
  testing::save_file(dir.path() / "b.safetensors", shards[1]);
  testing::spit(dir.path() / "model.safetensors.index.json", index.dump());
  ImportedModel model = import_hf(dir.path());
  testing::ImportSource source(model);
  testing::export_alone(model.config(), source, dir.path() / "out");
  EXPECT_EQ(testing::slurp(dir.path() / "out/model.safetensors"),
            testing::slurp(golden_dir("phi3") / "model.safetensors"));
}

TEST(HfExport, InAnotherDtypeRoundsOnceAndRefusesWhatDoesNotFit) {
  ImportedModel model = import_hf(golden_dir("qwen2"));
  testing::ImportSource source(model);
  const ashlar::testing::ScratchDir dir;
  const Exported report =
      testing::export_alone(model.config(), source, dir.path() / "bf16", {.dtype = io::FileDType::kBF16});
  EXPECT_EQ(report.dtype, "bfloat16");
  const StoredModel before = golden_tensors("qwen2");
  for (const auto& [name, tensor] : testing::load_file(dir.path() / "bf16/model.safetensors")) {
    EXPECT_EQ(tensor.dtype, io::FileDType::kBF16);
    const std::vector<float> exact = testing::floats(before.at(name).bytes);
    for (size_t i = 0; i < exact.size(); ++i) {
      uint16_t bits = 0;
      std::memcpy(&bits, tensor.bytes.data() + 2 * i, 2);
      const uint32_t wide = uint32_t{bits} << 16;
      float rounded = 0;
      std::memcpy(&rounded, &wide, 4);
      ASSERT_LE(std::abs(rounded - exact[i]), std::abs(exact[i]) * 0x1p-8F);
    }
  }
  StoredModel large = before;
  const float big = 1e6F;
  std::memcpy(large["model.norm.weight"].bytes.data() + 8, &big, 4);
  ImportedModel changed = import_changed(dir, "qwen2", large);
  testing::ImportSource changed_source(changed);
  const Error error = testing::error_of([&] {
    testing::export_alone(changed.config(), changed_source, dir.path() / "f16", {.dtype = io::FileDType::kF16});
  });
  EXPECT_THAT(error.what(), HasSubstr("norm_final.weight element 2 is out of range for float16"));
  EXPECT_FALSE(std::filesystem::exists(dir.path() / "f16/config.json"));
  EXPECT_FALSE(std::filesystem::exists(dir.path() / "f16/model.safetensors"));
}

TEST(HfExport, AnotherClassThatHasTheSameModel) {
  ImportedModel model = import_hf(golden_dir("phi3_legacy"));
  EXPECT_EQ(choose_family(model.config().model, nullptr).model_type, "llama");
  HfConfig config = model.config();
  config.family = &testing::family("llama");
  const ashlar::testing::ScratchDir dir;
  testing::ImportSource source(model);
  testing::export_alone(config, source, dir.path() / "out");
  ImportedModel again = import_hf(dir.path() / "out");
  EXPECT_EQ(again.config().model, config.model);
  for (const io::TensorSpec& spec : model.tensors()) {
    EXPECT_EQ(testing::read_tensor(again, spec.name), testing::read_tensor(model, spec.name)) << spec.name;
  }
}

TEST(HfExport, TheClassIsChosenFromTheAxes) {
  for (const char* folder : testing::golden_folders()) {
    const HfConfig config = read_golden(folder);
    EXPECT_TRUE(obstacles(*config.family, config.model).empty()) << folder;
    EXPECT_TRUE(obstacles(choose_family(config.model, nullptr), config.model).empty()) << folder;
    EXPECT_EQ(&choose_family(config.model, config.family), config.family);
  }
}

/// Values that a key of the schema may have, other than that of the model.
std::vector<std::string> other_values(const config::KeySpec& spec, const model::ModelConfig& m) {
  config::RunConfig run;
  run.model = m;
  const auto value = spec.member.get(run);
  if (!value) return {std::string(spec.example)};
  if (spec.type == config::KeyType::kBool) return {std::get<bool>(*value) ? "false" : "true"};
  if (const auto* size = std::get_if<int64_t>(&*value)) return {std::to_string(*size * 2), std::to_string(*size / 2)};
  if (const auto* number = std::get_if<double>(&*value)) return {std::to_string(*number * 1.5 + 0.01)};
  std::vector<std::string> words;
  for (const std::string_view word : config::words_of(spec)) words.emplace_back(word);
  return words;
}

TEST(HfExport, EveryAxisOfEveryClassIsWrittenOrRefusedByName) {
  int written = 0, refused = 0;
  for (const char* folder : testing::golden_folders()) {
    const HfConfig golden = read_golden(folder);
    for (const config::KeySpec& spec : config::schema()) {
      const bool of_the_class = config::is_weights_key(spec) || std::string_view(spec.section) == "dropout";
      if (!of_the_class || spec.member.get == nullptr) continue;
      for (const std::string& value : other_values(spec, golden.model)) {
        HfConfig changed = golden;
        try {
          const auto raw = config::parse_config(config::model_to_toml(golden.model), "x", {spec.name() + "=" + value});
          changed.model = config::resolve(raw, {.purpose = config::Purpose::kModel}).config.model;
        } catch (const config::ConfigError&) {
          continue;  // no model at all
        }
        SCOPED_TRACE(std::string(folder) + " " + spec.name() + " = " + value);
        const auto found = obstacles(*golden.family, changed.model);
        if (!found.empty()) {
          // Of axes that one key of the class says, it may be the other that is named.
          const std::string axis = found[0].substr(0, found[0].find(" = "));
          EXPECT_NO_THROW(config::key_index(axis)) << found[0];
          ++refused;
          continue;
        }
        const HfConfig again = parse_hf_config(write_hf_config(changed, "float32"), "x");
        // Granite's files have its inverse, of which none may give these very bits.
        EXPECT_DOUBLE_EQ(again.model.logit_scale, changed.model.logit_scale);
        changed.model.logit_scale = again.model.logit_scale;
        EXPECT_EQ(with_shortest_cycle(again.model), with_shortest_cycle(changed.model));
        ++written;
      }
    }
  }
  EXPECT_GT(written, 200);
  EXPECT_GT(refused, 200);
}

struct Obstacle {
  const char* folder;
  void (*change)(model::ModelConfig&);
  const char* names;
};

TEST(HfExport, AModelThatNoClassHasIsRefusedWithTheAxis) {
  using model::ModelConfig;
  const Obstacle table[] = {
      {"llama",
       [](ModelConfig& m) {
         m.rope.style = RopeStyle::kInterleaved;
         m.block.residual_multiplier = 0.5;
       },
       "rope.style = interleaved"},
      {"llama", [](ModelConfig& m) { m.pos.type = model::PosType::kNone; }, "pos.type = none"},
      {"llama", [](ModelConfig& m) { m.bias.lm_head = true; }, "bias.lm_head = true"},
      {"llama", [](ModelConfig& m) { m.norm.affine = model::NormAffine::kScaleBias; }, "norm.affine = scale_bias"},
      {"llama",
       [](ModelConfig& m) {
         m.attn.scale = 0.5;
         m.rope.style = RopeStyle::kInterleaved;
       },
       "attn.scale = 0.5"},
      {"llama", [](ModelConfig& m) { m.norm.placement = model::NormPlacement::kPost; }, "norm.placement = post"},
      {"qwen3", [](ModelConfig& m) { m.qk_norm.bias = true; }, "attn.qk_norm_bias = true"},
      {"qwen3", [](ModelConfig& m) { m.qk_norm.eps = 1e-2; }, "attn.qk_norm_eps = 0.01"},
      {"llama", [](ModelConfig& m) { m.norm.final = false; }, "norm.final = false"},
      {"llama", [](ModelConfig& m) { m.dropout.embed = 0.1, m.softcap = 30; }, "dropout.embed = 0.1"},
      {"gpt2", [](ModelConfig& m) { m.n_kv_heads = 2; }, "model.n_kv_heads = 2"},
      {"gpt2", [](ModelConfig& m) { m.ffn.gated = true; }, "ffn.gated = true"},
      {"gptj", [](ModelConfig& m) { m.rope.base = 5e5; }, "rope.base = 500000"},
      {"falcon40",
       [](ModelConfig& m) {
         m.block = {};
         m.bias.lm_head = true;
       },
       "model.n_kv_heads = 2"},
      {"llama", [](ModelConfig& m) { m.softcap = 30; }, "head.softcap = 30"},
      {"llama",
       [](ModelConfig& m) {
         m.norm_rows = true;
         m.tied = true;
       },
       "head.norm_rows = true"},
      {"gpt2", [](ModelConfig& m) { m.ffn = {.act = Activation::kSilu, .clamp = 20.0}; }, "ffn.clamp = 20"},
      {"falcon40", [](ModelConfig& m) { m.rope.dims = 6; }, "rope.dims = 6"},
  };
  for (const Obstacle& row : table) {
    SCOPED_TRACE(row.names);
    HfConfig config = read_golden(row.folder);
    row.change(config.model);
    EXPECT_EQ(testing::error_of([&] { choose_family(config.model, nullptr); }).code(), ExitCode::kInput);
    const Error error = testing::error_of([&] { choose_family(config.model, config.family); });
    EXPECT_THAT(error.what(), HasSubstr(row.names));
    EXPECT_THAT(error.what(), HasSubstr(std::string(config.family->class_name)));
  }
}

// Zeros and ones are added, never taken away; a class that has the model as it is comes first.
TEST(HfExport, WhatAClassDemandsOrAddsBesidesItsKeys) {
  model::ModelConfig m = read_golden("llama").model;
  m.n_heads = m.n_kv_heads = 5;  // of a width of 48
  EXPECT_THAT(obstacles(testing::family("llama"), m), ::testing::ElementsAre(HasSubstr("model.n_heads = 5")));
  m = read_golden("llama").model;
  m.bias.attn_out = true;
  EXPECT_TRUE(completed(testing::family("llama"), m).bias.qkv) << "one key says both";
}

TEST(HfExport, VectorsThatOnlyTheClassHasAreNoObstacle) {
  for (const char* folder : {"gpt2", "gptj", "phi", "qwen2", "gpt_neox", "llama", "falcon7"}) {
    SCOPED_TRACE(folder);
    HfConfig config = read_golden(folder);
    config.model.bias = {};
    config.model.norm.affine = model::NormAffine::kNone;
    EXPECT_FALSE(obstacles(*config.family, config.model).empty());
    EXPECT_EQ(&choose_family(config.model, config.family), config.family);
    const model::ModelConfig whole = completed(*config.family, config.model);
    EXPECT_TRUE(obstacles(*config.family, whole).empty());
    EXPECT_EQ(completed(*config.family, whole), whole);
    int added = 0;
    for (const TensorMapping& mapping : tensor_mappings(*config.family, whole)) {
      for (const TensorPart& part : mapping.parts) {
        const bool vector = part.name.ends_with(".bias") || part.name.find("norm") != std::string::npos;
        EXPECT_EQ(is_completion(config.model, part.name), vector) << part.name;
        EXPECT_FALSE(is_completion(whole, part.name)) << part.name;
        added += vector;
      }
    }
    EXPECT_GT(added, 0);
  }
  const HfConfig qwen = read_golden("qwen2");
  model::ModelConfig plain = qwen.model;
  plain.bias = {};
  EXPECT_EQ(choose_family(plain, nullptr).model_type, "llama") << "the class without biases";
}

// A norm of queries and keys that has gains gets zeros for the biases of its class; one of another kind stays in the
// way.
TEST(HfExport, BiasesOfTheNormsOfQueriesAndKeysAreAdded) {
  for (const char* folder : {"chameleon", "persimmon"}) {
    SCOPED_TRACE(folder);
    const HfConfig config = read_golden(folder);
    model::ModelConfig m = config.model;
    ASSERT_TRUE(m.qk_norm.bias);
    m.qk_norm.bias = false;
    EXPECT_FALSE(obstacles(*config.family, m).empty());
    EXPECT_EQ(&choose_family(m, nullptr), config.family);
    EXPECT_EQ(completed(*config.family, m), config.model);
    int64_t added = 0;
    for (const TensorMapping& mapping : tensor_mappings(*config.family, config.model)) {
      for (const TensorPart& part : mapping.parts) {
        const bool bias = part.name.ends_with("q_norm.bias") || part.name.ends_with("k_norm.bias");
        EXPECT_EQ(is_completion(m, part.name), bias) << part.name;
        EXPECT_FALSE(is_completion(config.model, part.name)) << part.name;
        added += bias;
      }
    }
    EXPECT_EQ(added, 2 * m.n_layers);
    m.qk_norm = {.kind = model::QkNorm::kFull, .type = NormType::kLayerNorm, .eps = m.qk_norm.eps};
    EXPECT_FALSE(completed(*config.family, m).qk_norm.bias);
    EXPECT_THAT(testing::error_of([&] { choose_family(m, config.family); }).what(), HasSubstr("attn.qk_norm = full"));
  }
}

TEST(HfExport, EveryFractionComesBackToItsDimensions) {
  HfConfig config = read_golden("phi");
  for (int64_t head_dim = 4; head_dim <= 256; head_dim += 4) {
    for (int64_t dims = 2; dims <= head_dim; dims += 2) {
      config.model.head_dim = head_dim;
      config.model.d_model = 4 * head_dim;
      config.model.attn.scale = 1 / std::sqrt(static_cast<double>(head_dim));
      config.model.rope.dims = dims;
      ASSERT_EQ(parse_hf_config(write_hf_config(config, "float32"), "x").model.rope.dims, dims) << head_dim;
    }
  }
}

TEST(HfConvert, NamesTheFirstFiniteValueThatOverflows) {
  const double values[4] = {1.0, std::numeric_limits<double>::infinity(), 1e300, 2.0};
  float out[4];
  EXPECT_EQ(convert_elements(io::FileDType::kF64, std::as_bytes(std::span(values)), io::FileDType::kF32,
                             std::as_writable_bytes(std::span(out))),
            2);
  EXPECT_EQ(out[0], 1.0F);
  EXPECT_EQ(out[3], 2.0F);
}

TEST(HfConvert, TransposeOfOddShapes) {
  for (const int64_t rows : {1, 31, 33}) {
    for (const int64_t cols : {1, 32, 65}) {
      std::vector<uint16_t> src(static_cast<size_t>(rows * cols)), dst(src.size());
      for (size_t i = 0; i < src.size(); ++i) src[i] = static_cast<uint16_t>(i);
      transpose(std::as_bytes(std::span(src)), rows, cols, 2, std::as_writable_bytes(std::span(dst)));
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < cols; ++c) ASSERT_EQ(dst[static_cast<size_t>(c * rows + r)], r * cols + c);
      }
    }
  }
}

// `ashlar zoo tiny` promises a model of the same options, so that what is tried with it holds for the model.
TEST(HfExport, ATinyTwinHasTheClassOfItsModel) {
  const auto class_of = [](const model::ModelConfig& config) -> std::string {
    try {
      return std::string(choose_family(config, nullptr).class_name);
    } catch (const Error&) {
      return "none";
    }
  };
  int64_t with_class = 0;
  for (const zoo::Published& published : zoo::published_models()) {
    const std::string own = class_of(published.config.model);
    const config::RawConfig twin = config::parse_config(std::string(zoo::published_text(published.id).toml),
                                                        published.id, zoo::tiny_twin(published.config));
    const config::Facts facts{.dataset_vocab_size = 257, .purpose = config::Purpose::kModel};
    EXPECT_EQ(class_of(config::resolve(twin, facts).config.model), own) << published.id;
    with_class += own == "none" ? 0 : 1;
  }
  EXPECT_GE(with_class, 65) << "of 71";
}

}  // namespace
}  // namespace ashlar::hf
