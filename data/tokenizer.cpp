#include "data/tokenizer.h"

#include <algorithm>
#include <iterator>
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

/// One line a kind: as typed after --tokenizer, from its JSON, from a corpus.
struct Kind {
  std::string_view name;
  std::unique_ptr<Tokenizer> (*from_json)(const nlohmann::json&);
  std::unique_ptr<CorpusScan> (*scan)();
};
constexpr Kind kKinds[] = {
    {"bytes", [](const nlohmann::json&) -> std::unique_ptr<Tokenizer> { return std::make_unique<BytesTokenizer>(); },
     make_bytes_scan},
    {"characters", characters_from, make_characters_scan},
};

const Kind* find_kind(std::string_view name) {
  const auto* const at =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& kind) { return kind.name == name; });
  return at == std::end(kKinds) ? nullptr : at;
}

std::string known_kinds() {
  std::string text;
  for (const Kind& kind : kKinds) text += str_cat(text.empty() ? "" : ", ", kind.name);
  return text;
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
  const std::string name = json["kind"];
  const Kind* const kind = find_kind(name);
  if (kind == nullptr) throw input_error("tokenizer", "unknown kind \"", name, "\"; known: ", known_kinds());
  std::unique_ptr<Tokenizer> tokenizer = kind->from_json(json);
  if (tokenizer->to_json() != json.dump()) {
    throw input_error("tokenizer", "the ", name,
                      " tokenizer here was written by another version: ", text.substr(0, 60));
  }
  return tokenizer;
}

std::unique_ptr<CorpusScan> make_corpus_scan(std::string_view name) {
  if (const Kind* const kind = find_kind(name)) return kind->scan();
  throw input_error("data build", "--tokenizer ", name, " is unknown; choose one of: ", known_kinds());
}

}  // namespace ashlar::data
