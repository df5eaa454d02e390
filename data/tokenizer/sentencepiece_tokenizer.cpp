#include "data/tokenizer/sentencepiece_tokenizer.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/io/json.h"
#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/folder_tokens.h"
#include "data/tokenizer/pipeline_tokenizer.h"
#include "data/tokenizer/sentencepiece_json.h"
#include "data/tokenizer/sentencepiece_library.h"
#include "data/tokenizer/sentencepiece_model.h"
#include "data/tokenizer/sentencepiece_unigram.h"
#include "data/tokenizer/tokenizer_classes.h"

namespace ashlar::data {
namespace {

constexpr size_t kPieceText = size_t{1} << 20;

bool ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

class SentencePieceTokenizer final : public FormTokenizer {
 public:
  SentencePieceTokenizer(const std::string& model, SentencePieceModelFile file, const std::string& shown)
      : file_(std::move(file)) {
    const std::string wrong = library_.load(model);
    if (!wrong.empty())
      throw input_error("tokenizer", shown,
                        " is not a SentencePiece model; download it again (the library reports: ", escaped(wrong), ")");
    if (library_.size() != static_cast<int32_t>(file_.pieces.size()))
      throw input_error("tokenizer", shown, " has ", file_.pieces.size(),
                        " pieces, but the SentencePiece library reports ", library_.size(),
                        "; download the file again");
    if (file_.unigram) unigram_.emplace(file_);
    splittable_ = is_splittable();
    for (const std::string& token : special_tokens()) add_special(token, library_.id_of(token));
    sort_special();
  }

  /// Stores the tokens that are matched in a text before the library encodes the rest.
  void set_added_tokens(std::vector<AddedToken> tokens, const std::string& where) {
    for (const AddedToken& token : tokens) vocabulary_size_ = std::max(vocabulary_size_, token.id + 1);
    for (size_t i = 0; i < file_.pieces.size(); ++i) vocabulary_.add(file_.pieces[i].text, static_cast<int32_t>(i));
    added_ = std::make_unique<AddedTokens>(std::move(tokens), nullptr, vocabulary_, where);
    for (const AddedToken& token : added_->all())
      if (token.special) add_special(token.content, token.id);
    sort_special();
    rules_matter();
  }

  std::string identity() const override { return "SentencePiece"; }
  std::string form() const override { return "SentencePiece"; }
  int32_t vocab_size() const override { return std::max(library_.size(), vocabulary_size_); }
  std::string token(int32_t id) const override {
    if (const AddedToken* const added = behind(id)) return added->content;
    return id >= 0 && id < library_.size() && !library_.is_unused(id) ? library_.piece(id) : "";
  }
  std::optional<int32_t> id_of(std::string_view token) const override {
    if (added_) {
      for (const AddedToken& added : added_->all()) {
        if (added.content == token) return added.id;
      }
    }
    const int id = library_.id_of(token);
    if (library_.piece(id) != token) return std::nullopt;
    return id;
  }
  std::vector<std::string> special_tokens() const override {
    std::vector<std::string> tokens;
    for (int id = 0; id < library_.size(); ++id)
      if (library_.is_control(id) || library_.is_unknown(id)) tokens.push_back(library_.piece(id));
    if (!added_) return tokens;
    for (const AddedToken& added : added_->all()) {
      if (added.special && std::find(tokens.begin(), tokens.end(), added.content) == tokens.end())
        tokens.push_back(added.content);
    }
    return tokens;
  }
  std::string tokenizer_json_text() const override {
    const auto [before, after] = around();
    return tokenizer_json_of_sentencepiece(file_, before, after,
                                           added_ ? std::span(added_->all()) : std::span<const AddedToken>());
  }

  using FormTokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  std::optional<size_t> joint(std::string_view window, size_t at) const override {
    if (added_) {
      std::vector<Segment> segments;
      for (const bool normalized : {false, true}) {
        segments.clear();
        added_->split(window, normalized, segments);
        if (segments.size() != 1 || segments[0].id >= 0) return std::nullopt;
      }
    }
    const bool word = splittable_ && at > 0 && at + 1 < window.size() && window[at] == ' ' &&
                      ascii_letter(window[at - 1]) && ascii_letter(window[at + 1]);
    return word ? std::optional<size_t>(1) : std::nullopt;
  }
  /// The library never reads text as a special token, so only added tokens need the argument `special_as_text`.
  void encode_as_text(std::string_view text, std::vector<int32_t>& ids,
                      std::vector<SpecialSpelling>& found) const override {
    encode_all(text, ids, true);
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
  void encode_all(std::string_view text, std::vector<int32_t>& ids, bool special_as_text) const;
  void add_special(const std::string& token, int32_t id) {
    if (token.empty()) return;
    special_.emplace_back(token, id);
    begins_special_[static_cast<uint8_t>(token[0])] = true;
  }
  void sort_special() {
    std::stable_sort(special_.begin(), special_.end(),
                     [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  }
  void treat_as_special(int32_t id) override {
    if (added_ == nullptr || added_->find(id) == nullptr || added_->find(id)->special) return;
    added_->make_special(id);
    add_special(added_->find(id)->content, id);
    sort_special();
  }
  std::pair<std::vector<int32_t>, std::vector<int32_t>> around() const;
  bool is_splittable() const;
  void encode_plain(std::string_view text, std::vector<int32_t>& ids) const;
  void encode_part(std::string_view text, std::vector<int32_t>& ids) const;
  void decode_pieces(std::span<const int32_t> ids, std::string& text) const;
  /// Returns the added token with this id if it is not a piece of the model; null for any other id.
  const AddedToken* behind(int32_t id) const { return added_ && id >= library_.size() ? added_->find(id) : nullptr; }

  SentencePieceModelFile file_;
  SentencePieceLibrary library_;
  std::optional<SentencePieceUnigram> unigram_;  ///< if set, encodes instead of the library
  bool splittable_ = false;
  std::vector<std::pair<std::string, int32_t>> special_;  ///< spellings, the longest first
  std::array<bool, 256> begins_special_{};                ///< true for bytes that begin a special token
  int32_t vocabulary_size_ = 0;
  Vocabulary vocabulary_;
  std::unique_ptr<AddedTokens> added_;  ///< null if there are no added tokens
};

/// Returns the ids that the template adds before and after a text. The template is not in the .model but in
/// tokenizer_config.json in the same folder.
std::pair<std::vector<int32_t>, std::vector<int32_t>> SentencePieceTokenizer::around() const {
  const std::string* const text = source().find("tokenizer_config.json");
  if (text == nullptr) return {};
  const auto config = io::parse_json(*text);  // FormTokenizer::keep has validated the JSON
  // The class LlamaTokenizer adds bos unless tokenizer_config.json says otherwise.
  const bool llama = config.value("tokenizer_class", nlohmann::json()) == "LlamaTokenizer" ||
                     config.value("tokenizer_class", nlohmann::json()) == "LlamaTokenizerFast";
  const auto side = [&](const char* key, bool usual, const std::optional<int32_t>& id) {
    const bool added = config.value(key, nlohmann::json(usual)) == nlohmann::json(true);
    return added && id ? std::vector<int32_t>{*id} : std::vector<int32_t>();
  };
  return {side("add_bos_token", llama, bos_id()), side("add_eos_token", false, eos_id())};
}

/// True if a text may be split at a single space between letters, and the space dropped. This requires that the library
/// adds U+2581 (a space) before each text, and that no piece has U+2581 after another character.
bool SentencePieceTokenizer::is_splittable() const {
  std::vector<int32_t> first;
  if (!library_.encode("a", first).empty() || first.empty() || !library_.piece(first[0]).starts_with(kSpaceMark))
    return false;
  for (int id = 0; id < library_.size(); ++id) {
    if (library_.is_control(id) || library_.is_unknown(id)) continue;
    if (has_mark_inside(library_.piece(id))) return false;
  }
  return true;
}

void SentencePieceTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  encode_all(text, ids, false);
}

void SentencePieceTokenizer::encode_all(std::string_view text, std::vector<int32_t>& ids, bool special_as_text) const {
  check_text(text);
  if (!added_) return encode_plain(text, ids);
  std::vector<SpecialSpelling> left;  // special tokens that stay text
  std::vector<SpecialSpelling>* const as_text = special_as_text ? &left : nullptr;
  // There is no separate normalizer, so all added tokens are matched in the original text: first the tokens whose flag
  // `normalized` is false, then the other tokens.
  std::vector<Segment> outer, inner;
  added_->split(text, false, outer, as_text);
  for (const Segment& s : outer) {
    if (s.id >= 0) {
      ids.push_back(s.id);
      continue;
    }
    const std::string_view part = text.substr(s.span.begin, s.span.end - s.span.begin);
    inner.clear();
    added_->split(part, true, inner, as_text);
    for (const Segment& t : inner) {
      if (t.id >= 0) {
        ids.push_back(t.id);
      } else {
        encode_plain(part.substr(t.span.begin, t.span.end - t.span.begin), ids);
      }
    }
  }
}

void SentencePieceTokenizer::encode_plain(std::string_view text, std::vector<int32_t>& ids) const {
  // A long text is split, since the library uses about 50 bytes of memory per byte of text, and its time grows faster
  // than linearly.
  while (splittable_ && text.size() > kPieceText) {
    size_t split = kPieceText;
    const auto good = [&] {
      return text[split] == ' ' && ascii_letter(text[split - 1]) && ascii_letter(text[split + 1]);
    };
    while (split + 1 < text.size() && !good()) ++split;
    if (split + 1 >= text.size()) break;
    encode_part(text.substr(0, split), ids);
    text.remove_prefix(split + 1);
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
  for (size_t begin = 0; begin < ids.size();) {
    if (const AddedToken* const added = behind(ids[begin])) {
      text += added->content;
      ++begin;
      continue;
    }
    size_t end = begin;
    while (end < ids.size() && behind(ids[end]) == nullptr) ++end;
    decode_pieces(ids.subspan(begin, end - begin), text);
    begin = end;
  }
  return text;
}

/// Appends the text of ids that are pieces of the model. The library drops the space before the first word of these
/// ids. If `text` is not empty, this word is not the first of the whole text, so the space is added again.
void SentencePieceTokenizer::decode_pieces(std::span<const int32_t> ids, std::string& text) const {
  std::string part;
  const std::string wrong = library_.decode(ids, part);
  ASHLAR_CHECK(wrong.empty(), "SentencePiece: ", wrong);
  if (!text.empty() && file_.dummy_prefix && library_.piece(ids[0]).starts_with(kSpaceMark)) text += ' ';
  text += part;
}

/// Throws an input error if the class LlamaTokenizer would give other ids than the SentencePiece library. The class
/// ignores the normalization of a model. With `"legacy": false` or `"add_prefix_space": false`, its slow and fast
/// variants treat leading spaces differently.
void check_llama(const SentencePieceModelFile& file, const TokenizerFiles& files) {
  const auto config = object_in(files, "tokenizer_config.json");
  for (const char* key : {"legacy", "add_prefix_space"}) {
    if (config.value(key, nlohmann::json()) == nlohmann::json(false))
      throw input_error(
          "tokenizer", files.shown, ": tokenizer_config.json: the tokenizer class LlamaTokenizer with \"", key,
          "\": false is not supported for a SentencePiece model: the slow and the fast class of ",
          "transformers give different ids to a text that begins with a space; use the tokenizer.json instead");
  }
  if (file.unigram || file.charsmap.size() > 4 || file.remove_extra_spaces || !file.escape_spaces || !file.dummy_prefix)
    throw input_error("tokenizer", files.shown,
                      ": the tokenizer class LlamaTokenizer is not supported for a SentencePiece model that is not BPE "
                      "or that normalises texts (charsmap, remove_extra_whitespaces, add_dummy_prefix): ",
                      "transformers gives other ids than the SentencePiece library; use the tokenizer.json instead");
}

}  // namespace

bool holds_sentencepiece(const TokenizerFiles& files) {
  const std::string* const model = files.find_ending(".model");
  // A model begins with field 1 of the message, the first piece. Its first byte is 0x0A, a line feed.
  return model != nullptr && model->starts_with('\n');
}

std::unique_ptr<FormTokenizer> open_sentencepiece(const TokenizerFiles& files) {
  std::string name;
  const std::string* const model = files.find_ending(".model", &name);
  const std::string shown = files.shown == name ? name : str_cat(files.shown, ": ", name);
  std::optional<SentencePieceModelFile> file = parse_sentencepiece_model(*model);
  if (!file) throw input_error("tokenizer", shown, " is not a SentencePiece model, or is truncated; download it again");
  check_sentencepiece_model(*file, shown);
  if (files.rules == 1) return std::make_unique<SentencePieceTokenizer>(*model, std::move(*file), shown);
  const TokenizerClass own = class_for_model(files);
  std::vector<AddedToken> added;
  ModelTokens ids{.count = static_cast<int64_t>(file->pieces.size()), .id_of = nullptr};
  absl::flat_hash_map<std::string, int32_t> by_text;
  for (size_t i = 0; i < file->pieces.size(); ++i) by_text.emplace(file->pieces[i].text, static_cast<int32_t>(i));
  ids.id_of = [&](const std::string& token) -> std::optional<int32_t> {
    const auto at = by_text.find(token);
    if (at == by_text.end()) return std::nullopt;
    return at->second;
  };
  add_folder_tokens(files, own.usual, ids, added);
  for (const AddedToken& token : added) {
    if (token.single_word)
      throw input_error(
          "tokenizer", files.shown, ": tokenizer_config.json: the added token ", printable(token.content),
          " with \"single_word\": true is not supported for a SentencePiece model: the slow and the fast ",
          "class of transformers differ in what a word is; use the tokenizer.json instead");
  }
  if (own.name == "LlamaTokenizer") {
    check_llama(*file, files);
  }
  auto made = std::make_unique<SentencePieceTokenizer>(*model, std::move(*file), shown);
  if (!added.empty()) made->set_added_tokens(std::move(added), shown);
  return made;
}

}  // namespace ashlar::data
