#include "core/io/safetensors_model.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "core/io/json.h"
#include "core/io/posix_file.h"

namespace ashlar::io {
namespace {

namespace fs = std::filesystem;

/// tensor name -> file name, both checked to be plain.
std::map<std::string, std::string> read_index(const fs::path& path) {
  const auto damaged = [&path](const auto&... parts) {
    return damaged_error("safetensors", printable(path.string()), " is not a valid index: ", parts...,
                         "; fetch or write it again");
  };
  const std::string text = read_text_file(path);
  nlohmann::json root;
  reading_json([&](const std::string& sentence) { return damaged(sentence); },
               [&] { root = nlohmann::json::parse(text); });
  if (!root.is_object()) throw damaged("it is not a JSON object");
  if (!root.contains("weight_map") || !root["weight_map"].is_object()) throw damaged("weight_map is not an object");
  std::map<std::string, std::string> map;
  for (const auto& [tensor, file] : root["weight_map"].items()) {
    if (!file.is_string()) throw damaged("the file of ", printable(tensor), " is not a string");
    const auto& name = file.get_ref<const std::string&>();
    // A shard lies beside its index; anything else could read files that are none of the model's business.
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
      throw damaged("the file of ", printable(tensor), " is ", printable(name), ", which is not a file name");
    }
    map[tensor] = name;
  }
  if (map.empty()) throw damaged("weight_map is empty");
  return map;
}

}  // namespace

SafetensorsModel::SafetensorsModel(const fs::path& directory) : directory_(directory) {
  const fs::path single = directory / "model.safetensors";
  const fs::path index = directory / "model.safetensors.index.json";
  if (fs::exists(single)) {
    readers_.emplace_back(single);
    for (const TensorEntry& tensor : readers_[0].tensors()) where_[tensor.name] = 0;
  } else if (fs::exists(index)) {
    const auto map = read_index(index);
    std::map<std::string, size_t> opened;
    for (const auto& [tensor, file] : map) {
      const auto [entry, is_new] = opened.try_emplace(file, readers_.size());
      if (is_new) readers_.emplace_back(directory / file);
      if (readers_[entry->second].find(tensor) == nullptr) {
        throw damaged_error("safetensors", printable(index.string()), " places ", printable(tensor), " in ",
                            printable(file), ", which does not hold it; index and shards are of different models");
      }
      where_[tensor] = entry->second;
    }
    for (size_t i = 0; i < readers_.size(); ++i) {
      for (const TensorEntry& tensor : readers_[i].tensors()) {
        const auto found = where_.find(tensor.name);
        if (found == where_.end() || found->second != i) {
          throw damaged_error("safetensors", printable(readers_[i].path().string()), " holds ", printable(tensor.name),
                              ", which ", printable(index.string()),
                              " does not place there; index and shards are of different models");
        }
      }
    }
  } else {
    throw input_error("safetensors", "expected model.safetensors or model.safetensors.index.json in ",
                      printable(directory.string()),
                      ", found neither; weights in another form (pytorch_model.bin) must be converted first");
  }
  for (const auto& [name, reader] : where_) names_.push_back(name);
}

const SafetensorsReader& SafetensorsModel::reader_of(std::string_view name) const {
  const auto found = where_.find(name);
  if (found == where_.end()) {
    throw damaged_error("safetensors", printable(directory_.string()), " has no tensor ", printable(name),
                        "; the model is incomplete or of another kind");
  }
  return readers_[found->second];
}

const TensorEntry* SafetensorsModel::find(std::string_view name) const {
  const auto found = where_.find(name);
  return found == where_.end() ? nullptr : readers_[found->second].find(name);
}

const TensorEntry& SafetensorsModel::at(std::string_view name) const { return reader_of(name).at(name); }

void SafetensorsModel::read(std::string_view name, std::span<std::byte> out) const {
  const SafetensorsReader& reader = reader_of(name);
  reader.read(reader.at(name), out);
}

void SafetensorsModel::read_range(std::string_view name, int64_t begin_byte, std::span<std::byte> out) const {
  const SafetensorsReader& reader = reader_of(name);
  reader.read_range(reader.at(name), begin_byte, out);
}

}  // namespace ashlar::io
