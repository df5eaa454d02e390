#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/enum_names.h"
#include "data/parquet/text_column.h"
#include "data/sources/text_shape.h"
#include "data/sources/token_file.h"
#include "data/sources/unpacker.h"

namespace ashlar::data {

/// Format of inputs. kAuto: JSON, Parquet and token files are detected by content and name; all other files must be
/// text. kBytes: every file is one document of its unchanged bytes, even if the file is compressed or binary. kUint16,
/// kUint32: files that contain only ids.
enum class SourceFormat : uint8_t { kAuto, kText, kJsonLines, kJsonArray, kBytes, kUint16, kUint32 };
constexpr auto names_of(SourceFormat) {
  return enum_names<SourceFormat>("auto", "text", "jsonl", "json-array", "bytes", "uint16", "uint32");
}

/// One input file. A text file is one document, or several with a DocumentSeparator. Each line of a JSONL file, each
/// element of a JSON array and each row of a Parquet file is one document.
struct SourceFile {
  std::string path;   ///< path to read
  std::string shown;  ///< name in errors: the path, or "standard input"
  int64_t bytes = 0;  ///< size of the unpacked content, of the ids of a token file, or of the pages of a column
  TextShape shape = TextShape::kText;
  std::vector<int64_t> element_starts;  ///< JSON array: offsets where its blocks start
  Packing packing = Packing::kNone;
  std::optional<TokenLayout> tokens;       ///< layout of a token file
  std::shared_ptr<const TextColumn> rows;  ///< column of the texts of a Parquet file
};

struct SourceList {
  /// Files in the order of the inputs, without empty files. Files of a folder are listed recursively, sorted by path.
  std::vector<SourceFile> files;
  int64_t bytes = 0;
  int64_t empty_files = 0;    ///< number of empty files, which are skipped
  int64_t other_entries = 0;  ///< number of skipped entries of folders that are neither files nor folders
  int64_t binary_files = 0;   ///< number of files skipped because of skip_binary
  int64_t hidden_files = 0;   ///< number of skipped hidden files of folders
};

struct SourceQuery {
  std::vector<std::string> inputs;  ///< files, folders, or "-" for standard input
  SourceFormat format = SourceFormat::kAuto;
  std::string text_field = "text";  ///< name of the column with the texts of Parquet files
  bool skip_binary = false;         ///< skip files that contain neither text nor token ids
  /// True to include hidden files of input folders. A file is hidden if its name, or the name of a folder that contains
  /// it below the input folder, begins with a dot.
  bool hidden = false;
  std::string out;
  std::string spool;  ///< path of the copy of standard input
  int threads = 1;
  int64_t block_bytes = int64_t{2} << 20;
  /// Called while compressed files are unpacked. `done` is the number of bytes inspected so far, `total` the number of
  /// bytes of all files; both count compressed bytes. Called by one thread at a time.
  std::function<void(int64_t done, int64_t total)> progress;
};

/// Inspects the content of every input. Files in gzip and zstd format are unpacked once to find their size. JSON arrays
/// are scanned for element boundaries. Of other files the beginning, middle and end are read. With kAuto, shape_of
/// detects JSON, and these token files are detected: NumPy arrays, llm.c's shards, Megatron's .bin with its .idx,
/// datatrove's .ds with its .index or .metadata, and .bin files that are not text (read as nanoGPT's uint16 ids).
/// Throws input errors: no input, a missing input, a file given twice (even under different paths), nothing to read, an
/// output folder inside an input folder, a truncated or broken compressed file, a file that contains neither text nor
/// token ids (the error names its format), and a file whose shape is in doubt (ShapeFound::doubt).
SourceList list_sources(const SourceQuery& query);

/// Copies everything that can be read from a file descriptor to the file `path`.
void spool_descriptor(int descriptor, const std::string& path);

}  // namespace ashlar::data
