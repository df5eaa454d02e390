#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/build/document_encoder.h"
#include "data/shards/manifest.h"
#include "data/sources/source_list.h"

namespace ashlar::data {

struct BuildProgress {
  enum class Phase : uint8_t { kCount, kWrite, kLook } phase = Phase::kCount;
  /// Bytes of input after decompression. In phase kLook, which detects the formats of the files, they are bytes of the
  /// files on disk.
  int64_t bytes_done = 0;
  int64_t bytes_total = 0;
};

struct BuildOptions {
  std::vector<std::string> inputs;  ///< files, folders, or "-" for standard input
  std::string out;                  ///< folder for the dataset, created if needed
  std::string tokenizer = "bytes";  ///< "bytes", "characters", or the path of a tokenizer's file or folder
  double validation = 0.1;          ///< share of the validation part, in [0, 1)
  SourceFormat format = SourceFormat::kAuto;
  std::string text_field = "text";  ///< JSON field or Parquet column that contains the text
  SpecialPolicy special_tokens = SpecialPolicy::kText;
  BadLines bad_lines = BadLines::kStop;
  std::string document_separator = "none";   ///< in text files: "none", "blank-line" or the text of a separator
  int threads = 0;                           ///< 0 = one per core
  int64_t shard_tokens = int64_t{64} << 20;  ///< tokens per shard, a multiple of kChunkTokens (65536)
  int64_t block_bytes = int64_t{2} << 20;    ///< size of a block, the unit of parallel work
  bool skip_binary = false;                  ///< skip files that contain neither text nor token ids
  bool include_hidden = false;               ///< include hidden files of folders
  bool overwrite = false;                    ///< replace a finished dataset in `out`
  int stdin_descriptor = 0;
  std::function<void(const BuildProgress&)> progress;  ///< called by one thread at a time
  std::function<void(const std::string&)> note;        ///< prints a one-line note
};

struct BuildReport {
  Manifest manifest;
  bool already_complete = false;  ///< the folder already has this dataset; nothing was done
  int64_t shards_kept = 0;        ///< number of shards reused from an earlier, unfinished build
  int64_t other_entries = 0;      ///< number of skipped entries of input folders that are neither files nor folders
  int64_t binary_files = 0;       ///< number of files skipped because of skip_binary
  int64_t hidden_files = 0;       ///< number of hidden files skipped because include_hidden is false
};

/// Builds a dataset from text. The first pass counts tokens in parallel (and learns a vocabulary if needed) and makes
/// the plan. The second pass encodes in parallel and writes in order, with memory for one block per thread. A killed
/// build that is run again with the same arguments resumes and gives the same bytes. The manifest is written last. A
/// long text is divided among threads if the tokenizer allows it, so that memory does not grow with the length of a
/// text. Standard input is first copied to the output folder. Compressed files are unpacked once per pass, in memory.
/// The ids of token files are not changed; such files need a tokenizer that does not learn its vocabulary from the
/// input. The digests of the blocks detect that the text of the inputs has changed: an unfinished build then starts
/// over, and a finished dataset of the old text gives an error. Deletes and overwrites only files that the journal of
/// the build or a valid manifest names. Throws input errors (bad input, with file, line and byte offset; a folder with
/// another dataset) and resource errors (disk full).
BuildReport build_dataset(const BuildOptions& options);

}  // namespace ashlar::data
