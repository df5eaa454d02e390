#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/enum_names.h"
#include "data/sources/text_shape.h"
#include "data/sources/token_file.h"
#include "data/sources/unpacker.h"

namespace ashlar::data {

/// Format of inputs. kAuto: JSON and token files are detected by content, and everything else is text. kBytes: every
/// file, also a compressed or binary one, is one document of its unchanged bytes. kUint16, kUint32: files that contain
/// only ids.
enum class SourceFormat : uint8_t { kAuto, kText, kJsonLines, kJsonArray, kBytes, kUint16, kUint32 };
constexpr auto names_of(SourceFormat) {
  return enum_names<SourceFormat>("auto", "text", "jsonl", "json-array", "bytes", "uint16", "uint32");
}

/// One input file. A text file is one document (or several, with a DocumentSeparator); each line of a JSONL file and
/// each element of a JSON array is one.
struct SourceFile {
  std::string path;   ///< path to read
  std::string shown;  ///< name in errors: the path, or "standard input"
  int64_t bytes = 0;  ///< size of the unpacked content, or of the ids of a token file
  TextShape shape = TextShape::kText;
  std::vector<int64_t> element_starts;  ///< JSON array: starts of its blocks
  Packing packing = Packing::kNone;
  std::optional<TokenLayout> tokens;  ///< layout of a token file
};

struct SourceList {
  std::vector<SourceFile> files;  ///< as given; folders recursively, sorted by path; none empty
  int64_t bytes = 0;
  int64_t empty_files = 0;    ///< skipped
  int64_t other_entries = 0;  ///< skipped entries of folders that are neither files nor folders
  int64_t binary_files = 0;   ///< skipped by skip_binary
  int64_t hidden_files = 0;   ///< skipped hidden files of folders
};

struct SourceQuery {
  std::vector<std::string> inputs;  ///< files, folders, "-"
  SourceFormat format = SourceFormat::kAuto;
  bool skip_binary = false;  ///< skip files that are neither text nor tokens
  bool hidden = false;       ///< include files in folders whose name, or that of a parent folder, begins with a dot
  std::string out;
  std::string spool;  ///< the file that holds standard input
  int threads = 1;
  int64_t block_bytes = int64_t{2} << 20;
  /// Progress of inspecting compressed files in bytes; called by one thread at a time.
  std::function<void(int64_t done, int64_t total)> progress;
};

/// Inspects every input by content. Files in gzip and zstd format are unpacked once to find their size, JSON arrays are
/// scanned, and of other files the beginning, middle and end are read. kAuto detects JSON with shape_of. These are
/// token files: NumPy arrays, llm.c's shards, Megatron's .bin with its .idx, and .bin files that are not text
/// (nanoGPT's uint16). Input errors: no input, a missing input, a file given twice (by any paths), nothing to read, an
/// output folder inside an input folder, a truncated or broken compressed file, a file that is neither text nor tokens
/// (its format is named), and JSON whose documents are ambiguous.
SourceList list_sources(const SourceQuery& query);

/// Copies a descriptor to a file until its end.
void spool_descriptor(int descriptor, const std::string& path);

}  // namespace ashlar::data
