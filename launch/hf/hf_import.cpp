#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_join.h"
#include "core/base/error.h"
#include "core/io/convert.h"
#include "core/io/posix_file.h"
#include "launch/hf/convert.h"
#include "launch/hf/hf_model.h"
#include "launch/hf/model_folder.h"

namespace ashlar::hf {
namespace {

constexpr size_t kMaxListed = 8;

std::string listed(const std::vector<std::string>& texts) {
  std::string all = comma_list(std::span(texts).first(std::min(texts.size(), kMaxListed)));
  if (texts.size() > kMaxListed) all += str_cat(" and ", texts.size() - kMaxListed, " more");
  return all;
}

std::string shape_text(const std::vector<int64_t>& shape) { return "[" + absl::StrJoin(shape, ",") + "]"; }

bool is_weight_dtype(io::FileDType dtype) {
  return dtype == io::FileDType::kF32 || dtype == io::FileDType::kF16 || dtype == io::FileDType::kBF16 ||
         dtype == io::FileDType::kF64;
}

/// Returns the number of elements in one row of an Ashlar tensor; a row of a vector is one element.
int64_t row_elems(const std::vector<int64_t>& shape) { return shape.size() > 1 ? shape[1] : 1; }

}  // namespace

ImportedModel import_hf(const std::filesystem::path& directory, const std::vector<std::string>& ignored_keys) {
  refuse_adapter(directory);
  const std::filesystem::path config_path = directory / "config.json";
  std::error_code unseen;
  if (!std::filesystem::exists(config_path, unseen)) check_weight_files(directory);
  HfConfig config = parse_hf_config(io::read_text_file(config_path), config_path.string(), ignored_keys);
  check_weight_files(directory);
  io::SafetensorsModel files(directory);
  // The number of layers is checked before bind() makes one mapping for each tensor, because a wrong number could make
  // that list huge.
  if (config.model.n_layers > static_cast<int64_t>(files.names().size())) {
    throw input_error("hf", printable(directory.string()), ": config.json has ", config.model.n_layers,
                      " layers, but the weights have only ", files.names().size(),
                      " tensors: the files are of different models; download both again");
  }
  ImportedModel model(std::move(files), std::move(config));
  model.bind(directory.string());
  return model;
}

void ImportedModel::bind(const std::string& directory) {
  mappings_ = tensor_mappings(*config_.family, config_.model);
  const std::string prefix = config_.family->tensors.prefix;
  const bool has_prefix =
      std::ranges::any_of(files_.names(), [&](const std::string& name) { return name.starts_with(prefix); });
  std::vector<std::string> missing, wrong;
  for (size_t i = 0; i < mappings_.size(); ++i) {
    const TensorMapping& mapping = mappings_[i];
    std::string name = mapping.hf_name;
    if (!has_prefix && name.starts_with(prefix)) name = name.substr(prefix.size());
    if (files_.find(name) == nullptr && !mapping.hf_alias.empty()) name = mapping.hf_alias;
    file_names_.push_back(name);
    const io::TensorEntry* entry = files_.find(name);
    if (entry == nullptr && mapping.parts.empty()) continue;  // constants may be absent in files
    if (entry == nullptr) {
      missing.push_back(printable(mapping.hf_name));
      continue;
    }
    if (entry->shape != mapping.hf_shape) {
      wrong.push_back(
          str_cat(printable(name), " is ", shape_text(entry->shape), ", expected ", shape_text(mapping.hf_shape)));
    } else if (!is_weight_dtype(entry->dtype)) {
      wrong.push_back(str_cat(printable(name), " is ", io::name_of(entry->dtype), ", expected F32, F16, BF16 or F64"));
    }
    if (mapping.parts.empty() && wrong.empty()) check_constant(mapping, name, wrong);
    for (size_t p = 0; p < mapping.parts.size(); ++p) {
      const TensorPart& part = mapping.parts[p];
      tensors_.push_back({.name = part.name, .dtype = entry->dtype, .shape = part.shape});
      places_[part.name] = {i, p};
    }
  }
  const std::vector<std::string> unknown = unknown_names();
  std::string problem;
  if (!missing.empty()) problem += str_cat("; missing: ", listed(missing));
  if (!unknown.empty()) problem += str_cat("; unknown: ", listed(unknown));
  if (!wrong.empty()) problem += str_cat("; ", listed(wrong));
  if (!problem.empty()) {
    throw input_error("hf", printable(directory), ": the weights do not match the ", config_.family->class_name,
                      " in config.json; use files of one model", problem);
  }
  if (config_.model.tied) check_tied_head(directory);
}

std::vector<std::string> ImportedModel::unknown_names() {
  std::vector<std::string> unknown;
  int64_t buffers = 0, other_parts = 0;
  const std::set<std::string> expected(file_names_.begin(), file_names_.end());
  const std::vector<std::string> heads = head_names(*config_.family);
  for (const std::string& name : files_.names()) {
    if (expected.contains(name)) continue;
    if (is_ignored_buffer(*config_.family, name)) {
      ++buffers;
    } else if (is_other_part(*config_.family, name)) {
      ++other_parts;
    } else if (!(config_.model.tied && std::ranges::find(heads, name) != heads.end())) {
      unknown.push_back(printable(name));
    }
  }
  if (buffers > 0)
    config_.notes.push_back(str_cat(buffers, " buffers of an old version (masks, rotary tables) are left out"));
  if (other_parts > 0)
    config_.notes.push_back(
        str_cat(other_parts, " tensors of the image encoder are left out; only the text model is imported"));
  return unknown;
}

void ImportedModel::check_constant(const TensorMapping& mapping, const std::string& name,
                                   std::vector<std::string>& wrong) {
  const io::TensorEntry& entry = files_.at(name);
  std::vector<std::byte> stored(static_cast<size_t>(entry.num_bytes()));
  files_.read(name, stored);
  std::vector<double> values(static_cast<size_t>(entry.num_elems()));
  convert_elements(entry.dtype, stored, io::FileDType::kF64, std::as_writable_bytes(std::span(values)));
  constexpr double kBf16Rounding = 1.0 / 256;
  for (const double value : values) {
    if (std::abs(value - mapping.constant) <= kBf16Rounding * std::abs(mapping.constant)) continue;
    wrong.push_back(str_cat(printable(name), " holds ", value, ", expected ", mapping.constant,
                            ": other values are not supported"));
    return;
  }
}

void ImportedModel::check_tied_head(const std::string& directory) {
  for (const std::string& head : head_names(*config_.family)) {
    const io::TensorEntry* copy = files_.find(head);
    if (copy == nullptr) continue;
    const io::TensorEntry& table = files_.at(file_names_[0]);
    bool equal = copy->dtype == table.dtype && copy->shape == table.shape;
    constexpr int64_t kStep = int64_t{1} << 20;
    std::vector<std::byte> a, b;
    for (int64_t at = 0; equal && at < table.num_bytes(); at += kStep) {
      a.resize(static_cast<size_t>(std::min(kStep, table.num_bytes() - at)));
      b.resize(a.size());
      files_.read_range(file_names_[0], at, a);
      files_.read_range(head, at, b);
      equal = a == b;
    }
    if (!equal) {
      throw input_error("hf", printable(directory), ": expected ", printable(head), " to equal ",
                        printable(file_names_[0]),
                        " with tie_word_embeddings = true; set tie_word_embeddings to false, or remove one tensor");
    }
    config_.notes.push_back(
        str_cat(printable(head), " is a copy of the tied embedding; only one of the two is imported"));
  }
}

void ImportedModel::read(std::string_view name, std::span<std::byte> out) {
  const auto found = places_.find(std::string(name));
  ASHLAR_CHECK(found != places_.end(), "no tensor ", name);
  const TensorMapping& mapping = mappings_[found->second.mapping];
  const TensorPart& part = mapping.parts[found->second.part];
  const std::string& file_name = file_names_[found->second.mapping];
  const int64_t element = io::size_of(files_.at(file_name).dtype);
  const int64_t row_bytes = row_elems(part.shape) * element;
  ASHLAR_CHECK(static_cast<int64_t>(out.size()) == part.shape[0] * row_bytes, name, " has ", part.shape[0] * row_bytes,
               " bytes, the buffer ", out.size());
  if (mapping.transpose && transposed_name_ != file_name) {
    // q, k and v are read one after the other and share the transposed tensor.
    std::vector<std::byte> stored(static_cast<size_t>(files_.at(file_name).num_bytes()));
    files_.read(file_name, stored);
    transposed_.resize(stored.size());
    transpose(stored, mapping.hf_shape[0], mapping.hf_shape[1], element, transposed_);
    transposed_name_ = file_name;
  }
  for (const RowBlock& block : part.blocks) {
    const auto target =
        out.subspan(static_cast<size_t>(block.our_row * row_bytes), static_cast<size_t>(block.rows * row_bytes));
    if (mapping.transpose) {
      std::memcpy(target.data(), transposed_.data() + block.hf_row * row_bytes, target.size());
    } else {
      files_.read_range(file_name, block.hf_row * row_bytes, target);
    }
  }
  const io::FileDType dtype = files_.at(file_name).dtype;
  if (const int64_t bad = io::first_non_finite(dtype, out); bad >= 0) {
    const int64_t cols = row_elems(part.shape);
    throw Error(
        ExitCode::kNonFinite, "hf",
        str_cat(printable(file_name), " has a non-finite value: ", name, " element [", bad / cols, ", ", bad % cols,
                "] is ", io::non_finite_word(dtype, out.subspan(static_cast<size_t>(bad * element), element)),
                ", the first such value in model order; the model is damaged, or its training failed: download "
                "it again or use another"));
  }
}

}  // namespace ashlar::hf
