#include "launch/gguf/gguf_export.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/strings.h"
#include "core/io/json.h"
#include "core/io/posix_file.h"
#include "launch/gguf/architecture.h"
#include "launch/gguf/rope_scaling.h"
#include "launch/gguf/vocabulary.h"
#include "launch/hf/convert.h"

namespace ashlar::gguf {

namespace {

/// general.file_type: the type of most tensors.
uint32_t file_type(TensorType type) {
  switch (type) {
    case TensorType::kF32: return 0;
    case TensorType::kQ8_0: return 7;
    case TensorType::kBF16: return 32;
  }
  throw Bug("TensorType out of range");
}

/// A tensor of the file, and the one from which it is made.
struct Planned {
  hf::TensorMapping mapping;
  TensorInfo info;
  Change change = Change::kNone;
};

Planned planned(const Architecture& architecture, const hf::TensorMapping& mapping, TensorType type) {
  const FoundName found = name_of_tensor(architecture, mapping.hf_name);
  Planned p{.mapping = mapping, .info = {.name = found.name, .shape = mapping.hf_shape}, .change = found.change};
  if (p.change == Change::kTranspose) std::ranges::reverse(p.info.shape);
  const bool matrix = p.info.shape.size() > 1 && !found.name.starts_with("position_embd");
  if (!matrix) return p;
  p.info.type = type;
  if (type == TensorType::kQ8_0 && p.info.shape.back() % 32 != 0)
    throw input_error("gguf", found.name, " has rows of ", p.info.shape.back(),
                      " values: q8_0 expects a multiple of 32; choose --dtype bf16 or fp32");
  return p;
}

/// Brings the rows i and i + half of each head together: Hugging Face rotates halves, llama.cpp's llama neighbours.
std::vector<float> paired(const std::vector<float>& x, int64_t heads, int64_t rows) {
  const int64_t cols = std::ssize(x) / rows, half = rows / heads / 2;
  std::vector<float> out(x.size());
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t head = r / (2 * half), at = r % (2 * half), from = head * 2 * half + at / 2 + (at % 2) * half;
    std::copy_n(x.begin() + from * cols, cols, out.begin() + r * cols);
  }
  return out;
}

std::vector<float> values_of(const Planned& p, hf::TensorSource& source) {
  std::vector<float> values;
  hf::read_exported_tensor({.mapping = p.mapping, .dtype = io::FileDType::kF32, .source = source},
                           [&](std::span<const std::byte> bytes) {
                             const size_t at = values.size();
                             values.resize(at + bytes.size() / sizeof(float));
                             std::memcpy(values.data() + at, bytes.data(), bytes.size());
                           });
  return values;
}

std::vector<std::byte> data_of(const Planned& p, hf::TensorSource& source, const model::ModelConfig& model) {
  std::vector<float> values = values_of(p, source);
  const std::vector<int64_t>& shape = p.info.shape;
  if (p.change == Change::kAddOne)
    for (float& value : values) value += 1;
  if (p.change == Change::kTranspose) {
    std::vector<float> flipped(values.size());
    hf::transpose(std::as_bytes(std::span(values)), shape[1], shape[0], sizeof(float),
                  std::as_writable_bytes(std::span(flipped)));
    values = std::move(flipped);
  }
  if (p.change == Change::kPairs) {
    const bool query = p.info.name.find("attn_q.") != std::string::npos;
    values = paired(values, query ? model.n_heads : model.n_kv_heads, shape[0]);
  }
  std::vector<std::byte> out;
  encode_rows(p.info.type, values, shape.back(), out);
  return out;
}

std::vector<Entry> metadata_of(const hf::OpenedExport& opened, const Architecture& architecture, TensorType type) {
  nlohmann::json config;
  io::reading_json([](const std::string& sentence) { return Error(ExitCode::kBug, "gguf", sentence); },
                   [&] { config = io::parse_json(write_hf_config(opened.config, "float32")); });
  std::vector<Entry> entries = {{"general.architecture", std::string(architecture.name)},
                                {"general.type", std::string("model")},
                                {"general.name", opened.checkpoint.filename().string()},
                                {"general.file_type", file_type(type)},
                                {"general.quantization_version", uint32_t{2}}};
  const std::vector<Entry> of_model = architecture.metadata(config);
  entries.insert(entries.end(), of_model.begin(), of_model.end());
  std::vector<Entry> vocabulary = {{"tokenizer.ggml.model", std::string("none")}};
  if (opened.tokenizer)
    vocabulary = vocabulary_of(*opened.tokenizer, opened.config.extras, opened.config.model.vocab_size);
  entries.insert(entries.end(), vocabulary.begin(), vocabulary.end());
  return entries;
}

}  // namespace

Report export_gguf(const hf::OpenedExport& opened, const std::filesystem::path& directory, TensorType type) {
  const Architecture& architecture = architecture_of(opened.config.family->class_name);
  const std::vector<Entry> metadata = metadata_of(opened, architecture, type);
  std::vector<TensorInfo> tensors;
  std::map<std::string, Planned> plan;
  Report report{.file = directory / kModelFile, .architecture = architecture.name};
  for (const hf::TensorMapping& mapping : hf::tensor_mappings(*opened.config.family, opened.config.model)) {
    Planned p = planned(architecture, mapping, type);
    report.bytes += p.info.num_bytes();
    tensors.push_back(p.info);
    plan.emplace(p.info.name, std::move(p));
  }
  const std::vector<float> divisors = frequency_divisors(opened.config.model);
  if (!divisors.empty()) {
    tensors.push_back({.name = std::string(kDivisors), .shape = {std::ssize(divisors)}});
    report.bytes += tensors.back().num_bytes();
  }
  report.tensors = std::ssize(tensors);
  io::create_directories(directory);
  write_file(report.file, metadata, tensors, [&](const TensorInfo& tensor) {
    if (tensor.name == kDivisors) {
      const auto bytes = std::as_bytes(std::span(divisors));
      return std::vector<std::byte>(bytes.begin(), bytes.end());
    }
    return data_of(plan.at(tensor.name), *opened.source, opened.config.model);
  });
  return report;
}

}  // namespace ashlar::gguf
