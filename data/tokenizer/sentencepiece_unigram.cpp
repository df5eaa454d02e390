#include "data/tokenizer/sentencepiece_unigram.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "core/base/utf8.h"

namespace ashlar::data {
namespace {

using Type = SentencePieceModelFile::Type;

constexpr float kUnknownPenalty = 10;  // an unknown character scores this much below the lowest score

std::string byte_piece(int byte) {
  char text[8];
  std::snprintf(text, sizeof(text), "<0x%02X>", byte);
  return text;
}

/// Texts with their ids.
using Entries = std::vector<std::pair<std::string_view, int32_t>>;

ByteTrie trie_of(const Entries& entries) {
  size_t bytes = 0;
  for (const auto& [text, id] : entries) bytes += text.size();
  ByteTrie trie(bytes);
  for (const auto& [text, id] : entries) trie.add(text, id);
  return trie;
}

}  // namespace

SentencePieceUnigram::SentencePieceUnigram(const SentencePieceModelFile& model)
    : byte_fallback_(model.byte_fallback),
      space_as_suffix_(model.space_as_suffix),
      dummy_prefix_(model.dummy_prefix),
      remove_extra_spaces_(model.remove_extra_spaces),
      escape_spaces_(model.escape_spaces) {
  if (model.charsmap.size() > 4) {
    const size_t size = std::min<size_t>(number_at(model.charsmap, 0), model.charsmap.size() - 4);
    for (size_t at = 4; at + 4 <= 4 + size; at += 4) rules_.push_back(number_at(model.charsmap, at));
    rule_texts_ = model.charsmap.substr(4 + size);
  }
  Entries pieces, user_defined;
  float least = std::numeric_limits<float>::max(), most = std::numeric_limits<float>::lowest();
  bytes_.fill(-1);
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const auto& piece = model.pieces[i];
    const auto id = static_cast<int32_t>(i);
    scores_.push_back(piece.score);
    if (piece.type == Type::kUnknown) unknown_ = id;
    if (piece.type == Type::kByte) {
      for (int byte = 0; byte < 256; ++byte)
        if (piece.text == byte_piece(byte)) bytes_[static_cast<size_t>(byte)] = id;
    }
    if (piece.type == Type::kNormal) {
      least = std::min(least, piece.score);
      most = std::max(most, piece.score);
    }
    if (piece.type == Type::kNormal || piece.type == Type::kUserDefined) pieces.emplace_back(piece.text, id);
    if (piece.type == Type::kUserDefined) user_defined.emplace_back(piece.text, id);
  }
  // The library's score of a user-defined symbol: its length in bytes times the highest piece score, less 0.1. The
  // score is meant to favour the symbol over other segmentations of the same text.
  for (const auto& [text, id] : user_defined)
    scores_[static_cast<size_t>(id)] = static_cast<float>(text.size()) * most - 0.1F;
  unknown_score_ = least - kUnknownPenalty;
  pieces_ = trie_of(pieces);
  user_defined_ = trie_of(user_defined);
}

/// Returns the replacement by the longest rule that matches a prefix of `text`. `taken` is the length of this prefix in
/// bytes; 0 if no rule matches.
std::string_view SentencePieceUnigram::rule_for(std::string_view text, size_t& taken) const {
  taken = 0;
  std::string_view found;
  if (rules_.empty()) return found;
  const auto offset = [](uint32_t unit) { return static_cast<size_t>(unit >> 10) << ((unit & (1U << 9)) >> 6); };
  size_t node = offset(rules_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    node ^= byte;
    if (byte == 0 || node >= rules_.size()) break;
    const uint32_t unit = rules_[node];
    if ((unit & 0x800000FFU) != byte) break;
    node ^= offset(unit);
    if (node >= rules_.size()) break;
    if (((unit >> 8) & 1U) == 0) continue;
    const size_t at = rules_[node] & 0x7FFFFFFFU;
    if (at >= rule_texts_.size()) break;
    found = std::string_view(rule_texts_).substr(at, rule_texts_.find('\0', at) - at);
    taken = i + 1;
  }
  return found;
}

/// Returns the normalized form of a prefix of `text`. The prefix is the longest user-defined symbol at the beginning of
/// `text`, which stays as it is; otherwise the match of the longest rule; otherwise one character, which stays as it
/// is. `taken` is the length of the prefix in bytes.
std::string_view SentencePieceUnigram::normal_prefix(std::string_view text, size_t& taken) const {
  size_t symbol = 0;
  int32_t node = ByteTrie::kRoot;
  for (size_t i = 0; i < text.size(); ++i) {
    node = user_defined_.child(node, static_cast<uint8_t>(text[i]));
    if (node < 0) break;
    if (user_defined_.id_at(node) >= 0) symbol = i + 1;
  }
  if (symbol > 0) {
    taken = symbol;
    return text.substr(0, symbol);
  }
  const std::string_view by_rule = rule_for(text, taken);
  if (taken > 0) return by_rule;
  taken = static_cast<size_t>(std::max(1, next_code_point(text).bytes));
  return text.substr(0, taken);
}

std::string SentencePieceUnigram::normalised(std::string_view text) const {
  const std::string_view space = escape_spaces_ ? kSpaceMark : " ";
  std::string out;
  size_t taken = 0;
  while (remove_extra_spaces_ && !text.empty() && normal_prefix(text, taken) == " ") text.remove_prefix(taken);
  if (text.empty()) return out;
  out.reserve(text.size() + text.size() / 4 + 8);
  if (!space_as_suffix_ && dummy_prefix_) out += space;
  bool after_space = remove_extra_spaces_;
  while (!text.empty()) {
    std::string_view prefix = normal_prefix(text, taken);
    text.remove_prefix(taken);
    while (after_space && prefix.starts_with(' ')) prefix.remove_prefix(1);
    if (!prefix.empty()) {
      for (const char c : prefix) {
        if (c == ' ') {
          out += space;
        } else {
          out += c;
        }
      }
      after_space = prefix.back() == ' ';
    }
    if (!remove_extra_spaces_) after_space = false;
  }
  while (remove_extra_spaces_ && out.ends_with(space)) out.resize(out.size() - space.size());
  if (space_as_suffix_ && dummy_prefix_) out += space;
  return out;
}

void SentencePieceUnigram::encode(std::string_view text, std::vector<int32_t>& ids) const {
  const std::string normal = normalised(text);
  /// The best segmentation up to a position: its score, its last piece, and the start of this piece.
  struct Best {
    float score = 0;
    int32_t id = -1;
    int64_t begin = -1;
  };
  const size_t n = normal.size();
  std::vector<Best> best(n + 1);
  for (size_t at = 0; at < n;) {
    const float here = best[at].score;
    const auto offer = [&](size_t end, float score, int32_t id) {
      const float sum = score + here;
      Best& there = best[end];
      if (there.begin == -1 || sum > there.score) there = {sum, id, static_cast<int64_t>(at)};
    };
    const auto character = static_cast<size_t>(std::max(1, next_code_point(std::string_view(normal).substr(at)).bytes));
    bool single = false;
    int32_t node = ByteTrie::kRoot;
    for (size_t end = at; end < n;) {
      node = pieces_.child(node, static_cast<uint8_t>(normal[end]));
      if (node < 0) break;
      ++end;
      const int32_t id = pieces_.id_at(node);
      if (id < 0) continue;
      offer(end, scores_[static_cast<size_t>(id)], id);
      single = single || end - at == character;
    }
    if (!single) offer(at + character, unknown_score_, unknown_);
    at += character;
  }
  const size_t first = ids.size();
  for (size_t end = n; end > 0;) {
    const Best& piece = best[end];
    const auto begin = static_cast<size_t>(piece.begin);
    if (piece.id != unknown_) {
      ids.push_back(piece.id);
    } else if (byte_fallback_) {
      for (size_t i = end; i > begin; --i) ids.push_back(bytes_[static_cast<uint8_t>(normal[i - 1])]);
    } else if (ids.size() == first || ids.back() != unknown_) {  // adjacent unknown pieces become one
      ids.push_back(unknown_);
    }
    end = begin;
  }
  std::reverse(ids.begin() + static_cast<int64_t>(first), ids.end());
}

}  // namespace ashlar::data
