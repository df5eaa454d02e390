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
  int64_t bytes_done = 0;  ///< of input; of the files themselves while they are looked at
  int64_t bytes_total = 0;
};

struct BuildOptions {
  std::vector<std::string> inputs;  ///< files, folders, "-" for standard input
  std::string out;                  ///< folder of the dataset, made if need be
  std::string tokenizer = "bytes";  ///< a kind, or a tokenizer's file or folder
  double validation = 0.1;          ///< share of the validation part, [0, 1)
  SourceFormat format = SourceFormat::kAuto;
  std::string text_field = "text";  ///< of JSON objects
  SpecialPolicy special_tokens = SpecialPolicy::kText;
  BadLines bad_lines = BadLines::kStop;
  std::string document_separator = "none";   ///< in files of text: "none", "blank-line" or the text of one
  int threads = 0;                           ///< 0 = one a core
  int64_t shard_tokens = int64_t{64} << 20;  ///< a multiple of kChunkTokens
  int64_t block_bytes = int64_t{2} << 20;    ///< unit of parallel work
  bool skip_binary = false;                  ///< leave out files that are neither text nor tokens
  bool include_hidden = false;               ///< take hidden files of folders
  bool overwrite = false;                    ///< replace a finished dataset made of something else
  int stdin_descriptor = 0;
  std::function<void(const BuildProgress&)> progress;  ///< called by one thread at a time
  std::function<void(const std::string&)> note;        ///< one-line remarks
};

struct BuildReport {
  Manifest manifest;
  bool already_complete = false;  ///< the folder held this very dataset; nothing was done
  int64_t shards_kept = 0;        ///< from an earlier, unfinished run
  int64_t other_entries = 0;      ///< in input folders: neither files nor folders, left out
  int64_t binary_files = 0;       ///< left out by skip_binary
  int64_t hidden_files = 0;       ///< left out without include_hidden
};

std::string_view name_of(SpecialPolicy policy);  ///< "text", "parse", "refuse"
std::string_view name_of(BadLines policy);       ///< "stop", "skip", "replace"

/// Makes a dataset of text: counts (and learns a vocabulary) in parallel, plans, then encodes in parallel and writes in
/// order, in one pass with memory for one block a thread. Killed at any moment and run again with the same arguments it
/// continues, and ends with the same bytes; the manifest comes last. A long text is divided between threads where its
/// tokenizer may be given pieces of it, so that memory is bounded whatever the input's shape. Standard input is first
/// copied into the folder. Compressed files are unpacked on the way, once for each pass, and give the dataset that
/// their content would. Files of tokens keep their ids as they are; they need a tokenizer whose vocabulary is known
/// before the text is. The text itself is compared, by digests of its blocks: a build continues only from the same
/// bytes, and a finished dataset is complete only for them. Deletes and overwrites nothing that a journal or a manifest
/// of ours does not name. Throws input errors (bad input, with file, line and byte offset; a folder that holds another
/// dataset) and resource errors (disk full).
BuildReport build_dataset(const BuildOptions& options);

}  // namespace ashlar::data
