#include "data/manifest.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/hex.h"
#include "core/io/checksum.h"

namespace ashlar::data {
namespace {

using nlohmann::json;

constexpr std::string_view kFormat = "ashlar.dataset";

json part_json(const PartInfo& part) {
  json shards = json::array();
  for (const ShardInfo& s : part.shards) {
    shards.push_back({{"file", s.file},
                      {"tokens", s.tokens},
                      {"documents", s.documents},
                      {"bytes", s.bytes},
                      {"crc32", hex32(s.crc32)}});
  }
  return {{"tokens", part.tokens}, {"documents", part.documents}, {"shards", shards}};
}

PartInfo part_from(const json& j) {
  PartInfo part;
  part.tokens = j.at("tokens");
  part.documents = j.at("documents");
  for (const json& s : j.at("shards")) {
    ShardInfo info;
    info.file = s.at("file");
    info.tokens = s.at("tokens");
    info.documents = s.at("documents");
    info.bytes = s.at("bytes");
    info.crc32 = static_cast<uint32_t>(std::stoul(s.at("crc32").get<std::string>(), nullptr, 16));
    part.shards.push_back(info);
  }
  return part;
}

json body(const Manifest& m) {
  json j;
  j["format"] = kFormat;
  j["version"] = Manifest::kVersion;
  j["tokenizer"] = json::parse(m.tokenizer_json);
  j["tokenizer_hash"] = m.tokenizer_hash;
  j["vocab_size"] = m.vocab_size;
  j["eod_id"] = m.eod_id;
  j["dtype"] = m.wide ? "uint32" : "uint16";
  j["chunk_tokens"] = kChunkTokens;
  j["validation"] = {{"share", m.validation_share}, {"rule", m.validation_rule}};
  j["source"] = {{"fingerprint", m.source_fingerprint},
                 {"files", m.source_files},
                 {"bytes", m.source_bytes},
                 {"empty_documents", m.source_empty_documents}};
  for (const Part p : kParts) j["parts"][std::string(name_of(p))] = part_json(m.part(p));
  return j;
}

std::string sealed_text(json j) {
  j["checksum"] = hex32(io::crc32(j.dump(1)));
  return j.dump(1) + "\n";
}

Manifest from(const json& j) {
  Manifest m;
  m.tokenizer_json = j.at("tokenizer").dump();
  m.tokenizer_hash = j.at("tokenizer_hash");
  m.vocab_size = j.at("vocab_size");
  m.eod_id = j.at("eod_id");
  m.wide = j.at("dtype") == "uint32";
  m.validation_share = j.at("validation").at("share");
  m.validation_rule = j.at("validation").at("rule");
  m.source_fingerprint = j.at("source").at("fingerprint");
  m.source_files = j.at("source").at("files");
  m.source_bytes = j.at("source").at("bytes");
  m.source_empty_documents = j.at("source").at("empty_documents");
  for (const Part p : kParts) m.part(p) = part_from(j.at("parts").at(std::string(name_of(p))));
  return m;
}

}  // namespace

std::string_view name_of(Part part) { return part == Part::kTrain ? "train" : "validation"; }

std::string manifest_text(const Manifest& manifest) { return sealed_text(body(manifest)); }

Manifest read_manifest(const std::string& directory) {
  const std::string path = (std::filesystem::path(directory) / "manifest.json").string();
  std::error_code ignored;
  if (!std::filesystem::exists(directory, ignored)) {
    throw input_error("data", "no dataset at ", directory, "; make one with: ashlar data build INPUT... --out ",
                      directory);
  }
  if (!std::filesystem::exists(path, ignored)) {
    throw input_error("data", directory, " holds no manifest.json: not a dataset, or its build was not finished",
                      " (run the same `ashlar data build` again to continue it)");
  }
  const std::string text = io::read_text_file(path, io::kAnySize);
  const json j = json::parse(text, nullptr, false);
  if (!j.is_object())
    throw damaged_error("data", path, " is not the JSON object that was written; rebuild the dataset");
  const std::string damaged =
      str_cat(path, " does not match its checksum; restore the file or build the dataset again");
  if (j.value("format", json()) != kFormat && !j.contains("checksum")) {
    throw input_error("data", path, ": format is ", j.value("format", json()).dump(), ", expected \"", kFormat, "\"");
  }
  try {
    // Holds for every version to come: the checksum is of the file without it, and nothing but this layout is right.
    json rest = j;
    rest.erase("checksum");
    if (sealed_text(std::move(rest)) != text) throw damaged_error("data", damaged);
    if (j.at("format") != kFormat || j.at("version") != Manifest::kVersion) {
      throw input_error("data", path, ": format ", j.at("format").dump(), " version ", j.at("version").dump(),
                        ", this program reads \"", kFormat, "\" version ", Manifest::kVersion,
                        "; use a newer ashlar or build the dataset again");
    }
    return from(j);
  } catch (const std::logic_error&) {
    // std::stoul on a number that is none.
  } catch (const json::exception&) {
    // A missing or mistyped entry is damage like any other changed byte.
  }
  throw damaged_error("data", damaged);
}

}  // namespace ashlar::data
