#include <xxhash.h>

#include <algorithm>

#include "core/base/utf8.h"
#include "data/tokenizer/model.h"

namespace ashlar::data {
namespace {

constexpr double kUnknownTokenPenalty = 10;  // an unknown character scores this much below the lowest score

}  // namespace

UnigramModel::UnigramModel(const Vocabulary& vocabulary, const std::vector<double>& scores, Options options)
    : vocabulary_(vocabulary), options_(options), scores_(scores), byte_ids_(vocabulary.byte_tokens()) {
  unknown_score_ = *std::min_element(scores_.begin(), scores_.end()) - kUnknownTokenPenalty;
  size_t bytes = 0;
  for (int32_t id = 0; id < vocabulary_.size(); ++id) bytes += vocabulary_.token(id).size();
  tokens_ = ByteTrie(bytes);
  for (int32_t id = 0; id < vocabulary_.size(); ++id) tokens_.add(vocabulary_.token(id), id);
}

void UnigramModel::put_unknown(std::string_view text, std::vector<int32_t>& ids) const {
  // Adjacent unknown characters may together spell a token that the best segmentation does not use.
  if (const auto id = vocabulary_.find(text)) {
    ids.push_back(*id);
    return;
  }
  const auto has = [&](char c) { return byte_ids_[static_cast<uint8_t>(c)] >= 0; };
  if (options_.byte_fallback && std::all_of(text.begin(), text.end(), has)) {
    for (const char c : text) ids.push_back(byte_ids_[static_cast<uint8_t>(c)]);
    return;
  }
  ids.push_back(options_.unk);
}

void UnigramModel::encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const {
  const bool cached = piece.size() <= WordCache::kMaxBytes;
  const uint64_t hash = cached ? XXH3_64bits(piece.data(), piece.size()) : 0;
  if (cached && scratch.cache.find(piece, hash, ids)) return;
  constexpr uint32_t kNone = ~uint32_t{0};
  // Three arrays of `scratch` describe the best segmentation up to each byte: its score (scores), its last token
  // (symbols), and the start of this token (ranks).
  const size_t n = piece.size();
  scratch.scores.assign(n + 1, 0);
  scratch.symbols.assign(n + 1, -1);
  scratch.ranks.assign(n + 1, kNone);
  const auto offer = [&](size_t end, double score, int32_t id, size_t begin) {
    if (scratch.ranks[end] != kNone && !(score > scratch.scores[end])) return;
    scratch.scores[end] = score;
    scratch.symbols[end] = id;
    scratch.ranks[end] = static_cast<uint32_t>(begin);
  };
  for (size_t begin = 0; begin < n;) {
    const auto length = static_cast<size_t>(std::max(1, next_code_point(piece.substr(begin)).bytes));
    const double here = scratch.scores[begin];
    bool single = false;
    int32_t node = ByteTrie::kRoot;
    for (size_t end = begin; end < n;) {
      node = tokens_.child(node, static_cast<uint8_t>(piece[end]));
      if (node < 0) break;
      ++end;
      const int32_t id = tokens_.id_at(node);
      if (id < 0) continue;
      offer(end, here + scores_[static_cast<size_t>(id)], id, begin);
      single = single || end == begin + length;
    }
    if (!single) offer(begin + length, here + unknown_score_, options_.unk, begin);
    begin += length;
  }
  scratch.ends.clear();
  for (size_t end = n; end > 0; end = scratch.ranks[end]) scratch.ends.push_back(static_cast<uint32_t>(end));
  const size_t first = ids.size();
  for (size_t i = scratch.ends.size(); i > 0;) {
    const uint32_t end = scratch.ends[--i];
    if (scratch.symbols[end] != options_.unk) {
      ids.push_back(scratch.symbols[end]);
      continue;
    }
    uint32_t last = end;
    while (i > 0 && scratch.symbols[scratch.ends[i - 1]] == options_.unk) last = scratch.ends[--i];
    put_unknown(piece.substr(scratch.ranks[end], last - scratch.ranks[end]), ids);
  }
  if (cached) scratch.cache.put(piece, hash, ids.data() + first, ids.size() - first);
}

}  // namespace ashlar::data
