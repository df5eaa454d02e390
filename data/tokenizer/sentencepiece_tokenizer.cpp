#include "data/tokenizer/sentencepiece_tokenizer.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.h"
#include "core/io/json.h"
#include "data/tokenizer/pipeline_tokenizer.h"
#include "data/tokenizer/sentencepiece_json.h"
#include "data/tokenizer/sentencepiece_library.h"
#include "data/tokenizer/sentencepiece_model.h"
#include "data/tokenizer/sentencepiece_unigram.h"

namespace ashlar::data {
namespace {

constexpr std::string_view kSpace = "\xe2\x96\x81";  // U+2581, how pieces write a space
constexpr size_t kLongText = size_t{1} << 20;

bool ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

class SentencePieceTokenizer final : public FormTokenizer {
 public:
  SentencePieceTokenizer(const std::string& model, const std::string& shown) {
    const std::string wrong = library_.load(model);
    if (!wrong.empty()) throw input_error("tokenizer", shown, " is no SentencePiece model; its library says: ", wrong);
    std::optional<SentencePieceModelFile> file = parse_sentencepiece_model(model);
    if (!file) throw input_error("tokenizer", shown, " is no SentencePiece model: it is cut off or something else");
    file_ = std::move(*file);
    if (file_.unigram) unigram_.emplace(file_);
    cuttable_ = may_be_cut();
    for (const std::string& token : special_tokens()) {
      if (token.empty()) continue;
      special_.emplace_back(token, library_.id_of(token));
      begins_special_[static_cast<uint8_t>(token[0])] = true;
    }
    std::stable_sort(special_.begin(), special_.end(),
                     [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  }

  std::string identity() const override { return "SentencePiece"; }
  std::string form() const override { return "SentencePiece"; }
  int32_t vocab_size() const override { return library_.size(); }
  std::string token(int32_t id) const override {
    return id >= 0 && id < vocab_size() && !library_.is_unused(id) ? library_.piece(id) : "";
  }
  std::optional<int32_t> id_of(std::string_view token) const override {
    const int id = library_.id_of(token);
    if (library_.piece(id) != token) return std::nullopt;
    return id;
  }
  std::vector<std::string> special_tokens() const override {
    std::vector<std::string> tokens;
    for (int id = 0; id < vocab_size(); ++id)
      if (library_.is_control(id) || library_.is_unknown(id)) tokens.push_back(library_.piece(id));
    return tokens;
  }
  std::string tokenizer_json_text() const override {
    const auto [before, after] = around();
    return tokenizer_json_of_sentencepiece(file_, before, after);
  }

  using FormTokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  std::optional<size_t> joint(std::string_view window, size_t at) const override {
    const bool word = cuttable_ && at > 0 && at + 1 < window.size() && window[at] == ' ' &&
                      ascii_letter(window[at - 1]) && ascii_letter(window[at + 1]);
    return word ? std::optional<size_t>(1) : std::nullopt;
  }
  /// The library never takes a text for a special token.
  void encode_as_text(std::string_view text, std::vector<int32_t>& ids,
                      std::vector<SpecialSpelling>& found) const override {
    encode(text, ids);
    find_spellings(text, found);
  }
  void encode_with_template(std::string_view text, std::vector<int32_t>& ids) const override {
    const auto [before, after] = around();
    ids.insert(ids.end(), before.begin(), before.end());
    encode(text, ids);
    ids.insert(ids.end(), after.begin(), after.end());
  }
  std::string decode(std::span<const int32_t> ids) const override;

 private:
  void find_spellings(std::string_view text, std::vector<SpecialSpelling>& found) const;
  std::pair<std::vector<int32_t>, std::vector<int32_t>> around() const;
  bool may_be_cut() const;
  void encode_part(std::string_view text, std::vector<int32_t>& ids) const;

  SentencePieceModelFile file_;
  SentencePieceLibrary library_;
  std::optional<SentencePieceUnigram> unigram_;  ///< encodes instead of the library
  bool cuttable_ = false;
  std::vector<std::pair<std::string, int32_t>> special_;  ///< spellings, the longest first
  std::array<bool, 256> begins_special_{};                ///< by the first byte
};

/// What a model is given before and after a text: a .model does not say, the tokenizer_config.json beside it does.
std::pair<std::vector<int32_t>, std::vector<int32_t>> SentencePieceTokenizer::around() const {
  const std::string* const text = source().find("tokenizer_config.json");
  if (text == nullptr) return {};
  const auto config = io::parse_json(*text);  // keep() has read it
  // The class of Llama adds bos where nobody says otherwise.
  const bool llama = config.value("tokenizer_class", nlohmann::json()) == "LlamaTokenizer" ||
                     config.value("tokenizer_class", nlohmann::json()) == "LlamaTokenizerFast";
  const auto side = [&](const char* key, bool usual, const std::optional<int32_t>& id) {
    const bool added = config.value(key, nlohmann::json(usual)) == nlohmann::json(true);
    return added && id ? std::vector<int32_t>{*id} : std::vector<int32_t>();
  };
  return {side("add_bos_token", llama, bos_id()), side("add_eos_token", false, eos_id())};
}

/// Whether a text may be cut at a single space between letters, when that space is left out: words begin with U+2581,
/// which the library puts before each text, and no piece has it behind another character.
bool SentencePieceTokenizer::may_be_cut() const {
  std::vector<int32_t> first;
  if (!library_.encode("a", first).empty() || first.empty() || !library_.piece(first[0]).starts_with(kSpace))
    return false;
  for (int id = 0; id < vocab_size(); ++id) {
    if (library_.is_control(id) || library_.is_unknown(id)) continue;
    const std::string piece = library_.piece(id);
    size_t at = 0;
    while (std::string_view(piece).substr(at).starts_with(kSpace)) at += kSpace.size();
    if (piece.find(kSpace, at) != std::string::npos) return false;
  }
  return true;
}

void SentencePieceTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  check_text(text);
  // The library takes some 50 bytes of memory for each of a text, and more than twice the time for twice of it.
  while (cuttable_ && text.size() > kLongText) {
    size_t cut = kLongText;
    const auto good = [&] { return text[cut] == ' ' && ascii_letter(text[cut - 1]) && ascii_letter(text[cut + 1]); };
    while (cut + 1 < text.size() && !good()) ++cut;
    if (cut + 1 >= text.size()) break;
    encode_part(text.substr(0, cut), ids);
    text.remove_prefix(cut + 1);
  }
  encode_part(text, ids);
}

void SentencePieceTokenizer::encode_part(std::string_view text, std::vector<int32_t>& ids) const {
  if (unigram_) {
    unigram_->encode(text, ids);
    return;
  }
  const std::string wrong = library_.encode(text, ids);
  ASHLAR_CHECK(wrong.empty(), "SentencePiece: ", wrong);
}

void SentencePieceTokenizer::find_spellings(std::string_view text, std::vector<SpecialSpelling>& found) const {
  for (size_t at = 0; at < text.size(); ++at) {
    if (!begins_special_[static_cast<uint8_t>(text[at])]) continue;
    const auto token = std::find_if(special_.begin(), special_.end(),
                                    [&](const auto& one) { return text.substr(at).starts_with(one.first); });
    if (token == special_.end()) continue;
    found.push_back({at, token->second});
    at += token->first.size() - 1;
  }
}

std::string SentencePieceTokenizer::decode(std::span<const int32_t> ids) const {
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size()) {
      throw input_error("tokenizer", "id ", id, " is outside the vocabulary of ", vocab_size(), " (SentencePiece)");
    }
  }
  std::string text;
  const std::string wrong = library_.decode(ids, text);
  ASHLAR_CHECK(wrong.empty(), "SentencePiece: ", wrong);
  return text;
}

}  // namespace

bool holds_sentencepiece(const TokenizerFiles& files) {
  const std::string* const model = files.find_ending(".model");
  // Field 1 of the message: the first piece.
  return model != nullptr && model->starts_with('\n');
}

std::unique_ptr<FormTokenizer> open_sentencepiece(const TokenizerFiles& files) {
  std::string name;
  const std::string* const model = files.find_ending(".model", &name);
  return std::make_unique<SentencePieceTokenizer>(*model,
                                                  files.shown == name ? name : str_cat(files.shown, ": ", name));
}

}  // namespace ashlar::data
