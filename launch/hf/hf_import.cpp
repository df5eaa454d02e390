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
  if (config_.is_part) text_prefix_ = config_.family->whole.text_prefix;
  const std::string prefix = text_prefix_ + config_.family->tensors.prefix;
  has_prefix_ = std::ranges::any_of(files_.names(), [&](const std::string& name) { return name.starts_with(prefix); });
  const std::set<std::string> other_forms = map_tensors();
  std::vector<std::string> missing, wrong;
  for (size_t i = 0; i < mappings_.size(); ++i) {
    const TensorMapping& mapping = mappings_[i];
    std::string name = name_in_files(mapping.hf_name);
    if (files_.find(name) == nullptr && !mapping.hf_alias.empty()) name = name_in_files(mapping.hf_alias);
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
  std::vector<std::string> unknown, twice;
  for (const std::string& name : unknown_names())
    (other_forms.contains(name) ? twice : unknown).push_back(printable(name));
  std::string problem;
  if (!missing.empty()) problem += str_cat("; missing: ", listed(missing));
  if (!twice.empty()) problem += str_cat("; experts that the files also have under other names: ", listed(twice));
  if (!unknown.empty()) problem += str_cat("; unknown: ", listed(unknown));
  if (!wrong.empty()) problem += str_cat("; ", listed(wrong));
  if (!problem.empty()) {
    throw input_error("hf", printable(directory), ": the weights do not match the ", config_.family->class_name,
                      " in config.json; use files of one model", problem);
  }
  if (config_.model.tied) check_tied_head(directory);
}

std::string ImportedModel::name_in_files(const std::string& name) const {
  const std::string_view prefix = config_.family->tensors.prefix;
  return text_prefix_ + (!has_prefix_ && name.starts_with(prefix) ? name.substr(prefix.size()) : name);
}

std::set<std::string> ImportedModel::map_tensors() {
  const size_t forms = config_.model.moe.experts > 0 ? config_.family->tensors.expert_forms.size() : 1;
  std::set<std::string> all;
  int64_t most = -1;
  for (size_t form = 0; form < forms; ++form) {
    std::vector<TensorMapping> mappings = tensor_mappings(*config_.family, config_.model, form);
    int64_t found = 0;
    for (const TensorMapping& mapping : mappings) {
      const bool of_experts = !mapping.parts.empty() && mapping.parts[0].name.find(".moe.") != std::string::npos;
      if (!of_experts || forms == 1) continue;
      for (const std::string& name : {mapping.hf_name, mapping.hf_alias})
        if (!name.empty()) found += files_.find(*all.insert(name_in_files(name)).first) != nullptr ? 1 : 0;
    }
    if (found <= most) continue;
    most = found;
    mappings_ = std::move(mappings);
  }
  return all;
}

std::vector<std::string> ImportedModel::unknown_names() {
  std::vector<std::string> unknown;
  int64_t buffers = 0, other_parts = 0, further = 0;
  const std::set<std::string> expected(file_names_.begin(), file_names_.end());
  const std::vector<std::string> heads = head_names(*config_.family);
  const auto is_of_other_part = [&](const std::string& name) {
    const std::vector<std::string_view>& parts = config_.family->whole.other_parts;
    return config_.is_part && std::ranges::any_of(parts, [&](std::string_view part) { return name.starts_with(part); });
  };
  for (const std::string& file_name : files_.names()) {
    if (expected.contains(file_name)) continue;
    const std::string name = file_name.starts_with(text_prefix_) ? file_name.substr(text_prefix_.size()) : file_name;
    if (is_ignored_buffer(*config_.family, name)) {
      ++buffers;
    } else if (is_other_part(*config_.family, name) || is_of_other_part(file_name)) {
      ++other_parts;
    } else if (is_of_further_block(config_, name)) {
      ++further;
    } else if (!(config_.model.tied && std::ranges::find(heads, name) != heads.end())) {
      unknown.push_back(file_name);
    }
  }
  if (buffers > 0)
    config_.notes.push_back(str_cat(buffers, " buffers of an old version (masks, rotary tables) are left out"));
  if (further > 0)
    config_.notes.push_back(
        str_cat(further, " tensors of blocks that predict further tokens (MTP) are left out; nothing else reads them"));
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
  for (const std::string& name : head_names(*config_.family)) {
    const std::string head = text_prefix_ + name;
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

void ImportedModel::read_rows(const TensorMapping& mapping, const std::string& file_name, const RowBlock& block,
                              std::span<std::byte> out) {
  const RowLayout layout = row_layout(mapping);
  const int64_t element = io::size_of(files_.at(file_name).dtype), row_bytes = layout.row_elems * element;
  if (!mapping.transpose && block.hf_step == 1) return files_.read_range(file_name, block.hf_row * row_bytes, out);
  const std::byte* first = nullptr;
  std::vector<std::byte> stored;
  if (mapping.transpose) {
    // q, k and v, or gate and up, are read one after the other and share the transposed matrix.
    const int64_t matrix = block.hf_row / layout.rows, bytes = layout.rows * row_bytes;
    if (transposed_name_ != file_name || transposed_matrix_ != matrix) {
      stored.resize(static_cast<size_t>(bytes));
      transposed_.resize(stored.size());
      files_.read_range(file_name, matrix * bytes, stored);
      transpose(stored, layout.row_elems, layout.rows, element, transposed_);
      transposed_name_ = file_name;
      transposed_matrix_ = matrix;
    }
    first = transposed_.data() + (block.hf_row - matrix * layout.rows) * row_bytes;
  } else {
    stored.resize(static_cast<size_t>(((block.rows - 1) * block.hf_step + 1) * row_bytes));
    files_.read_range(file_name, block.hf_row * row_bytes, stored);
    first = stored.data();
  }
  for (int64_t i = 0; i < block.rows; ++i)
    std::memcpy(out.data() + i * row_bytes, first + i * block.hf_step * row_bytes, static_cast<size_t>(row_bytes));
}

void ImportedModel::read(std::string_view name, std::span<std::byte> out) {
  const auto found = places_.find(std::string(name));
  ASHLAR_CHECK(found != places_.end(), "no tensor ", name);
  const TensorMapping& mapping = mappings_[found->second.mapping];
  const TensorPart& part = mapping.parts[found->second.part];
  const std::string& file_name = file_names_[found->second.mapping];
  const io::FileDType dtype = files_.at(file_name).dtype;
  const int64_t element = io::size_of(dtype), cols = row_elems(part.shape), row_bytes = cols * element;
  ASHLAR_CHECK(static_cast<int64_t>(out.size()) == part.shape[0] * row_bytes, name, " has ", part.shape[0] * row_bytes,
               " bytes, the buffer ", out.size());
  for (const RowBlock& block : part.blocks)
    read_rows(mapping, file_name, block,
              out.subspan(static_cast<size_t>(block.our_row * row_bytes), static_cast<size_t>(block.rows * row_bytes)));
  if (const int64_t bad = io::first_non_finite(dtype, out); bad >= 0) {
    throw Error(
        ExitCode::kNonFinite, "hf",
        str_cat(printable(file_name), " has a non-finite value: ", name, " element [", bad / cols, ", ", bad % cols,
                "] is ", io::non_finite_word(dtype, out.subspan(static_cast<size_t>(bad * element), element)),
                ", the first such value in model order; the model is damaged, or its training failed: download "
                "it again or use another"));
  }
}

}  // namespace ashlar::hf
