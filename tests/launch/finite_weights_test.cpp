// Weights that are not finite: every command that reads them ends with 4 and names the tensor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/base/strings.h"
#include "parallel/checkpoint/reader.h"
#include "parallel/checkpoint/save.h"
#include "tests/hf/hf_support.h"
#include "tests/launch/run_fixture.h"

namespace ashlar::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using Change = std::function<void(const io::TensorSpec&, std::span<float>)>;

/// The weights of a checkpoint as another one, changed.
void rewrite(const fs::path& from, const fs::path& to, const Change& change) {
  checkpoint::CheckpointReader reader(from);
  checkpoint::TensorSource source;
  for (const checkpoint::TensorRecord& record : reader.tensors())
    if (record.group == checkpoint::Group::kWeights) source.tensors.push_back(record);
  source.produce = [&](const io::TensorSpec& tensor, const checkpoint::TensorSource::Emit& emit) {
    std::vector<float> values(static_cast<size_t>(tensor.num_elems()));
    reader.read(tensor.name, std::as_writable_bytes(std::span(values)));
    change(tensor, values);
    emit(std::as_bytes(std::span(values)));
  };
  checkpoint::write_tensors({.dir = to,
                             .source = source,
                             .config_toml = reader.config_toml(),
                             .tokenizer_json = reader.tokenizer_json(),
                             .metadata = reader.metadata()});
}

class FiniteWeights : public ::testing::Test {
 protected:
  FiniteWeights() { must("train tiny.toml train.steps=6 run.dir=first dropout.resid=0 dropout.attn=0"); }
  std::string must(const std::string& words) const {
    const ShellResult r = run_.ashlar(words);
    EXPECT_EQ(r.code, 0) << words << "\n" << r.out << r.err;
    return r.out;
  }
  /// The one line of an error with exit code 4.
  std::string refused(const std::string& words) const {
    const ShellResult r = run_.ashlar(words);
    EXPECT_EQ(r.code, kNonFinite) << words << "\n" << r.out << r.err;
    EXPECT_EQ(r.out.find("nan"), std::string::npos) << r.out;
    size_t lines = 0;
    std::string line;
    for (size_t at = r.err.find("ashlar: ["); at != std::string::npos; at = r.err.find("ashlar: [", at + 1)) {
      line = r.err.substr(at, r.err.find('\n', at) - at);
      ++lines;
    }
    EXPECT_EQ(lines, 1U) << r.err;
    return line;
  }
  RunFixture run_;
};

TEST_F(FiniteWeights, OfACheckpoint) {
  const fs::path step = run_.dir() / "first/checkpoints/step-00000006";
  rewrite(step, run_.dir() / "bad", [](const io::TensorSpec& tensor, std::span<float> values) {
    if (tensor.name == "blocks.1.ffn.down.weight") values[5] = std::numeric_limits<float>::quiet_NaN();
    if (tensor.name == "embed.tokens.weight") values[0] = std::numeric_limits<float>::infinity();
  });
  const auto named = HasSubstr("'blocks.1.ffn.down.weight', element [0, 5] is nan; 2 tensors have such values");
  for (const char* words :
       {"eval bad", "generate bad --tokens 3", "train tiny.toml run.dir=second run.init_from=bad train.steps=8",
        "launch -np 2 eval bad", "launch -np 2 generate bad --tokens 3"})
    EXPECT_THAT(refused(words), named) << words;
  EXPECT_THAT(refused("export bad hub"), HasSubstr("is inf, the first such value in the order of the files"));
  EXPECT_FALSE(fs::exists(run_.dir() / "hub/config.json"));
}

TEST_F(FiniteWeights, OfAHubFolder) {
  must("export first hub");
  const fs::path file = run_.dir() / "hub/model.safetensors";
  hf::testing::StoredModel model = hf::testing::load_file(file);
  for (auto& [name, tensor] : model) {
    if (name.find("layers.1.mlp.up_proj") == std::string::npos) continue;
    const float bad = -std::numeric_limits<float>::infinity();
    std::memcpy(tensor.bytes.data() + 12, &bad, sizeof(bad));
  }
  hf::testing::save_file(file, model);
  const auto named = HasSubstr(
      "'model.layers.1.mlp.up_proj.weight' has a non-finite value: "
      "blocks.1.ffn.up.weight element [0, 3] is -inf");
  EXPECT_THAT(refused("import hub out"), named);
  EXPECT_FALSE(fs::exists(run_.dir() / "out/manifest.json"));
  EXPECT_THAT(refused("train --from hub data.path=data train.sequence_length=16 train.steps=2"), named);
}

TEST_F(FiniteWeights, OfAModelWhoseProductsOverflow) {
  rewrite(run_.dir() / "first/checkpoints/step-00000006", run_.dir() / "large",
          [](const io::TensorSpec&, std::span<float> values) {
            for (float& value : values) value *= 1e18F;
          });
  EXPECT_THAT(refused("eval large --dtype fp32"), HasSubstr("the weights are finite, but their results in fp32"));
  EXPECT_THAT(refused("generate large --dtype fp32 --tokens 3"), HasSubstr("the logit of id "));
  EXPECT_THAT(refused("launch -np 2 generate large --dtype fp32 --tokens 3"), HasSubstr("the logit of id "));
}

}  // namespace
}  // namespace ashlar::testing
