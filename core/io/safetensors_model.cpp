#include "core/io/safetensors_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/io/json.h"
#include "core/io/posix_file.h"

namespace ashlar::io {
namespace {

namespace fs = std::filesystem;

/// Reads the index and returns the file name of each tensor's shard. Throws if a file name contains a folder.
std::map<std::string, std::string> read_index(const fs::path& path) {
  const auto damaged = [&path](const auto&... parts) {
    return damaged_error("safetensors", printable(path.string()), " is not a valid index: ", parts...,
                         "; download or write it again");
  };
  const std::string text = read_text_file(path);
  nlohmann::json root;
  reading_json([&](const std::string& sentence) { return damaged(sentence); }, [&] { root = parse_json(text); });
  if (!root.is_object()) throw damaged("it is not a JSON object");
  if (!root.contains("weight_map") || !root["weight_map"].is_object()) throw damaged("weight_map is not an object");
  std::map<std::string, std::string> map;
  for (const auto& [tensor, file] : root["weight_map"].items()) {
    if (!file.is_string()) throw damaged("the file of ", printable(tensor), " is not a string");
    const auto& name = file.get_ref<const std::string&>();
    // A shard must be in the folder of the index. A path with folders could make the program read files outside the
    // model.
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
      throw damaged("the file of ", printable(tensor), " is ", printable(name),
                    ", which is not a file name without folders");
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
    const SafetensorsReader all = add_file(single);
    for (const TensorEntry& tensor : all.tensors()) where_[tensor.name] = {.file = 0, .entry = tensor};
  } else if (fs::exists(index)) {
    read_shards(index);
  } else {
    throw input_error("safetensors", "expected model.safetensors or model.safetensors.index.json in ",
                      printable(directory.string()),
                      ", got neither; convert weights in another format, e.g. pytorch_model.bin, to safetensors first");
  }
  for (const auto& [name, place] : where_) names_.push_back(name);
}

void SafetensorsModel::read_shards(const fs::path& index) {
  std::map<std::string, std::vector<std::string>> tensors_of;
  for (const auto& [tensor, file] : read_index(index)) tensors_of[file].push_back(tensor);
  for (const auto& [file, tensors] : tensors_of) {
    const SafetensorsReader shard = add_file(directory_ / file);
    for (const std::string& tensor : tensors) {
      const TensorEntry* entry = shard.find(tensor);
      if (entry == nullptr) {
        throw damaged_error(
            "safetensors", printable(index.string()), " places ", printable(tensor), " in ", printable(file),
            ", which does not contain it; index and shards belong to different models: download both again");
      }
      where_[tensor] = {.file = files_.size() - 1, .entry = *entry};
    }
    for (const TensorEntry& tensor : shard.tensors()) {
      const auto found = where_.find(tensor.name);
      if (found == where_.end() || found->second.file != files_.size() - 1) {
        throw damaged_error(
            "safetensors", printable(shard.path().string()), " contains ", printable(tensor.name), ", which ",
            printable(index.string()),
            " does not list for this file; index and shards belong to different models: download both again");
      }
    }
  }
}

SafetensorsReader SafetensorsModel::add_file(const fs::path& path) {
  SafetensorsReader reader(path);
  files_.push_back({.path = path, .bytes = reader.file_bytes(), .open = {}});
  return reader;
}

const InputFile& SafetensorsModel::opened(size_t file) {
  File& wanted = files_[file];
  if (wanted.open) {
    const auto at = std::find(open_.begin(), open_.end(), file);
    std::rotate(at, at + 1, open_.end());
    return *wanted.open;
  }
  if (open_.size() == kMaxOpenFiles) {
    files_[open_.front()].open.reset();
    open_.erase(open_.begin());
  }
  wanted.open.emplace(wanted.path);
  open_.push_back(file);
  if (wanted.open->size_bytes() != wanted.bytes) {
    throw damaged_error("safetensors", printable(wanted.path.string()), " has ", wanted.open->size_bytes(),
                        " bytes, but had ", wanted.bytes,
                        " when its header was read; do not change the file during a read");
  }
  return *wanted.open;
}

const SafetensorsModel::Place& SafetensorsModel::place_of(std::string_view name) const {
  const auto found = where_.find(name);
  if (found == where_.end()) {
    throw damaged_error("safetensors", printable(directory_.string()), " has no tensor ", printable(name),
                        "; the model is incomplete or of another kind: check the path or download the model again");
  }
  return found->second;
}

const TensorEntry* SafetensorsModel::find(std::string_view name) const {
  const auto found = where_.find(name);
  return found == where_.end() ? nullptr : &found->second.entry;
}

const TensorEntry& SafetensorsModel::at(std::string_view name) const { return place_of(name).entry; }

void SafetensorsModel::read(std::string_view name, std::span<std::byte> out) {
  const TensorEntry& entry = at(name);
  ASHLAR_CHECK(static_cast<int64_t>(out.size()) == entry.end - entry.begin, entry.name, " has ",
               entry.end - entry.begin, " bytes, the buffer ", out.size());
  read_range(name, 0, out);
}

void SafetensorsModel::read_range(std::string_view name, int64_t begin_byte, std::span<std::byte> out) {
  const Place& place = place_of(name);
  const int64_t size = place.entry.end - place.entry.begin;
  const auto count = static_cast<int64_t>(out.size());
  ASHLAR_CHECK(begin_byte >= 0 && begin_byte <= size && count <= size - begin_byte, name, " has ", size,
               " bytes, asked for ", count, " at ", begin_byte);
  opened(place.file).read_at(place.entry.begin + begin_byte, out);
}

}  // namespace ashlar::io
