#include "data/tokenizer.h"

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/hex.h"
#include "core/base/philox.h"
#include "core/io/json.h"
#include "data/bytes_tokenizer.h"
#include "data/characters_tokenizer.h"
#include "data/utf8.h"

namespace ashlar::data {
namespace {

constexpr std::string_view kKinds = "bytes, characters";

std::unique_ptr<Tokenizer> characters_from(const nlohmann::json& json) {
  if (!json.contains("code_points") || !json["code_points"].is_array()) {
    throw input_error("tokenizer", "the characters tokenizer has no code_points list");
  }
  std::vector<char32_t> vocabulary;
  for (const nlohmann::json& entry : json["code_points"]) {
    const bool good = entry.is_number_unsigned() && entry.get<uint64_t>() <= kLastCodePoint &&
                      (vocabulary.empty() || entry.get<uint64_t>() > vocabulary.back());
    if (!good) throw input_error("tokenizer", "code_points must ascend within U+10FFFF, got ", entry.dump());
    vocabulary.push_back(static_cast<char32_t>(entry.get<uint32_t>()));
  }
  return std::make_unique<CharactersTokenizer>(std::move(vocabulary));
}

}  // namespace

size_t first_cut(CutRule rule, std::string_view text) {
  if (rule == CutRule::kAnyByte) return 0;
  size_t at = 0;
  while (at < text.size() && at < 3 && (static_cast<uint8_t>(text[at]) & 0xC0U) == 0x80U) ++at;
  return at;
}

std::string Tokenizer::hash() const { return hex64(hash64(to_json())); }

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  encode(text, ids);
  return ids;
}

std::unique_ptr<Tokenizer> tokenizer_from_json(std::string_view text) {
  nlohmann::json json;
  io::reading_json(
      [&](const std::string& sentence) {
        return input_error("tokenizer", "expected a JSON object with a \"kind\"; ", sentence);
      },
      [&] { json = nlohmann::json::parse(text); });
  if (!json.is_object() || !json.contains("kind") || !json["kind"].is_string()) {
    throw input_error("tokenizer", "expected a JSON object with a \"kind\", got ", text.substr(0, 60));
  }
  const std::string kind = json["kind"];
  std::unique_ptr<Tokenizer> tokenizer;
  if (kind == "bytes") tokenizer = std::make_unique<BytesTokenizer>();
  if (kind == "characters") tokenizer = characters_from(json);
  if (tokenizer == nullptr) throw input_error("tokenizer", "unknown kind \"", kind, "\"; known: ", kKinds);
  if (tokenizer->to_json() != json.dump()) {
    throw input_error("tokenizer", "the ", kind,
                      " tokenizer here was written by another version: ", text.substr(0, 60));
  }
  return tokenizer;
}

std::unique_ptr<CorpusScan> make_corpus_scan(std::string_view kind) {
  if (kind == "bytes") return make_bytes_scan();
  if (kind == "characters") return make_characters_scan();
  throw input_error("data build", "--tokenizer ", kind, " is unknown; choose one of: ", kKinds);
}

}  // namespace ashlar::data
