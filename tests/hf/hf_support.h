#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/io/safetensors.h"
#include "launch/hf/hf_model.h"
#include "tests/support/file_bytes.h"
#include "tests/support/lone_rank.h"
#include "tests/support/scratch_dir.h"
#include "tests/support/thrown.h"

namespace ashlar::hf::testing {

using ::ashlar::testing::error_of;
using ::ashlar::testing::slurp;
using ::ashlar::testing::spit;

inline constexpr std::array kGolden = {"gpt2",       "gptj",
                                       "gpt_neox",   "gpt_neox_serial",
                                       "llama",      "llama_gqa_tied",
                                       "llama_wide", "qwen2",
                                       "phi",        "falcon7",
                                       "falcon40",   "falcon2_11b",
                                       "stablelm",   "stablelm_parallel",
                                       "phi3",       "phi3_legacy",
                                       "falcon_rw",  "falcon_mha_parallel",
                                       "qwen3",      "glm4"};

/// The folders of models with experts.
inline constexpr std::array kGoldenExperts = {"mixtral",      "qwen2_moe",   "qwen3_moe",   "olmoe",
                                              "granitemoe",   "deepseek_v2", "deepseek_v3", "glm4_moe",
                                              "ernie4_5_moe", "gpt_oss",     "llama4_text"};

/// Both.
inline std::vector<const char*> golden_folders() {
  std::vector<const char*> all(kGolden.begin(), kGolden.end());
  all.insert(all.end(), kGoldenExperts.begin(), kGoldenExperts.end());
  return all;
}

inline std::filesystem::path golden_dir(const std::string& name) {
  return std::filesystem::path(ASHLAR_SOURCE_DIR) / "tests/reference/golden" / name;
}

/// The config.json of a golden folder.
nlohmann::json golden_config(const std::string& folder);
/// The same with other values; "-key" takes a key out.
nlohmann::json changed(nlohmann::json config, const nlohmann::json& changes);
/// What is read of the config.json of a golden folder, changed so.
HfConfig read_golden(const std::string& folder, const nlohmann::json& changes);
HfConfig read_golden(const std::string& folder);
/// What is read of a config.json with this model_type and these keys alone.
HfConfig read_type(const char* model_type, nlohmann::json keys);
HfConfig read_type(const char* model_type);

/// The family of a model_type.
inline const Family& family(std::string_view model_type) {
  const Family* found = family_from_model_type(model_type);
  ASHLAR_CHECK(found != nullptr, "no family ", model_type);
  return *found;
}

/// A tensor in memory, to be changed and written again.
struct Stored {
  io::FileDType dtype = io::FileDType::kF32;
  std::vector<int64_t> shape;
  std::string bytes;
  bool operator==(const Stored&) const = default;
};
using StoredModel = std::map<std::string, Stored>;

inline StoredModel load_file(const std::filesystem::path& path) {
  const io::SafetensorsReader reader(path);
  StoredModel model;
  for (const io::TensorEntry& entry : reader.tensors()) {
    Stored tensor{entry.dtype, entry.shape, std::string(static_cast<size_t>(entry.num_bytes()), '\0')};
    reader.read(entry, std::as_writable_bytes(std::span(tensor.bytes)));
    model[entry.name] = std::move(tensor);
  }
  return model;
}

inline void save_file(const std::filesystem::path& path, const StoredModel& model) {
  std::vector<io::TensorSpec> specs;
  for (const auto& [name, tensor] : model) specs.push_back({name, tensor.dtype, tensor.shape});
  io::SafetensorsWriter writer(path, specs);
  for (const auto& [name, tensor] : model) writer.write(name, std::as_bytes(std::span(tensor.bytes)));
  writer.finish();
}

inline std::vector<float> floats(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// An imported model as the source of an export.
class ImportSource : public TensorSource {
 public:
  explicit ImportSource(ImportedModel& model) : model_(model) {}
  const io::TensorSpec* find(std::string_view name) const override {
    for (const io::TensorSpec& spec : model_.tensors()) {
      if (spec.name == name) return &spec;
    }
    return nullptr;
  }
  void read_rows(std::string_view name, int64_t row, std::span<std::byte> out) override {
    const io::TensorSpec& spec = *find(name);
    std::vector<std::byte> whole(static_cast<size_t>(spec.num_bytes()));
    model_.read(name, whole);
    const auto row_bytes = whole.size() / static_cast<size_t>(spec.shape[0]);
    std::memcpy(out.data(), whole.data() + static_cast<size_t>(row) * row_bytes, out.size());
    most_bytes_ = std::max(most_bytes_, out.size());
  }
  size_t most_bytes() const { return most_bytes_; }  ///< asked for at once

 private:
  ImportedModel& model_;
  size_t most_bytes_ = 0;
};

struct ExportWish {
  std::optional<io::FileDType> dtype = std::nullopt;
  int64_t max_shard_bytes = 0;  ///< one file
  int64_t window_bytes = int64_t{8} << 20;
};

/// export_hf by one rank.
inline Exported export_alone(const HfConfig& config, TensorSource& source, const std::filesystem::path& directory,
                             const ExportWish& wish = {}) {
  mesh::LoneRank alone;
  Log log([](std::string_view) {});
  return export_hf({.config = config,
                    .source = source,
                    .directory = directory,
                    .dtype = wish.dtype,
                    .max_shard_bytes = wish.max_shard_bytes,
                    .window_bytes = wish.window_bytes,
                    .log = log},
                   alone.mesh.control());
}

inline std::string read_tensor(ImportedModel& model, const std::string& name) {
  const io::TensorSpec* spec = ImportSource(model).find(name);
  EXPECT_NE(spec, nullptr) << name;
  std::string bytes(static_cast<size_t>(spec == nullptr ? 0 : spec->num_bytes()), '\0');
  if (spec != nullptr) model.read(name, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

}  // namespace ashlar::hf::testing
