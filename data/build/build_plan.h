#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "data/build/validation_split.h"
#include "data/shards/manifest.h"
#include "data/sources/source_list.h"

namespace ashlar::data {

/// A piece of an input file, the unit of parallel work. Its nominal range is the bytes [begin, end) of the file, of the
/// unpacked content of a compressed file, or of the ids of a token file. It owns what starts in that range: text up to
/// the first split point at or after `end`; every line of a JSONL file; every element of a JSON array.
struct Block {
  int64_t file = 0;
  int64_t begin = 0, end = 0;
  int64_t first_document = 0;    ///< index of the document that its first token belongs to
  int64_t stream_start = 0;      ///< number of tokens before it
  int64_t validation_start = 0;  ///< number of those in the validation part
  int64_t digested = 0;          ///< 1 if its text was read for counting
  Digest digest;                 ///< digest of that text
};
static_assert(std::has_unique_object_representations_v<Block>);  // it is written as its bytes

/// Decides the content of each shard. It is created before the first shard is written, so that any number of threads,
/// also after a kill, write the same bytes.
struct BuildPlan {
  std::string fingerprint;  ///< hash of options and sizes; the text itself is compared by the digests of blocks
  std::string tokenizer_json;
  SplitRule rule = SplitRule::kNone;
  double share = 0;
  int64_t train_tokens = 0;  ///< kTail: tokens of the train part
  int64_t documents = 0;
  int64_t empty_documents = 0;
  int64_t special_spellings = 0;  ///< number of spellings of special tokens in text
  int64_t bad_lines = 0, bad_places = 0;
  int64_t tokens = 0;
  int64_t validation_tokens = 0;
  int64_t shard_tokens = 0;
  std::vector<Block> blocks;

  int64_t part_tokens(Part part) const {
    return part == Part::kValidation ? validation_tokens : tokens - validation_tokens;
  }
  int64_t num_shards(Part part) const { return (part_tokens(part) + shard_tokens - 1) / shard_tokens; }
  /// Position of the first token of block `i` in a part; i may be one past the last.
  int64_t part_start(Part part, int64_t i) const;
};

/// Splits files into blocks of `block_bytes`; token files between ids, JSON arrays at element starts.
std::vector<Block> split_into_blocks(const SourceList& sources, int64_t block_bytes);

/// The result of counting a block: the number of tokens of each document or piece of a document, including
/// end-of-document ids.
struct BlockCount {
  struct Piece {
    int64_t tokens = 0;
    bool ends = false;  ///< a document ends with this piece
  };
  std::vector<Piece> pieces;
  int64_t empty_documents = 0;
  int64_t special_spellings = 0;
  int64_t bad_lines = 0, bad_places = 0;
  std::optional<Digest> digest;  ///< digest of the text, if it was read
};

/// Fills the plan. Call `add` with the counts of the blocks in order, then `finish`.
class PlanBuilder {
 public:
  PlanBuilder(BuildPlan& plan, double share) : plan_(plan) { plan_.share = share; }
  void add(int64_t block, const BlockCount& count);
  /// Determines the split into the two parts. Input error if no document has text, or if nothing is left for the train
  /// part.
  void finish();

 private:
  BuildPlan& plan_;
  int64_t document_ = 0, tokens_ = 0, validation_tokens_ = 0;
};

/// Serialises the plan as bytes with a checksum, and parses it. `parse_plan` returns an empty fingerprint for damaged
/// bytes.
std::string serialise_plan(const BuildPlan& plan);
BuildPlan parse_plan(const std::string& bytes);

}  // namespace ashlar::data
