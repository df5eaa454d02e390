#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <queue>

#include "core/base/utf8.h"
#include "data/tokenizer/model.h"

namespace ashlar::data {
namespace {

constexpr uint32_t kNoRank = ~uint32_t{0};
constexpr size_t kShort = 48;  // number of symbols up to which a scan for the best pair is faster than a heap

size_t table_size(size_t entries) {
  size_t size = 16;
  while (size < entries * 2) size *= 2;
  return size;
}

}  // namespace

void WordCache::put(std::string_view word, uint64_t hash, const int32_t* ids, size_t count) {
  if (word.size() > kMaxBytes || count > kMaxIds) return;
  Entry& e = entries_[hash % kEntries];
  std::memcpy(e.word, word.data(), word.size());
  std::copy(ids, ids + count, e.ids);
  e.bytes = static_cast<uint8_t>(word.size());
  e.count = static_cast<uint8_t>(count);
}

BpeModel::BpeModel(const Vocabulary& vocabulary, Options options, const std::vector<Merge>& merges)
    : vocabulary_(vocabulary), options_(std::move(options)), slots_(table_size(merges.size())) {
  mask_ = slots_.size() - 1;
  if (!options_.unk_token.empty()) unk_ = vocabulary_.find(options_.unk_token).value_or(-1);
  const std::vector<int32_t> fallback = vocabulary_.byte_tokens();
  std::copy(fallback.begin(), fallback.end(), byte_ids_.begin());
  for (const Merge& m : merges) {
    const uint64_t pair = (static_cast<uint64_t>(static_cast<uint32_t>(m.left)) << 32) | static_cast<uint32_t>(m.right);
    size_t at = slot_of(pair);
    while (slots_[at].pair != ~uint64_t{0} && slots_[at].pair != pair) at = (at + 1) & mask_;
    slots_[at] = {pair, m.rank, m.joined};
  }
}

void BpeModel::set_byte_vocabulary(std::array<int32_t, 256> byte_ids,
                                   absl::flat_hash_map<std::string, int32_t> tokens) {
  of_bytes_ = true;
  byte_ids_ = byte_ids;
  tokens_ = std::move(tokens);
}

void BpeModel::encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const {
  const bool cached = piece.size() <= WordCache::kMaxBytes;
  const uint64_t hash = cached ? XXH3_64bits(piece.data(), piece.size()) : 0;
  if (cached && scratch.cache.find(piece, hash, ids)) return;
  const size_t first = ids.size();
  if (options_.ignore_merges) {
    if (of_bytes_) {
      const auto at = tokens_.find(absl::string_view(piece.data(), piece.size()));
      if (at != tokens_.end()) ids.push_back(at->second);
    } else if (const auto id = vocabulary_.find(piece)) {
      ids.push_back(*id);
    }
  }
  if (ids.size() == first) {
    scratch.symbols.clear();
    symbols_of(piece, scratch.symbols);
    if (scratch.symbols.size() <= kShort) {
      merge_short(scratch);
    } else {
      merge_long(scratch);
    }
    ids.insert(ids.end(), scratch.symbols.begin(), scratch.symbols.end());
  }
  if (cached) scratch.cache.put(piece, hash, ids.data() + first, ids.size() - first);
}

void BpeModel::symbols_of(std::string_view piece, std::vector<int32_t>& symbols) const {
  bool unknown = false;  // true while an unknown token waits to be appended
  const auto flush = [&] {
    if (unknown) symbols.push_back(unk_);
    unknown = false;
  };
  const auto meet_unknown = [&] {
    if (unk_ < 0) return;
    if (!options_.fuse_unk) flush();
    unknown = true;
  };
  if (of_bytes_) {
    for (const char c : piece) {
      const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
      if (id < 0) {
        meet_unknown();
        continue;
      }
      flush();
      symbols.push_back(id);
    }
    return flush();
  }
  for (size_t at = 0; at < piece.size();) {
    const auto n = static_cast<size_t>(std::max(1, next_code_point(piece.substr(at)).bytes));
    const std::string_view character = piece.substr(at, n);
    at += n;
    if (const auto id = vocabulary_.find(character)) {
      flush();
      symbols.push_back(*id);
      continue;
    }
    const auto has = [&](char c) { return byte_ids_[static_cast<uint8_t>(c)] >= 0; };
    if (options_.byte_fallback && std::all_of(character.begin(), character.end(), has)) {
      // A waiting unknown token is appended after these byte tokens, as in the `tokenizers` library.
      for (const char c : character) symbols.push_back(byte_ids_[static_cast<uint8_t>(c)]);
      continue;
    }
    meet_unknown();
  }
  flush();
}

void BpeModel::merge_short(Scratch& scratch) const {
  std::vector<int32_t>& s = scratch.symbols;
  size_t n = s.size();
  if (n < 2) return;
  uint32_t ranks[kShort];  // rank of the pair that begins at each symbol
  int32_t joined[kShort];
  const auto look = [&](size_t i) {
    const Slot* const slot = find(s[i], s[i + 1]);
    ranks[i] = slot == nullptr ? kNoRank : slot->rank;
    if (slot != nullptr) joined[i] = slot->joined;
  };
  for (size_t i = 0; i + 1 < n; ++i) look(i);
  while (n > 1) {
    size_t best = 0;
    uint32_t least = ranks[0];
    for (size_t i = 1; i + 1 < n; ++i) {
      if (ranks[i] < least) {
        least = ranks[i];
        best = i;
      }
    }
    if (least == kNoRank) break;
    s[best] = joined[best];
    for (size_t i = best + 1; i + 1 < n; ++i) {
      s[i] = s[i + 1];
      ranks[i] = ranks[i + 1];
      joined[i] = joined[i + 1];
    }
    --n;
    if (best + 1 < n) look(best);
    if (best > 0) look(best - 1);
  }
  s.resize(n);
}

void BpeModel::merge_long(Scratch& scratch) const {
  struct Candidate {
    uint32_t rank, at;
    int32_t left, right, joined;
    bool operator>(const Candidate& o) const { return rank != o.rank ? rank > o.rank : at > o.at; }
  };
  std::vector<int32_t>& s = scratch.symbols;
  const auto n = static_cast<uint32_t>(s.size());
  std::vector<uint32_t> next(n), before(n);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto push = [&](uint32_t at) {
    const uint32_t right = next[at];
    if (right >= n) return;
    if (const Slot* const slot = find(s[at], s[right])) queue.push({slot->rank, at, s[at], s[right], slot->joined});
  };
  for (uint32_t i = 0; i < n; ++i) {
    next[i] = i + 1;
    before[i] = i - 1;
  }
  for (uint32_t i = 0; i < n; ++i) push(i);
  constexpr int32_t kGone = -2;
  while (!queue.empty()) {
    const Candidate c = queue.top();
    queue.pop();
    if (s[c.at] != c.left || next[c.at] >= n || s[next[c.at]] != c.right) continue;
    const uint32_t right = next[c.at];
    s[c.at] = c.joined;
    s[right] = kGone;
    next[c.at] = next[right];
    if (next[right] < n) before[next[right]] = c.at;
    push(c.at);
    if (before[c.at] < n) push(before[c.at]);
  }
  s.erase(std::remove(s.begin(), s.end(), kGone), s.end());
}

}  // namespace ashlar::data
