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

/// A piece of an input file, the unit of parallel work. The nominal range [begin, end) of a block counts bytes of the
/// file; for a compressed file, bytes of the unpacked content; for a token file, bytes after the header; for a Parquet
/// file, bytes of the unpacked pages of the column. A block of a text file extends from the first split point at or
/// after `begin` to the first split point at or after `end`. A block of a JSONL file or a JSON array contains every
/// line or element that starts in the nominal range.
struct Block {
  int64_t file = 0;
  int64_t begin = 0, end = 0;
  int64_t first_document = 0;    ///< index of the document to which the block's first token belongs
  int64_t stream_start = 0;      ///< number of tokens before the block
  int64_t validation_start = 0;  ///< SplitRule::kDocuments: number of validation tokens before the block
  int64_t digested = 0;          ///< 1 if the block's text was read for counting, so that `digest` is set
  Digest digest;                 ///< digest of the block's text
};
static_assert(std::has_unique_object_representations_v<Block>);  // the plan file contains the bytes of each Block

/// Determines the content of each shard, independent of the number of threads. The plan is stored before the first
/// shard is written, so that a build that is resumed after a kill writes the same bytes.
struct BuildPlan {
  std::string fingerprint;  ///< hash of the options and input sizes; the digests of the blocks identify the text
  std::string tokenizer_json;
  SplitRule rule = SplitRule::kNone;
  double share = 0;
  int64_t train_tokens = 0;  ///< SplitRule::kTail: number of tokens in the train part
  int64_t documents = 0;
  int64_t empty_documents = 0;
  int64_t special_spellings = 0;  ///< number of times that the text contains the spelling of a special token
  int64_t bad_lines = 0, bad_places = 0;
  int64_t tokens = 0;
  int64_t validation_tokens = 0;
  int64_t shard_tokens = 0;
  std::vector<Block> blocks;

  int64_t part_tokens(Part part) const {
    return part == Part::kValidation ? validation_tokens : tokens - validation_tokens;
  }
  int64_t num_shards(Part part) const { return (part_tokens(part) + shard_tokens - 1) / shard_tokens; }
  /// Returns how many tokens of `part` precede block `i`: the position of the block's first token in the part. If `i`
  /// is the number of blocks, the result is the number of tokens in the part.
  int64_t part_start(Part part, int64_t i) const;
};

/// Splits the files into blocks of `block_bytes`. Token files are split between ids, JSON arrays at the starts of
/// elements, Parquet files between pages.
std::vector<Block> split_into_blocks(const SourceList& sources, int64_t block_bytes);

/// Counts of what was skipped or changed while a block was read.
struct ReadCounts {
  int64_t empty_documents = 0;  ///< number of documents without text, which are skipped
  int64_t bad_lines = 0;        ///< number of invalid JSON lines and array elements, which are skipped
  int64_t bad_places = 0;       ///< number of places with invalid UTF-8 or a lone surrogate, removed or replaced
};

/// The result of counting a block: the number of tokens of each document or piece of a document, including
/// end-of-document ids.
struct BlockCount {
  struct Piece {
    int64_t tokens = 0;
    bool ends = false;  ///< a document ends with this piece
  };
  std::vector<Piece> pieces;
  int64_t special_spellings = 0;
  ReadCounts read;
  std::optional<Digest> digest;  ///< digest of the text, if it was read
};

/// Fills the plan. Call `add` with the counts of the blocks in order, then `finish`.
class PlanBuilder {
 public:
  PlanBuilder(BuildPlan& plan, double share) : plan_(plan) { plan_.share = share; }
  void add(int64_t block, const BlockCount& count);
  /// Determines which tokens are the train part and which the validation part. Throws an input error if no document has
  /// text, or if no token is left for the train part.
  void finish();

 private:
  BuildPlan& plan_;
  int64_t document_ = 0, tokens_ = 0, validation_tokens_ = 0;
};

/// Serialises the plan as bytes with a checksum, and parses such bytes. If the bytes are damaged, `parse_plan` returns
/// a plan with an empty fingerprint.
std::string serialise_plan(const BuildPlan& plan);
BuildPlan parse_plan(const std::string& bytes);

}  // namespace ashlar::data
