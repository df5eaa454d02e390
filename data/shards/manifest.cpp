#include "data/shards/manifest.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "core/base/error.h"
#include "core/base/hex.h"
#include "core/io/checksum.h"
#include "core/io/json.h"
#include "data/shards/fingerprint.h"

namespace ashlar::data {
namespace {

using nlohmann::json;

constexpr std::string_view kFormat = "ashlar.dataset";

std::string path_in(const std::string& directory) {
  return (std::filesystem::path(directory) / "manifest.json").string();
}

json part_json(const PartInfo& part, bool digests) {
  json shards = json::array();
  Digest sum;
  for (const ShardInfo& s : part.shards) {
    json entry = {{"file", s.file},
                  {"tokens", s.tokens},
                  {"documents", s.documents},
                  {"bytes", s.bytes},
                  {"crc32", hex32(s.crc32)}};
    if (digests) entry["digest"] = s.digest.hex();
    sum += s.digest;
    shards.push_back(std::move(entry));
  }
  json j = {{"tokens", part.tokens}, {"documents", part.documents}, {"shards", std::move(shards)}};
  if (digests) j["digest"] = sum.hex();
  return j;
}

Digest digest_from(const json& j) {
  const std::optional<Digest> digest = digest_from_hex(j.get_ref<const std::string&>());
  if (!digest) throw std::invalid_argument("no digest");
  return *digest;
}

PartInfo part_from(const json& j, bool digests) {
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
    if (digests) info.digest = digest_from(s.at("digest"));
    part.shards.push_back(std::move(info));
  }
  return part;
}

json body(const Manifest& m) {
  json j;
  j["format"] = kFormat;
  j["version"] = m.version;
  j["tokenizer"] = io::parse_json(m.tokenizer_json);
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
  if (!m.special_tokens.empty())
    j["source"]["special_tokens"] = {{"policy", m.special_tokens}, {"found", m.special_spellings}};
  if (!m.bad_lines.empty()) {
    j["source"]["bad_lines"] = {{"policy", m.bad_lines}, {"left_out", m.bad_lines_left_out}, {"places", m.bad_places}};
  }
  for (const Part p : kParts) j["parts"][std::string(name_of(p))] = part_json(m.part(p), !m.old_form());
  if (!m.old_form()) {
    const Fingerprint print = fingerprint_of(m);
    j["source"]["digest"] = m.source_digest;
    j["fingerprint"] = {{"tokenizer", print.tokenizer}, {"tokens", print.tokens}};
  }
  return j;
}

// The keys are sorted, so "checksum" is the first key, on the second line. The checksum covers the text without its
// second line and without its last line break.
constexpr std::string_view kOpen = "{\n", kSealBegin = " \"checksum\": \"", kSealEnd = "\",\n";

std::string sealed_text(const json& j) {
  const std::string text = j.dump(1);
  return str_cat(kOpen, kSealBegin, hex32(io::crc32(text)), kSealEnd, text.substr(kOpen.size()), "\n");
}

// Verifies the checksum on the text itself. Serialising the parsed manifest again would be slow: the manifest of
// 150,000 shards has tens of megabytes.
bool seal_holds(std::string_view text) {
  const size_t rest = kOpen.size() + kSealBegin.size() + 8 + kSealEnd.size();
  if (text.size() <= rest || text.back() != '\n') return false;
  const uint32_t crc = io::crc32(text.substr(rest, text.size() - 1 - rest), io::crc32(kOpen));
  return text.substr(0, rest) == str_cat(kOpen, kSealBegin, hex32(crc), kSealEnd);
}

Manifest from(const json& j) {
  Manifest m;
  m.version = j.at("version");
  m.tokenizer_json = j.at("tokenizer").dump();
  m.tokenizer_hash = j.at("tokenizer_hash");
  m.vocab_size = j.at("vocab_size");
  m.eod_id = j.at("eod_id");
  m.wide = j.at("dtype") == "uint32";
  m.validation_share = j.at("validation").at("share");
  m.validation_rule = j.at("validation").at("rule");
  m.source_fingerprint = j.at("source").at("fingerprint");
  if (!m.old_form()) m.source_digest = j.at("source").at("digest");
  m.source_files = j.at("source").at("files");
  m.source_bytes = j.at("source").at("bytes");
  m.source_empty_documents = j.at("source").at("empty_documents");
  if (const auto special = j.at("source").find("special_tokens"); special != j.at("source").end()) {
    m.special_tokens = special->at("policy");
    m.special_spellings = special->at("found");
  }
  if (const auto bad = j.at("source").find("bad_lines"); bad != j.at("source").end()) {
    m.bad_lines = bad->at("policy");
    m.bad_lines_left_out = bad->at("left_out");
    m.bad_places = bad->at("places");
  }
  for (const Part p : kParts) m.part(p) = part_from(j.at("parts").at(std::string(name_of(p))), !m.old_form());
  return m;
}

}  // namespace

std::string manifest_text(const Manifest& manifest) { return sealed_text(body(manifest)); }

std::string read_manifest_text(const std::string& directory) {
  const std::string path = path_in(directory);
  std::error_code ignored;
  if (!std::filesystem::exists(directory, ignored)) {
    throw input_error("data", "no dataset at ", directory, "; make one with: ashlar data build INPUT... --out ",
                      directory);
  }
  if (!std::filesystem::exists(path, ignored)) {
    throw input_error("data", directory, " has no manifest.json: not a dataset, or its build was not finished",
                      " (run the same `ashlar data build` again to continue it)");
  }
  return io::read_text_file(path, io::kAnySize);
}

Manifest parse_manifest(const std::string& text, const std::string& directory) {
  const std::string path = path_in(directory);
  const json j = io::try_parse_json(text, io::JsonKeys::kUnique).value_or(json());
  if (!j.is_object())
    throw damaged_error("data", path, " is not a manifest, which is a JSON object; rebuild the dataset");
  const std::string damaged =
      str_cat(path, " does not match its checksum; restore the file or build the dataset again");
  if (j.value("format", json()) != kFormat && !j.contains("checksum")) {
    throw input_error("data", path, ": format is ", j.value("format", json()).dump(), ", expected \"", kFormat,
                      "\": another kind of manifest; give the folder of a dataset");
  }
  // The checksum is the same in all versions of the format, so it is checked before the version.
  if (!seal_holds(text)) throw damaged_error("data", damaged);
  try {
    const json& version = j.at("version");
    if (j.at("format") != kFormat || (version != Manifest::kVersion && version != Manifest::kOldVersion)) {
      throw input_error("data", path, ": format ", j.at("format").dump(), " version ", version.dump(),
                        ", this program reads \"", kFormat, "\" versions ", Manifest::kOldVersion, " and ",
                        Manifest::kVersion, "; use a newer ashlar or build the dataset again");
    }
    return from(j);
  } catch (const std::logic_error&) {
    // std::stoul and digest_from throw this for a checksum or digest that is not a hexadecimal number. It is damage.
  } catch (const json::exception&) {
    // A missing entry or an entry of the wrong type counts as damage, like any changed byte.
  }
  throw damaged_error("data", damaged);
}

}  // namespace ashlar::data
