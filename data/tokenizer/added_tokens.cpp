#include "data/tokenizer/added_tokens.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "data/tokenizer/unicode.h"

namespace ashlar::data {
namespace {

constexpr int64_t kMaxId = (int64_t{1} << 24) - 1;

/// Where the last character before `end` begins.
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
  for (AddedToken& token : tokens_) {
    if (!vocabulary.add(token.content, token.id)) {
      throw input_error("tokenizer", where, ": \"", token.content, "\" has the id ", token.id,
                        vocabulary.used(token.id) ? str_cat(", which is that of \"", vocabulary.token(token.id), "\"")
                                                  : ", in the vocabulary another one");
    }
    token.pattern = token.content;
    if (token.normalized && normalizer != nullptr) normalizer->apply(token.pattern, scratch);
  }
  by_id_.assign(static_cast<size_t>(vocabulary.size()), -1);
  for (Finder& finder : finders_) finder.list_of.fill(-1);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    by_id_[static_cast<size_t>(token.id)] = static_cast<int32_t>(i);
    if (token.pattern.empty()) continue;
    Finder& finder = finders_[token.normalized ? 1 : 0];
    int16_t& list = finder.list_of[static_cast<uint8_t>(token.pattern[0])];
    if (list < 0) {
      list = static_cast<int16_t>(finder.lists.size());
      finder.lists.emplace_back();
    }
    finder.lists[static_cast<size_t>(list)].push_back(&token);
  }
  for (Finder& finder : finders_) {
    for (auto& list : finder.lists) {
      std::stable_sort(list.begin(), list.end(),
                       [](const AddedToken* a, const AddedToken* b) { return a->pattern.size() > b->pattern.size(); });
    }
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

void AddedTokens::cut(std::string_view text, bool normalized, std::vector<Segment>& segments,
                      std::vector<SpecialSpelling>* as_text) const {
  const Finder& finder = finders_[normalized ? 1 : 0];
  const auto span = [](size_t begin, size_t end) {
    return Span{static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
  };
  size_t done = 0;
  if (!finder.lists.empty()) {
    for (size_t at = 0; at < text.size();) {
      const int16_t list = finder.list_of[static_cast<uint8_t>(text[at])];
      const AddedToken* found = nullptr;
      if (list >= 0) {
        for (const AddedToken* token : finder.lists[static_cast<size_t>(list)]) {
          if (text.substr(at).starts_with(token->pattern)) {
            found = token;
            break;
          }
        }
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
      // As the reference does: of what an earlier rstrip took nothing may be left for it.
      if (begin < end) segments.push_back({span(begin, end), found->id});
      done = end;
    }
  }
  if (done < text.size()) segments.push_back({span(done, text.size()), -1});
}

std::vector<AddedToken> read_added_tokens(Fields& all) {
  std::vector<AddedToken> tokens;
  if (!all.has("added_tokens")) return tokens;
  for (size_t i = 0; i < all.length("added_tokens"); ++i) {
    Fields fields = all.element("added_tokens", i);
    AddedToken token;
    token.id = static_cast<int32_t>(fields.integer("id", -1, 0, kMaxId));
    if (token.id < 0) throw fields.error("id", "expected a number");
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
