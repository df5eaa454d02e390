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
  int64_t bytes_done = 0;  ///< bytes of input; bytes of the files themselves while they are inspected
  int64_t bytes_total = 0;
};

struct BuildOptions {
  std::vector<std::string> inputs;  ///< files, folders, "-" for standard input
  std::string out;                  ///< folder of the dataset, created if needed
  std::string tokenizer = "bytes";  ///< a kind, or a tokenizer's file or folder
  double validation = 0.1;          ///< share of the validation part, [0, 1)
  SourceFormat format = SourceFormat::kAuto;
  std::string text_field = "text";  ///< field of JSON objects with the text
  SpecialPolicy special_tokens = SpecialPolicy::kText;
  BadLines bad_lines = BadLines::kStop;
  std::string document_separator = "none";   ///< in text files: "none", "blank-line" or the text of a separator
  int threads = 0;                           ///< 0 = one per core
  int64_t shard_tokens = int64_t{64} << 20;  ///< a multiple of kChunkTokens
  int64_t block_bytes = int64_t{2} << 20;    ///< unit of parallel work
  bool skip_binary = false;                  ///< skip files that are neither text nor tokens
  bool include_hidden = false;               ///< include hidden files of folders
  bool overwrite = false;                    ///< replace a finished dataset built from other input
  int stdin_descriptor = 0;
  std::function<void(const BuildProgress&)> progress;  ///< called by one thread at a time
  std::function<void(const std::string&)> note;        ///< prints a one-line note
};

struct BuildReport {
  Manifest manifest;
  bool already_complete = false;  ///< the folder already has this dataset; nothing was done
  int64_t shards_kept = 0;        ///< shards from an earlier, unfinished run
  int64_t other_entries = 0;      ///< entries of input folders that are neither files nor folders, skipped
  int64_t binary_files = 0;       ///< skipped by skip_binary
  int64_t hidden_files = 0;       ///< skipped without include_hidden
};

/// Builds a dataset from text. It counts tokens in parallel (and learns a vocabulary if needed), makes the plan, then
/// encodes in parallel and writes in order. Encoding and writing are one pass, with memory for one block per thread. A
/// killed build that is run again with the same arguments resumes and gives the same bytes; the manifest is written
/// last. A long text is divided among threads if its tokenizer allows that, so that memory is bounded for any input.
/// Standard input is first copied to the folder. Compressed files are unpacked once per pass, in memory. Token files
/// keep their ids and need a tokenizer with a known vocabulary. The texts are compared by the digests of their blocks:
/// a build resumes only with the same bytes, and a finished dataset counts as complete only for the same bytes. Deletes
/// and overwrites only files named by its journal or a valid manifest. Throws input errors (bad input, with file, line
/// and byte offset; a folder with another dataset) and resource errors (disk full).
BuildReport build_dataset(const BuildOptions& options);

}  // namespace ashlar::data
