#include "data/tokenizer/added_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/base/utf8.h"
#include "data/tokenizer/unicode.h"

namespace ashlar::data {
namespace {

/// Returns the start of the last character before `end`.
size_t character_before(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0U) == 0x80U) --at;
  return at;
}

bool word_before(std::string_view text, size_t at) {
  return at > 0 && is_word(next_code_point(text.substr(character_before(text, at))).value);
}
bool word_at(std::string_view text, size_t at) {
  return at < text.size() && is_word(next_code_point(text.substr(at)).value);
}

size_t skip_space_back(std::string_view text, size_t at) {
  while (at > 0) {
    const size_t before = character_before(text, at);
    if (!is_white_space(next_code_point(text.substr(before)).value)) break;
    at = before;
  }
  return at;
}
size_t skip_space(std::string_view text, size_t at) {
  while (at < text.size()) {
    const CodePoint c = next_code_point(text.substr(at));
    if (!is_white_space(c.value)) break;
    at += static_cast<size_t>(c.bytes);
  }
  return at;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Normalizer* normalizer, Vocabulary& vocabulary,
                         const std::string& where)
    : tokens_(std::move(tokens)) {
  Regex::Scratch scratch;
  const size_t count = static_cast<size_t>(vocabulary.size()) + tokens_.size();
  for (AddedToken& token : tokens_) {
    if (id_too_far(token.id, count))
      throw input_error("tokenizer", where, ": ", printable(token.content), " has the id ", token.id,
                        ", far beyond the ", count, " tokens; correct the id");
    if (!vocabulary.add(token.content, token.id)) {
      throw input_error("tokenizer", where, ": ", printable(token.content), " has the id ", token.id,
                        vocabulary.used(token.id) ? str_cat(", which is the id of ",
                                                            printable(vocabulary.token(token.id)), "; correct the file")
                                                  : ", but the vocabulary gives it another id; correct the file");
    }
    token.pattern = token.content;
    if (token.normalized && normalizer != nullptr) {
      const TextLimit limit(scratch, token.pattern.size());
      normalizer->apply(token.pattern, scratch);
    }
    if (token.pattern.size() > kMaxTokenBytes)
      throw input_error("tokenizer", where, ": ", printable(token.content), ": an added token of ",
                        token.pattern.size(), " bytes, at most ", kMaxTokenBytes, " are allowed; remove the token");
  }
  by_id_.assign(static_cast<size_t>(vocabulary.size()), -1);
  for (size_t i = 0; i < tokens_.size(); ++i) by_id_[static_cast<size_t>(tokens_[i].id)] = static_cast<int32_t>(i);
  make_finders();
}

void AddedTokens::make_finders() {
  size_t bytes[2] = {0, 0};
  for (const AddedToken& token : tokens_) bytes[token.normalized ? 1 : 0] += token.pattern.size();
  for (size_t kind : {size_t{0}, size_t{1}}) finders_[kind].tokens = ByteTrie(bytes[kind]);
  // Of several tokens with the same pattern, the first is used. A trie keeps the token that is added last, so tokens
  // are added in reverse order.
  for (size_t i = tokens_.size(); i > 0; --i) {
    const AddedToken& token = tokens_[i - 1];
    if (token.pattern.empty()) continue;
    Finder& finder = finders_[token.normalized ? 1 : 0];
    finder.begins[static_cast<uint8_t>(token.pattern[0])] = true;
    finder.any = true;
    finder.tokens.add(token.pattern, static_cast<int32_t>(i - 1));
  }
}

const AddedToken* AddedTokens::find(int32_t id) const {
  if (id < 0 || static_cast<size_t>(id) >= by_id_.size() || by_id_[static_cast<size_t>(id)] < 0) return nullptr;
  return &tokens_[static_cast<size_t>(by_id_[static_cast<size_t>(id)])];
}

void AddedTokens::make_special(int32_t id) {
  const AddedToken* const token = find(id);
  if (token != nullptr) tokens_[static_cast<size_t>(token - tokens_.data())].special = true;
}

void AddedTokens::split(std::string_view text, bool normalized, std::vector<Segment>& segments,
                        std::vector<SpecialSpelling>* as_text) const {
  const Finder& finder = finders_[normalized ? 1 : 0];
  const auto span = [](size_t begin, size_t end) {
    return Span{static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
  };
  size_t done = 0;
  if (finder.any) {
    for (size_t at = 0; at < text.size();) {
      if (!finder.begins[static_cast<uint8_t>(text[at])]) {
        ++at;
        continue;
      }
      const AddedToken* found = nullptr;  // the longest match
      int32_t node = ByteTrie::kRoot;
      for (size_t i = at; i < text.size(); ++i) {
        node = finder.tokens.child(node, static_cast<uint8_t>(text[i]));
        if (node < 0) break;
        if (const int32_t token = finder.tokens.id_at(node); token >= 0) found = &tokens_[static_cast<size_t>(token)];
      }
      if (found == nullptr) {
        ++at;
        continue;
      }
      size_t begin = at, end = at + found->pattern.size();
      at = end;
      if (as_text != nullptr && found->special) {
        as_text->push_back({begin, found->id});
        continue;
      }
      if (found->single_word && (word_before(text, begin) || word_at(text, end))) continue;
      if (found->lstrip) begin = std::max(skip_space_back(text, begin), done);
      if (found->rstrip) end = skip_space(text, end);
      if (done < begin) segments.push_back({span(done, begin), -1});
      // A match is empty if its text already belongs to the previous token because of rstrip. An empty match is
      // dropped, as in the `tokenizers` library.
      if (begin < end) segments.push_back({span(begin, end), found->id});
      done = end;
    }
  }
  if (done < text.size()) segments.push_back({span(done, text.size()), -1});
}

nlohmann::ordered_json json_of(const AddedToken& token) {
  return {{"id", token.id},          {"content", token.content}, {"single_word", token.single_word},
          {"lstrip", token.lstrip},  {"rstrip", token.rstrip},   {"normalized", token.normalized},
          {"special", token.special}};
}

std::vector<AddedToken> read_added_tokens(Fields& all) {
  std::vector<AddedToken> tokens;
  if (!all.has("added_tokens")) return tokens;
  for (size_t i = 0; i < all.length("added_tokens"); ++i) {
    Fields fields = all.element("added_tokens", i);
    AddedToken token;
    token.id = static_cast<int32_t>(fields.integer("id", -1, 0, kMaxTokenId));
    if (token.id < 0) throw fields.error("id", "expected a number; correct the file");
    token.content = fields.text("content");
    token.special = fields.boolean("special", false);
    token.normalized = fields.boolean("normalized", !token.special);
    token.single_word = fields.boolean("single_word", false);
    token.lstrip = fields.boolean("lstrip", false);
    token.rstrip = fields.boolean("rstrip", false);
    fields.finish();
    if (!token.content.empty()) tokens.push_back(std::move(token));
  }
  return tokens;
}

}  // namespace ashlar::data
