// Classes of latent attention, and Apertus with its learned activation: what is read of their files, both ways, which
// row of a file is which of ours, and what is refused.
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/hf/hf_support.h"

namespace ashlar::hf {
namespace {

using model::AttentionKind;
using model::ModelConfig;
using ::testing::Contains;
using testing::golden_dir;
using ::testing::HasSubstr;
using testing::read_golden;
using testing::StoredModel;

TEST(LatentClasses, AxesOfTheirFiles) {
  const ModelConfig mini = read_golden("minicpm3").model;
  EXPECT_EQ(mini.attn.kind, AttentionKind::kMla);
  EXPECT_EQ(mini.attn.q_rank, 14);
  EXPECT_EQ(mini.attn.kv_rank, 10);
  EXPECT_EQ(mini.attn.v_head_dim, 7);
  EXPECT_EQ(mini.head_dim, 10);
  EXPECT_EQ(mini.rope.dims, 4);
  EXPECT_EQ(mini.rope.style, RopeStyle::kHalf);
  EXPECT_DOUBLE_EQ(mini.attn.latent_eps, 1e-6);
  EXPECT_DOUBLE_EQ(mini.norm.variant.eps, 3e-4);
  EXPECT_DOUBLE_EQ(mini.attn.scale, 1 / std::sqrt(10.0));
  EXPECT_DOUBLE_EQ(mini.block.residual_multiplier, 1.4 / std::sqrt(2.0));
  EXPECT_DOUBLE_EQ(mini.logit_scale, 12.0 / 30);
  EXPECT_EQ(mini.embed_scale, 3);
  EXPECT_TRUE(mini.tied);

  const ModelConfig youtu = read_golden("youtu").model;
  EXPECT_EQ(youtu.attn.kind, AttentionKind::kMla);
  EXPECT_EQ(youtu.rope.style, RopeStyle::kInterleaved);
  EXPECT_EQ(youtu.block.residual_multiplier, 1);
  EXPECT_EQ(youtu.logit_scale, 1);

  const ModelConfig apertus = read_golden("apertus").model;
  EXPECT_EQ(apertus.ffn, (model::FfnConfig{Activation::kXielu, false}));
  EXPECT_EQ(apertus.qk_norm.kind, model::QkNorm::kHead);
  EXPECT_EQ(apertus.rope.scaling, model::RopeScaling::kLlama3);
  EXPECT_EQ(apertus.attn.kind, AttentionKind::kStandard);
}

TEST(LatentClasses, OtherValuesAndDefaults) {
  EXPECT_EQ(read_golden("minicpm3", {{"q_lora_rank", nullptr}}).model.attn.q_rank, 0);
  const HfConfig absent = read_golden("minicpm3", {{"-q_lora_rank", 0}});
  EXPECT_EQ(absent.model.attn.q_rank, 768);
  EXPECT_THAT(absent.notes, Contains(HasSubstr("768")));
  EXPECT_EQ(read_golden("minicpm3", {{"v_head_dim", nullptr}}).model.attn.v_head_dim, 6) << "width / heads";
  EXPECT_EQ(read_golden("minicpm3", {{"v_head_dim", 10}}).model.attn.v_head_dim, 0) << "as wide as keys";
  EXPECT_EQ(read_golden("youtu", {{"-v_head_dim", 0}}).model.attn.v_head_dim, 128);
  EXPECT_EQ(read_golden("minicpm3", {{"scale_depth", nullptr}}).model.block.residual_multiplier, 1);
  EXPECT_EQ(read_golden("minicpm3", {{"dim_model_base", nullptr}}).model.logit_scale, 1);
  EXPECT_EQ(read_golden("minicpm3", {{"attention_bias", true}, {"mlp_bias", true}}).model.bias,
            (model::BiasConfig{true, true, true, false}));
  EXPECT_EQ(read_golden("youtu", {{"rope_interleave", false}}).model.rope.style, RopeStyle::kHalf);
  // The class makes it of the rotated part, whatever the file says.
  EXPECT_THAT(read_golden("youtu", {{"head_dim", 10}}).notes, Contains(HasSubstr("head_dim = 10 has no effect")));
  // The spelling of version 4; factors are those of the rotated pairs.
  const ModelConfig four = read_golden("minicpm3", {{"-rope_parameters", 0}, {"rope_theta", 500.0}}).model;
  EXPECT_EQ(four.rope.base, 500);
  EXPECT_EQ(four.rope.dims, 4);
  const nlohmann::json longrope = {{"type", "longrope"},
                                   {"short_factor", {1.0, 1.5}},
                                   {"long_factor", {2.0, 3.0}},
                                   {"original_max_position_embeddings", 32}};
  const ModelConfig stretched = read_golden("minicpm3", {{"-rope_parameters", 0}, {"rope_scaling", longrope}}).model;
  EXPECT_EQ(stretched.rope.long_factor, (std::vector<double>{2, 3}));
  EXPECT_DOUBLE_EQ(stretched.attn.scale, 1 / std::sqrt(10.0));
  // Under YaRN the scale grows by the square of its factor.
  const nlohmann::json yarn = {{"rope_type", "yarn"}, {"rope_theta", 10000.0},
                               {"factor", 4.0},       {"original_max_position_embeddings", 16},
                               {"mscale", 1.0},       {"mscale_all_dim", 1.0}};
  const ModelConfig grown = read_golden("youtu", {{"rope_parameters", yarn}}).model;
  const double factor = 0.1 * std::log(4.0) + 1;
  EXPECT_DOUBLE_EQ(grown.attn.scale, factor * factor / std::sqrt(10.0));
  EXPECT_EQ(grown.rope.attention_factor, 1);
  // Apertus without a dictionary takes its own.
  const HfConfig bare = read_golden("apertus", {{"-rope_scaling", 0}, {"-rope_theta", 0}});
  EXPECT_EQ(bare.model.rope.base, 12000000.0);
  EXPECT_EQ(bare.model.rope.factor, 8);
  EXPECT_EQ(bare.model.rope.original_positions, 8192);
  EXPECT_THAT(bare.notes, Contains(HasSubstr("rope_parameters is absent: using llama3")));
}

TEST(LatentClasses, WrittenAndReadAgainIsTheSameModel) {
  const nlohmann::json yarn = {{"rope_type", "yarn"},
                               {"rope_theta", 10000.0},
                               {"factor", 40.0},
                               {"original_max_position_embeddings", 16},
                               {"mscale_all_dim", 0.707}};
  const std::pair<const char*, nlohmann::json> files[] = {
      {"minicpm3", {}},
      {"minicpm3", {{"q_lora_rank", nullptr}, {"attention_bias", true}, {"v_head_dim", 10}}},
      {"minicpm3", {{"scale_depth", nullptr}, {"dim_model_base", nullptr}, {"num_hidden_layers", 7}}},
      {"minicpm3", {{"scale_depth", 1.3}, {"dim_model_base", 7}, {"num_hidden_layers", 62}}},
      {"youtu", {}},
      {"youtu", {{"rope_interleave", false}, {"rope_parameters", yarn}}},
      {"apertus", {}},
      {"apertus", {{"attention_bias", true}, {"-rope_scaling", 0}, {"-rope_theta", 0}}}};
  for (const auto& [folder, changes] : files) {
    const HfConfig config = read_golden(folder, changes);
    SCOPED_TRACE(str_cat(folder, " ", changes.dump()));
    EXPECT_THAT(obstacles(*config.family, config.model), ::testing::IsEmpty());
    const HfConfig again = parse_hf_config(write_hf_config(config, "float32"), folder);
    EXPECT_EQ(again.model, config.model);
    EXPECT_EQ(obstacles(choose_family(config.model, nullptr), config.model), std::vector<std::string>{});
    EXPECT_THAT(obstacles(testing::family("llama"), config.model),
                Contains(HasSubstr(config.family->model_type == "apertus" ? "ffn.act = xielu" : "attn.kind = mla")));
  }
}

TEST(LatentClasses, RefusedByTheKey) {
  const auto expect = [](const char* folder, const nlohmann::json& changes, const char* text) {
    EXPECT_THAT(testing::error_of([&] { read_golden(folder, changes); }).what(), HasSubstr(text)) << folder;
  };
  expect("minicpm3", {{"num_key_value_heads", 1}}, "model.n_kv_heads = 1");
  expect("minicpm3", {{"kv_lora_rank", 0}}, "kv_lora_rank");
  expect("minicpm3", {{"qk_rope_head_dim", 3}}, "rope.dims = 3");
  expect("minicpm3", {{"scale_depth", -1}}, "block.residual_multiplier");
  expect("youtu", {{"mlp_bias", true}}, "mlp_bias");
  expect("llama", {{"hidden_act", "xielu"}}, "hidden_act");
  expect("apertus", {{"-rope_scaling", 0}}, "rope_theta");
  expect("apertus", {{"mlp_bias", true}}, "mlp_bias");
}

/// A folder whose weights are changed.
class ChangedFolder {
 public:
  ChangedFolder(const std::string& folder, const std::function<void(StoredModel&)>& change) {
    StoredModel weights = testing::load_file(golden_dir(folder) / "model.safetensors");
    change(weights);
    testing::save_file(dir_.path() / "model.safetensors", weights);
    testing::spit(dir_.path() / "config.json", testing::slurp(golden_dir(folder) / "config.json"));
  }
  ImportedModel import() const { return import_hf(dir_.path()); }

 private:
  ashlar::testing::ScratchDir dir_;
};

// A head of the file has its rotated rows last, ours first; the file mixes keys and values of a head.
TEST(LatentClasses, RowsOfHeads) {
  constexpr int64_t kHeads = 5, kRope = 4, kNope = 6, kValue = 7, kHead = kRope + kNope;
  ImportedModel model = import_hf(golden_dir("minicpm3"));
  const StoredModel file = testing::load_file(golden_dir("minicpm3") / "model.safetensors");
  const auto row = [](const std::string& bytes, int64_t cols, int64_t r) {
    const auto width = static_cast<size_t>(cols) * sizeof(float);
    return bytes.substr(static_cast<size_t>(r) * width, width);
  };
  const std::string& q = file.at("model.layers.1.self_attn.q_b_proj.weight").bytes;
  const std::string& kv = file.at("model.layers.1.self_attn.kv_b_proj.weight").bytes;
  const std::string our_q = testing::read_tensor(model, "blocks.1.attn.q_b.weight");
  const std::string our_k = testing::read_tensor(model, "blocks.1.attn.k_b.weight");
  const std::string our_v = testing::read_tensor(model, "blocks.1.attn.v_b.weight");
  for (int64_t h = 0; h < kHeads; ++h) {
    for (int64_t i = 0; i < kHead; ++i) {
      const int64_t theirs = h * kHead + (i < kRope ? kNope + i : i - kRope);
      EXPECT_EQ(row(our_q, 14, h * kHead + i), row(q, 14, theirs)) << h << " " << i;
    }
    for (int64_t i = 0; i < kNope; ++i)
      EXPECT_EQ(row(our_k, 10, h * kNope + i), row(kv, 10, h * (kNope + kValue) + i)) << h << " " << i;
    for (int64_t i = 0; i < kValue; ++i)
      EXPECT_EQ(row(our_v, 10, h * kValue + i), row(kv, 10, h * (kNope + kValue) + kNope + i)) << h << " " << i;
  }
}

TEST(LatentClasses, ConstantsAreCheckedAndWritten) {
  const std::string beta = "model.layers.1.mlp.act_fn.beta", eps = "model.layers.0.mlp.act_fn.eps";
  const auto with = [](const std::string& name, float value) {
    return ChangedFolder("apertus",
                         [&](StoredModel& m) { std::memcpy(m.at(name).bytes.data(), &value, sizeof(value)); });
  };
  EXPECT_THAT(testing::error_of([&] { with(beta, 0.6F).import(); }).what(),
              ::testing::AllOf(HasSubstr(beta), HasSubstr("holds 0.6"), HasSubstr("expected 0.5")));
  EXPECT_THAT(testing::error_of([&] { with(eps, -2e-6F).import(); }).what(), HasSubstr(eps));
  EXPECT_NO_THROW(ChangedFolder("apertus", [&](StoredModel& m) { m.erase(beta); }).import());
  EXPECT_THAT(testing::error_of([&] {
                ChangedFolder("apertus", [&](StoredModel& m) { m.at(beta).shape = {1}; }).import();
              }).what(),
              HasSubstr(beta));
  // As the released files round it.
  ImportedModel model = with(eps, static_cast<float>(BF16(-1e-6F))).import();
  testing::ImportSource source(model);
  const ashlar::testing::ScratchDir out;
  testing::export_alone(model.config(), source, out.path() / "bf16", {.dtype = io::FileDType::kBF16});
  const StoredModel written = testing::load_file(out.path() / "bf16" / "model.safetensors");
  const BF16 expected[] = {BF16(0.5F), BF16(-1e-6F)};
  EXPECT_EQ(written.at(beta).shape, std::vector<int64_t>{});
  EXPECT_EQ(written.at(beta).dtype, io::FileDType::kBF16);
  EXPECT_EQ(std::memcmp(written.at(beta).bytes.data(), &expected[0], 2), 0);
  EXPECT_EQ(std::memcmp(written.at(eps).bytes.data(), &expected[1], 2), 0);
}

}  // namespace
}  // namespace ashlar::hf
