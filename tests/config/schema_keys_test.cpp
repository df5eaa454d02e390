// Every key of the schema, given wrongly in every way, in the file and on the command line.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "core/base/nearest.h"
#include "launch/config/raw_values.h"
#include "tests/config/fixture.h"

namespace ashlar::config::testing {
namespace {

bool starts_with_key(const std::string& error, const KeySpec& spec) {
  const std::string name = spec.name();
  return error.rfind(name, 0) == 0 && error.size() > name.size() && std::strchr(" :[", error[name.size()]) != nullptr;
}

/// Exactly one error, which names the key.
void check_named(const std::vector<std::string>& errors, const KeySpec& spec) {
  ASSERT_EQ(errors.size(), 1U) << ::testing::PrintToString(errors);
  EXPECT_TRUE(starts_with_key(errors[0], spec)) << errors[0];
  EXPECT_EQ(errors[0].find('\n'), std::string::npos) << errors[0];
}

/// The minimal configuration with one key given as `value`, as a file (TOML forbids giving a key or section twice).
void expect_named_in_file(const KeySpec& spec, const std::string& value) {
  SCOPED_TRACE("file: " + spec.name() + " = " + value);
  std::string text;
  for (const SectionDoc& section : sections()) {
    text += std::string("[") + section.section + "]\n";
    for (const std::string line :
         {"model.d_model = 128", "model.n_layers = 4", "model.n_heads = 4", "train.steps = 1000",
          "train.sequence_length = 64", "train.global_batch = 12", "optimizer.lr = 1e-3", "data.path = \"data/x\""}) {
      const std::string name = line.substr(0, line.find(' '));
      if (name.rfind(std::string(section.section) + ".", 0) == 0 && name != spec.name())
        text += line.substr(name.find('.') + 1) + "\n";
    }
    if (std::strcmp(section.section, spec.section) == 0) text += std::string(spec.key) + " = " + value + "\n";
  }
  check_named(errors_of({}, text), spec);
}

void expect_named(const KeySpec& spec, const std::string& value) {
  expect_named_in_file(spec, value);
  SCOPED_TRACE("override: " + spec.name() + " = " + value);
  check_named(errors_of({spec.name() + "=" + value}), spec);
}

class EveryKey : public ::testing::TestWithParam<size_t> {
 protected:
  const KeySpec& spec() const { return schema()[GetParam()]; }
};

TEST_P(EveryKey, WrongTypeIsNamed) {
  const KeySpec& s = spec();
  std::vector<std::string> wrong = {"2020-01-01", "{a = 1}"};
  if (s.type != KeyType::kBool) wrong.push_back("true");
  if (s.type != KeyType::kNumber && s.type != KeyType::kNumberOrWord) wrong.push_back("1.5");
  if (s.type != KeyType::kInt && s.type != KeyType::kNumber && s.type != KeyType::kNumberOrWord) wrong.push_back("7");
  const bool is_text = s.type == KeyType::kString || s.type == KeyType::kWord || s.type == KeyType::kSources ||
                       s.type == KeyType::kNameList;
  // On a command line any bare text is a path or word: only the file can hold another type.
  for (const std::string& value : wrong) is_text ? expect_named_in_file(s, value) : expect_named(s, value);
  if (s.type == KeyType::kString || s.type == KeyType::kWord || s.type == KeyType::kNameList) expect_named(s, "[1, 2]");
  if (is_text) return;
  wrong.clear();
  wrong.push_back("\"surely-no-word-of-it\"");
  if (s.type != KeyType::kIntList && s.type != KeyType::kNumberList) wrong.push_back("[1, 2]");
  for (const std::string& value : wrong) expect_named(s, value);
}

TEST_P(EveryKey, OutOfRangeIsNamed) {
  const KeySpec& s = spec();
  std::vector<std::string> wrong;
  if (s.type == KeyType::kInt) {
    wrong = {std::to_string(static_cast<int64_t>(s.low) - 1), std::to_string(static_cast<int64_t>(s.high) + 1),
             "99999999999999999999999"};
  } else if (s.type == KeyType::kNumber || s.type == KeyType::kNumberOrWord) {
    wrong = {"nan", "inf", "-inf", "-1e300", "1e300"};
    if (s.low_open) wrong.push_back(std::to_string(s.low));
    if (s.high_open) wrong.push_back(std::to_string(s.high));
  } else if (s.type == KeyType::kWord) {
    wrong = {"\"surely-no-word-of-it\""};
  } else if (s.type == KeyType::kIntList) {
    wrong = {"[-2]", "[1, 99999999999]"};
  } else if (s.type == KeyType::kNumberList) {
    wrong = {"[-2]", "[1, 1e300]", "[1.5, nan]"};
  } else if (s.type == KeyType::kKeyList) {
    wrong = {"[\"rope.bass\"]", "[\"rope.base\", \"dropout.attn\"]", "[\"rope\"]"};
  } else if (s.type == KeyType::kSources) {
    wrong = {"[{path = \"a\", weight = 0}]", "[{path = \"a\", weight = -1.0}]", "[{path = \"a\", weight = nan}]"};
  }
  for (const std::string& value : wrong) expect_named(s, value);
}

TEST_P(EveryKey, EmptyIsNamed) {
  expect_named(spec(), "");
  expect_named(spec(), "\"\"");
  if (spec().type == KeyType::kIntList || spec().type == KeyType::kNumberList || spec().type == KeyType::kKeyList ||
      spec().type == KeyType::kNameList || spec().type == KeyType::kSources)
    expect_named(spec(), "[]");
}

TEST_P(EveryKey, MisspeltIsNamedAndOffered) {
  const KeySpec& s = spec();
  const std::string wrong = s.name() + "q";
  expect_one(errors_of({wrong + "=1"}), wrong + ":", "did you mean " + s.name() + "?");
  // In a file that holds nothing else of that section.
  const std::string text = "[" + std::string(s.section) + "]\n" + s.key + "q = 1\n";
  const auto errors = errors_of({}, text);
  EXPECT_EQ(std::count_if(errors.begin(), errors.end(),
                          [&](const auto& e) {
                            return e.rfind(wrong + ": unknown key; did you mean " + s.name() + "?", 0) == 0;
                          }),
            1)
      << ::testing::PrintToString(errors);
}

TEST_P(EveryKey, UnsupportedValuesAreRefusedByName) {
  const KeySpec& s = spec();
  std::vector<std::string> refused;
  for (const std::string_view word : split_words(s.unsupported)) refused.push_back("\"" + std::string(word) + "\"");
  for (const std::string& value : refused)
    expect_one(errors_of({s.name() + "=" + value}), s.name() + " = ", "not supported by this version");
}

/// What makes the key applicable, and free of conflict with the minimal file.
std::vector<std::string> setting_for(const KeySpec& s) {
  const std::string name = s.name();
  if (name == "block.parallel_norms") return {"block.topology=parallel"};
  if (name.starts_with("attn.qk_norm_")) return {"attn.qk_norm=head"};
  if (name == "rope.low_freq_factor" || name == "rope.high_freq_factor" || name == "rope.factor")
    return {"rope.scaling=llama3", "rope.factor=8", "rope.original_positions=64"};
  if (name == "rope.original_positions" || name == "rope.beta_fast" || name == "rope.beta_slow" ||
      name == "rope.attention_factor" || name == "rope.truncate")
    return {"rope.scaling=yarn", "rope.factor=8", "rope.original_positions=64"};
  if (name == "rope.short_factor" || name == "rope.long_factor")
    return {"rope.scaling=longrope",    "rope.factor=8",          "rope.original_positions=64", "rope.dims=4",
            "rope.short_factor=[1, 1]", "rope.long_factor=[1, 1]"};
  if (name == "attn.kind" || name == "attn.q_rank" || name == "attn.kv_rank" || name == "attn.latent_eps")
    return {"attn.kind=mla", "rope.dims=4"};
  if (name == "ffn.act") return {"ffn.gated=false"};
  if (name == "rope.alpha" || name == "rope.scaled_layers") return {"rope.scaling=dynamic"};
  if (name == "rope.local_base" || name == "attn.window_kind" || name == "attn.last_layer_full")
    return {"attn.window_cycle=[16, -1]"};
  if (name == "rope.global_dims") return {"attn.global_head_dim=512"};
  if (name == "attn.temperature_offset" || name == "attn.temperature_layers")
    return {"attn.temperature_beta=0.1", "attn.temperature_positions=8"};
  if (name == "moe.shared_gate") return {"moe.experts=4", "moe.shared_d_ff=16"};
  if (name == "moe.top_groups" || name == "moe.group_score") return {"moe.experts=4", "moe.groups=2"};
  if (name == "moe.bias_rate") return {"moe.experts=4", "moe.selection_bias=true"};
  if (name == "moe.dense_layers") return {"moe.experts=4", "model.n_layers=8"};
  if (name.starts_with("moe.") || name == "optimizer.expert_lr_scale" || name == "mesh.expert_reserve")
    return {"moe.experts=4"};
  if (name == "pos.max_positions" || name == "pos.learned_offset") return {"pos.type=learned"};
  if (name == "pos.alibi_scale") return {"pos.type=alibi"};
  if (name.starts_with("pos.t5_")) return {"pos.type=t5_bias"};
  if (name == "mesh.virtual_stages") return {"mesh.schedule=interleaved"};
  if (name == "log.sample_tokens") return {"log.sample=x"};
  if (name == "checkpoint.keep_every") return {"checkpoint.every=1"};
  if (name == "checkpoint.keep_best") return {"checkpoint.every=1", "train.eval_every=1"};
  if (name == "run.init_change") return {"run.init_from=x"};
  if (name.starts_with("train.eval_tasks_")) return {"train.eval_tasks=piqa"};
  if (name == "train.attention") return {"run.device=cuda"};
  if (name == "data.restart_positions") return {"data.document_mask=true"};
  return {};
}

/// The keys that a kind of scaling needs.
std::vector<std::string> rope_keys_of(const std::string& scaling) {
  std::vector<std::string> keys;
  if (scaling == "linear" || scaling == "llama3" || scaling == "yarn" || scaling == "longrope")
    keys.push_back("rope.factor=8");
  if (scaling == "llama3" || scaling == "yarn" || scaling == "longrope") keys.push_back("rope.original_positions=64");
  if (scaling == "longrope")
    keys.insert(keys.end(), {"rope.dims=4", "rope.short_factor=[1, 1]", "rope.long_factor=[1, 2]"});
  if (scaling == "dynamic") keys.push_back("rope.alpha=1000");
  return keys;
}

/// What is asked for stands in the file that is written, and reads back.
void expect_written(const KeySpec& s, const std::vector<std::string>& overrides) {
  if (s.member.get == nullptr) return;
  const RawConfig asked = parse_config(kMinimal, "asked.toml", overrides);
  const RawConfig written = parse_config(to_toml(resolve(asked, facts()).config), "written.toml", {});
  const std::optional<Value>& value = asked.values().given[index_of(s)];
  ASSERT_TRUE(value && written.given(s.name())) << s.name();
  const bool rule = s.type == KeyType::kNumberOrWord && std::holds_alternative<std::string>(*value);
  if (rule) return;
  EXPECT_EQ(value_text(*written.values().given[index_of(s)]), value_text(*value)) << s.name();
}

TEST_P(EveryKey, SupportedValuesAreTaken) {
  const KeySpec& s = spec();
  std::vector<std::string> good;
  if (*s.example != 0) good.push_back(s.example);
  if (s.need == Need::kDefault) good.push_back(s.fallback);
  for (const std::string_view word : words_of(s)) good.emplace_back(word);
  if (s.type == KeyType::kBool) good.insert(good.end(), {"true", "false"});
  if (s.name() == "model.d_model") good = {"64"};
  if (s.name() == "model.head_dim") good = {"4", "30", "64", "512"};
  for (const std::string& value : good) {
    auto overrides = setting_for(s);
    std::erase_if(overrides, [&](const std::string& text) { return text.starts_with(s.name() + "="); });
    if (s.name() == "rope.scaling") overrides = rope_keys_of(value);
    overrides.push_back(s.name() + "=" + value);
    EXPECT_EQ(errors_of(overrides), std::vector<std::string>{}) << s.name() << " = " << value;
    expect_written(s, overrides);
  }
  EXPECT_FALSE(good.empty()) << s.name();
}

TEST_P(EveryKey, HasAMemberUnlessARuleReadsIt) {
  const KeySpec& s = spec();
  if (s.member.get != nullptr) return;
  EXPECT_TRUE(s.name() == "ffn.multiple_of" || s.name() == "rope.fraction" || *s.older_form_of != 0) << s.name();
}

INSTANTIATE_TEST_SUITE_P(Schema, EveryKey, ::testing::Range(size_t{0}, schema().size()), [](const auto& test) {
  std::string name = schema()[test.param].name();
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
});

TEST(Schema, NamesAreUniqueAndSectionsDocumented) {
  std::set<std::string> names, documented;
  for (const SectionDoc& section : sections()) EXPECT_TRUE(documented.insert(section.section).second);
  for (const KeySpec& spec : schema()) {
    EXPECT_TRUE(names.insert(spec.name()).second) << spec.name();
    EXPECT_TRUE(documented.count(spec.section)) << spec.name();
    EXPECT_GT(std::strlen(spec.doc), 10U) << spec.name();
    EXPECT_EQ(spec.need == Need::kDerived, *spec.rule != 0) << spec.name();
    EXPECT_TRUE(spec.need == Need::kDefault || *spec.example != 0) << spec.name();
  }
}

TEST(Schema, HoldsTheFixedNames) {
  // The interface promised to users, spelled here a second time on purpose.
  for (const char* name : {"run.dir",
                           "run.seed",
                           "run.init_from",
                           "run.device",
                           "run.dtype",
                           "run.threads",
                           "run.hang_after",
                           "run.hang_action",
                           "model.d_model",
                           "model.n_layers",
                           "model.n_heads",
                           "model.n_kv_heads",
                           "model.head_dim",
                           "model.d_ff",
                           "block.topology",
                           "block.parallel_norms",
                           "mesh.tensor",
                           "mesh.pipeline",
                           "mesh.data",
                           "mesh.expert",
                           "mesh.sequence_parallel",
                           "mesh.schedule",
                           "mesh.virtual_stages",
                           "train.steps",
                           "train.sequence_length",
                           "train.global_batch",
                           "train.micro_batch",
                           "train.recompute",
                           "train.attention",
                           "train.eval_every",
                           "train.eval_sequences",
                           "train.eval_batches",
                           "train.eval_tasks",
                           "train.eval_tasks_every",
                           "train.eval_tasks_limit",
                           "train.eval_tasks_data",
                           "optimizer.lr",
                           "optimizer.beta1",
                           "optimizer.beta2",
                           "optimizer.eps",
                           "optimizer.weight_decay",
                           "optimizer.decay_embeddings",
                           "optimizer.clip",
                           "schedule.kind",
                           "schedule.warmup_steps",
                           "schedule.min_ratio",
                           "schedule.decay_steps",
                           "data.path",
                           "data.document_mask",
                           "checkpoint.every",
                           "checkpoint.keep",
                           "log.every",
                           "log.stats_every",
                           "model.embed_dim",
                           "vocab.size",
                           "norm.type",
                           "norm.affine",
                           "norm.unit_offset",
                           "norm.eps",
                           "norm.placement",
                           "norm.final",
                           "norm.embed",
                           "bias.qkv",
                           "bias.attn_out",
                           "bias.ffn",
                           "bias.lm_head",
                           "ffn.act",
                           "ffn.gated",
                           "ffn.multiple_of",
                           "ffn.clamp",
                           "ffn.linear_offset",
                           "pos.type",
                           "pos.learned_offset",
                           "pos.alibi_scale",
                           "rope.base",
                           "rope.fraction",
                           "rope.dims",
                           "rope.style",
                           "rope.scaling",
                           "rope.local_base",
                           "rope.global_enabled",
                           "attn.scale",
                           "attn.qk_norm",
                           "attn.qk_norm_type",
                           "attn.qk_norm_order",
                           "attn.softcap",
                           "attn.clip_qkv",
                           "attn.window_cycle",
                           "attn.window_kind",
                           "attn.last_layer_full",
                           "attn.sinks",
                           "attn.temperature_beta",
                           "attn.temperature_positions",
                           "dropout.embed",
                           "dropout.attn",
                           "dropout.resid",
                           "head.tie",
                           "embed.scale",
                           "head.logit_scale",
                           "head.softcap",
                           "head.norm_rows",
                           "loss.z_coef",
                           "loss.z_kind",
                           "init.scheme",
                           "init.std",
                           "init.trunc_sigma",
                           "init.residual_scale"})
    EXPECT_NO_THROW(key_index(name)) << name;
  EXPECT_THROW(key_index("model.heads"), Bug);
}

TEST(Schema, EditDistance) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("flaw", "lawn"), 2U);
}

}  // namespace
}  // namespace ashlar::config::testing
