#include "launch/hf/hf_checkpoint.h"

#include <nlohmann/json.hpp>

#include "core/base/strings.h"
#include "parallel/checkpoint/reader.h"
#include "tests/hf/hf_support.h"

namespace ashlar::hf {
namespace {

using testing::golden_dir;
using ::testing::HasSubstr;

Log quiet_log() {
  return Log([](std::string_view) {});
}

ExportReport export_alone(const std::filesystem::path& checkpoint, const std::filesystem::path& out,
                          const ExportOptions& options, Log& log) {
  mesh::LoneRank alone;
  return export_checkpoint(checkpoint, out, options, log, alone.mesh.control());
}

class GoldenCheckpoint : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenCheckpoint, ThroughACheckpointAndBackIsTheSameFile) {
  const std::filesystem::path source = golden_dir(GetParam());
  const ashlar::testing::ScratchDir dir;
  Log log = quiet_log();
  const ImportReport imported = import_to_checkpoint(source, dir.path() / "ckpt");
  checkpoint::CheckpointReader reader(dir.path() / "ckpt");
  reader.verify();
  EXPECT_FALSE(reader.state().has_value());
  EXPECT_EQ(reader.tensors().size(), static_cast<size_t>(imported.tensors));
  // No class is given: a tied Phi3 must not come back as the Llama that has the same axes.
  const ExportReport exported = export_alone(dir.path() / "ckpt", dir.path() / "out", {}, log);
  EXPECT_EQ(exported.family, imported.config.family);
  EXPECT_EQ(testing::slurp(dir.path() / "out/model.safetensors"), testing::slurp(source / "model.safetensors"));
  const HfConfig again = parse_hf_config(testing::slurp(dir.path() / "out/config.json"), "exported");
  EXPECT_EQ(again.family, imported.config.family);
  EXPECT_EQ(again.model, imported.config.model);
  EXPECT_EQ(again.extras, imported.config.extras);
  EXPECT_TRUE(log.warnings().empty());
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenCheckpoint, ::testing::ValuesIn(testing::golden_folders()),
                         [](const auto& folder) { return std::string(folder.param); });

TEST(HfCheckpoint, ClassDtypeAndContextCanBeChosen) {
  const ashlar::testing::ScratchDir dir;
  Log log = quiet_log();
  import_to_checkpoint(golden_dir("phi3_legacy"), dir.path() / "ckpt");
  const ExportReport report =
      export_alone(dir.path() / "ckpt", dir.path() / "out",
                   {.family = &testing::family("llama"), .dtype = io::FileDType::kBF16, .max_positions = 4096}, log);
  EXPECT_EQ(report.files.dtype, "bfloat16");
  const HfConfig config = parse_hf_config(testing::slurp(dir.path() / "out/config.json"), "x");
  EXPECT_EQ(config.family->model_type, "llama");
  EXPECT_EQ(config.extras.max_positions, 4096);
  const Error error = testing::error_of([&] {
    export_alone(dir.path() / "ckpt", dir.path() / "other", {.family = &testing::family("gpt2"), .dtype = {}}, log);
  });
  EXPECT_EQ(error.code(), ExitCode::kInput);
  EXPECT_THAT(error.what(), HasSubstr("norm.type = rmsnorm: GPT2LMHeadModel requires layernorm"));
}

TEST(HfCheckpoint, AFlippedBitIsFoundBeforeAnythingIsExported) {
  const ashlar::testing::ScratchDir dir;
  Log log = quiet_log();
  import_to_checkpoint(golden_dir("gptj"), dir.path() / "ckpt");
  for (const auto& entry : std::filesystem::directory_iterator(dir.path() / "ckpt")) {
    if (entry.path().extension() != ".safetensors") continue;
    std::string bytes = testing::slurp(entry.path());
    bytes[bytes.size() - 5] ^= 0x10;
    testing::spit(entry.path(), bytes);
  }
  const Error error = testing::error_of([&] { export_alone(dir.path() / "ckpt", dir.path() / "out", {}, log); });
  EXPECT_EQ(error.code(), ExitCode::kDamagedData);
  EXPECT_FALSE(std::filesystem::exists(dir.path() / "out/model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(dir.path() / "out/config.json"));
}

TEST(HfCheckpoint, AnImportNeverOverwrites) {
  const ashlar::testing::ScratchDir dir;
  import_to_checkpoint(golden_dir("llama"), dir.path() / "ckpt");
  const std::string before = testing::slurp(dir.path() / "ckpt/manifest.json");
  EXPECT_EQ(testing::error_of([&] { import_to_checkpoint(golden_dir("phi"), dir.path() / "ckpt"); }).code(),
            ExitCode::kInput);
  EXPECT_EQ(testing::slurp(dir.path() / "ckpt/manifest.json"), before);
}

TEST(HfCheckpoint, EveryEndOfTextSurvives) {
  struct {
    const char *config, *generation;    // eos_token_id of config.json and of generation_config.json
    std::vector<int64_t> stops;         // at which generation stops
    const char *same, *generation_out;  // what an export says
  } rows[] = {
      {"[5, 7]", nullptr, {5, 7}, "[5,7]", "[5,7]"},
      {"5", "[5, 7, 9]", {5, 7, 9}, "5", "[5,7,9]"},
      {"null", "9", {9}, "null", "9"},
      {"[5, 7]", "[5, 7]", {5, 7}, "[5,7]", "[5,7]"},
      {"5", "null", {5}, "5", "5"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.config);
    const ashlar::testing::ScratchDir dir;
    Log log = quiet_log();
    std::filesystem::copy(golden_dir("llama"), dir.path() / "hub");
    nlohmann::json config = nlohmann::json::parse(testing::slurp(dir.path() / "hub/config.json"));
    config["eos_token_id"] = nlohmann::json::parse(row.config);
    testing::spit(dir.path() / "hub/config.json", config.dump());
    if (row.generation != nullptr)
      testing::spit(dir.path() / "hub/generation_config.json", str_cat("{\"eos_token_id\": ", row.generation, "}"));
    import_to_checkpoint(dir.path() / "hub", dir.path() / "ckpt");
    EXPECT_EQ(end_ids(checkpoint::CheckpointReader(dir.path() / "ckpt").metadata()), row.stops);
    export_alone(dir.path() / "ckpt", dir.path() / "out", {}, log);
    const auto eos = [&](const char* file) {
      return nlohmann::json::parse(testing::slurp(dir.path() / "out" / file))["eos_token_id"].dump();
    };
    EXPECT_EQ(eos("config.json"), row.same);
    EXPECT_EQ(eos("generation_config.json"), row.generation_out);
  }
}

TEST(HfCheckpoint, AGenerationConfigThatIsNoneIsNamed) {
  for (const char* text : {"{", "[]", R"({"eos_token_id": "x"})", R"({"eos_token_id": [1, 2.5]})"}) {
    const Error error = testing::error_of([&] { parse_generation_eos(text, "g.json"); });
    EXPECT_EQ(error.code(), ExitCode::kInput);
    EXPECT_THAT(error.what(), HasSubstr("'g.json'"));
  }
}

}  // namespace
}  // namespace ashlar::hf
