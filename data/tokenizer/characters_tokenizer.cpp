#include "data/tokenizer/characters_tokenizer.h"

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "data/tokenizer/tokenizer_json.h"

namespace ashlar::data {
namespace {

TextError invalid_utf8(std::string_view text, size_t offset) {
  const auto byte = static_cast<uint8_t>(text[offset]);
  return TextError{offset, str_cat("invalid UTF-8 byte 0x", absl::Hex(byte, absl::kZeroPad2))};
}

class CharactersScan final : public CorpusScan {
 public:
  CharactersScan() : seen_(kLastCodePoint + 1, 0) {}

  SplitPoints split_points() const override { return SplitPoints::kCodePoint; }
  bool one_token_per_byte() const override { return false; }

  int64_t add(std::string_view text) override {
    int64_t count = 0;
    for (size_t at = 0; at < text.size(); ++count) {
      const CodePoint c = next_code_point(text.substr(at));
      if (c.bytes == 0) throw invalid_utf8(text, at);
      seen_[c.value] = 1;
      at += static_cast<size_t>(c.bytes);
    }
    return count;
  }

  void merge(const CorpusScan& other) override {
    const auto& theirs = dynamic_cast<const CharactersScan&>(other).seen_;
    for (size_t i = 0; i < seen_.size(); ++i) seen_[i] = static_cast<uint8_t>(seen_[i] | theirs[i]);
  }

  std::unique_ptr<Tokenizer> finish() const override {
    std::vector<char32_t> vocabulary;
    for (size_t c = 0; c < seen_.size(); ++c) {
      if (seen_[c] != 0) vocabulary.push_back(static_cast<char32_t>(c));
    }
    return std::make_unique<CharactersTokenizer>(std::move(vocabulary));
  }

 private:
  std::vector<uint8_t> seen_;  ///< indexed by code point
};

}  // namespace

CharactersTokenizer::CharactersTokenizer(std::vector<char32_t> vocabulary) : vocabulary_(std::move(vocabulary)) {
  for (size_t i = 0; i < vocabulary_.size(); ++i) {
    ASHLAR_CHECK(vocabulary_[i] <= kLastCodePoint && (i == 0 || vocabulary_[i - 1] < vocabulary_[i]), "entry ", i);
  }
  id_of_.assign(vocabulary_.empty() ? 0 : size_t{vocabulary_.back()} + 1, -1);
  for (size_t i = 0; i < vocabulary_.size(); ++i) id_of_[vocabulary_[i]] = static_cast<int32_t>(i);
}

void CharactersTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  ids.reserve(ids.size() + text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = next_code_point(text.substr(at));
    if (c.bytes == 0) throw invalid_utf8(text, at);
    const int32_t id = c.value < id_of_.size() ? id_of_[c.value] : -1;
    if (id < 0) {
      throw TextError{at, str_cat("U+", absl::Hex(static_cast<uint32_t>(c.value), absl::kZeroPad4),
                                  " is not among the ", vocabulary_.size(), " characters of the vocabulary")};
    }
    ids.push_back(id);
    at += static_cast<size_t>(c.bytes);
  }
}

std::string CharactersTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) {
    if (id < 0 || id > eod_id()) {
      throw input_error("tokenizer", "id ", id, " is outside the vocabulary of ", vocab_size(), " (characters)");
    }
    if (id != eod_id()) append_utf8(vocabulary_[id], text);
  }
  return text;
}

std::string CharactersTokenizer::to_json() const {
  nlohmann::json json;
  json["kind"] = identity();
  json["vocab_size"] = vocab_size();
  json["eod_id"] = eod_id();
  nlohmann::json& points = json["code_points"] = nlohmann::json::array();
  for (const char32_t c : vocabulary_) points.push_back(static_cast<uint32_t>(c));
  return json.dump();
}

std::string CharactersTokenizer::tokenizer_json_text() const {
  OrderedJson parts = {{"added_tokens", OrderedJson::array()}};
  OrderedJson vocab = OrderedJson::object();
  for (size_t id = 0; id < vocabulary_.size(); ++id) {
    std::string character;
    append_utf8(vocabulary_[id], character);
    add_token(vocab, character, static_cast<int64_t>(id));
  }
  add_token(vocab, std::string(kEndOfText), eod_id());
  parts["added_tokens"].push_back(added_token_json(std::string(kEndOfText), eod_id()));
  parts["decoder"] = {{"type", "Fuse"}};
  parts["model"] = bpe_model_json({{"vocab", std::move(vocab)}});
  return tokenizer_json_of_parts(parts);
}

std::unique_ptr<CorpusScan> make_characters_scan() { return std::make_unique<CharactersScan>(); }

}  // namespace ashlar::data
