#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "data/tokenizer/byte_trie.h"
#include "data/tokenizer/fields.h"
#include "data/tokenizer/vocabulary.h"

namespace ashlar::data {

/// Cache of the ids of recent words, since text repeats the same few thousand words. A new word replaces the word in
/// the same entry of the hash table.
class WordCache {
 public:
  WordCache() : entries_(kEntries) {}
  static constexpr size_t kMaxBytes = 23, kMaxIds = 9;

  /// Appends the ids of a cached word and returns true. Returns false if the word is not cached.
  bool find(std::string_view word, uint64_t hash, std::vector<int32_t>& ids) const {
    const Entry& e = entries_[hash % kEntries];
    if (e.bytes != word.size() || word != std::string_view(e.word, e.bytes)) return false;
    ids.insert(ids.end(), e.ids, e.ids + e.count);
    return true;
  }
  void put(std::string_view word, uint64_t hash, const int32_t* ids, size_t count);

 private:
  static constexpr size_t kEntries = size_t{1} << 15;
  struct Entry {
    char word[kMaxBytes];
    uint8_t bytes = 255;
    uint8_t count = 0;
    int32_t ids[kMaxIds];
  };
  std::vector<Entry> entries_;
};

/// Encodes a piece of text, as `model` of tokenizer.json defines. Immutable.
class Model {
 public:
  /// Scratch memory of one thread.
  struct Scratch {
    WordCache cache;
    std::vector<int32_t> symbols;
    std::vector<uint32_t> ranks, ends;
    std::vector<double> scores;
  };

  virtual ~Model() = default;
  /// Appends the ids of a piece. `piece` is UTF-8, or any bytes for a byte-level model.
  virtual void encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const = 0;
};

/// Byte-pair encoding: repeatedly merges the adjacent pair with the lowest rank (of equal ranks, the leftmost pair),
/// until no adjacent pair is in the list of merges. Source: Sennrich et al. 2016, arXiv:1508.07909, with ranks as in
/// GPT-2.
class BpeModel final : public Model {
 public:
  struct Options {
    bool byte_fallback = false;  ///< a character without a token becomes the tokens <0x..> of its bytes
    bool fuse_unk = false;       ///< adjacent unknown characters are one unknown token
    bool ignore_merges = false;  ///< a piece that is a token is encoded as that token
    std::string unk_token;       ///< empty: unknown characters are dropped
  };
  struct Merge {
    int32_t left = 0, right = 0;
    uint32_t rank = 0;  ///< the pair with the lowest rank is merged first; equal ranks from left to right
    int32_t joined = 0;
  };

  BpeModel(const Vocabulary& vocabulary, Options options, const std::vector<Merge>& merges);
  /// Makes `encode` read pieces as bytes. `byte_ids` maps each byte to its id (-1: none). `tokens` maps the bytes of
  /// each token to its id.
  void set_byte_vocabulary(std::array<int32_t, 256> byte_ids, absl::flat_hash_map<std::string, int32_t> tokens);
  void encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const override;

 private:
  struct Slot {
    uint64_t pair = ~uint64_t{0};
    uint32_t rank = 0;
    int32_t joined = 0;
  };
  const Slot* find(int32_t left, int32_t right) const {
    const uint64_t pair = (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
    for (size_t at = slot_of(pair);; at = (at + 1) & mask_) {
      if (slots_[at].pair == pair) return &slots_[at];
      if (slots_[at].pair == ~uint64_t{0}) return nullptr;
    }
  }
  size_t slot_of(uint64_t pair) const { return (pair * 0x9E3779B97F4A7C15ULL >> 20) & mask_; }
  void symbols_of(std::string_view piece, std::vector<int32_t>& symbols) const;
  void merge_short(Scratch& scratch) const;
  void merge_long(Scratch& scratch) const;

  const Vocabulary& vocabulary_;
  Options options_;
  int32_t unk_ = -1;
  bool of_bytes_ = false;
  std::array<int32_t, 256> byte_ids_{};  ///< byte-level: ids of the bytes; otherwise: ids of the tokens <0x..>
  absl::flat_hash_map<std::string, int32_t> tokens_;
  std::vector<Slot> slots_;
  size_t mask_ = 0;
};

/// Unigram language model. Encodes a piece as its most probable segmentation into tokens, which has the largest sum of
/// token scores. Source: Kudo 2018, arXiv:1804.10959.
class UnigramModel final : public Model {
 public:
  struct Options {
    int32_t unk = -1;  ///< id of the unknown token, which replaces a run of characters without a token
    bool byte_fallback = false;
  };
  /// `scores` is indexed by id.
  UnigramModel(const Vocabulary& vocabulary, const std::vector<double>& scores, Options options);
  void encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const override;

 private:
  void put_unknown(std::string_view text, std::vector<int32_t>& ids) const;

  const Vocabulary& vocabulary_;
  Options options_;
  std::vector<double> scores_;
  double unknown_score_ = 0;
  std::vector<int32_t> byte_ids_;
  ByteTrie tokens_;
};

/// Reads `model` of tokenizer.json, BPE or Unigram. Fills `vocabulary`, which must outlive the model. If `bytes` is
/// true, a BPE model encodes raw bytes instead of the characters of ByteCharacters. Input errors name the field.
std::unique_ptr<Model> read_model(Fields fields, Vocabulary& vocabulary, bool bytes);

}  // namespace ashlar::data
