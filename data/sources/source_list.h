#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/sources/text_shape.h"
#include "data/sources/token_file.h"
#include "data/sources/unpacker.h"

namespace ashlar::data {

/// How inputs are read. kAuto: JSON and files of tokens by their bytes, the rest as text. kBytes takes every file as it
/// is, compressed or binary, as one document. The last two are files of nothing but ids.
enum class SourceFormat : uint8_t { kAuto, kText, kJsonLines, kJsonArray, kBytes, kUint16, kUint32 };

/// One input file. A text file is one document (or several, with a DocumentSeparator), each line of a JSONL file is
/// one, each element of a JSON array is one.
struct SourceFile {
  std::string path;   ///< where it is read
  std::string shown;  ///< how errors call it: the path, or "standard input"
  int64_t bytes = 0;  ///< of its content once unpacked; of its ids, when it holds ids
  TextShape shape = TextShape::kText;
  std::vector<int64_t> element_starts;  ///< of a JSON array: where its blocks begin
  Packing packing = Packing::kNone;
  std::optional<TokenLayout> tokens;  ///< it holds ids
};

struct SourceList {
  std::vector<SourceFile> files;  ///< as given; folders recursively, sorted by path; none empty
  int64_t bytes = 0;
  int64_t empty_files = 0;    ///< left out
  int64_t other_entries = 0;  ///< in folders: neither regular files nor folders, left out
  int64_t binary_files = 0;   ///< left out because skip_binary was asked for
  int64_t hidden_files = 0;   ///< in folders: left out
};

struct SourceQuery {
  std::vector<std::string> inputs;  ///< files, folders, "-"
  SourceFormat format = SourceFormat::kAuto;
  bool skip_binary = false;  ///< leave out files that are neither text nor tokens
  bool hidden = false;       ///< take files in folders whose names, or those of folders on the way, begin with a dot
  std::string out;
  std::string spool;  ///< the file that holds standard input
  int threads = 1;
  int64_t block_bytes = int64_t{2} << 20;
  /// Bytes of files looked at, of how many, while compressed ones are; called by one thread at a time.
  std::function<void(int64_t done, int64_t total)> progress;
};

/// Looks at every input, at its bytes rather than its name: gzip and zstd are unpacked once to know how much they hold,
/// JSON arrays are looked through, of other files the beginning, the middle and the end are read. kAuto tells JSON by
/// shape_of; NumPy arrays, llm.c's shards, Megatron's .bin with its .idx, and .bin files that are no text (nanoGPT's
/// uint16) for tokens. Errors: no input, an input that is not there, a file that is named twice (by whatever paths),
/// nothing to read at all, an output folder inside an input folder, a compressed file that is cut off or broken, a file
/// that is neither text nor tokens (named with what it is), JSON of which nothing says what its documents are.
SourceList list_sources(const SourceQuery& query);

/// Copies a descriptor to a file until its end.
void spool_descriptor(int descriptor, const std::string& path);

}  // namespace ashlar::data
