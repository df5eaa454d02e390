#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ashlar::data {

enum class SourceFormat : uint8_t { kAuto, kText, kJsonLines };

/// One input file. A text file is one document, each line of a JSONL file is one.
struct SourceFile {
  std::string path;   ///< where it is read
  std::string shown;  ///< how errors call it: the path, or "standard input"
  int64_t bytes = 0;
  int64_t modified_ns = 0;
  bool json_lines = false;
};

struct SourceList {
  std::vector<SourceFile> files;  ///< as given; folders recursively, sorted by path; none empty
  int64_t bytes = 0;
  int64_t empty_files = 0;    ///< left out
  int64_t other_entries = 0;  ///< in folders: neither regular files nor folders, left out
};

/// Looks at every input. kAuto takes names that end in .jsonl or .ndjson for JSON lines. `spool` is the file that holds
/// standard input, for the input "-". Errors: no input, an input that is not there, nothing to read at all, an output
/// folder inside an input folder.
SourceList list_sources(const std::vector<std::string>& inputs, SourceFormat format, const std::string& out,
                        const std::string& spool);

/// Copies a descriptor to a file until its end.
void spool_descriptor(int descriptor, const std::string& path);

}  // namespace ashlar::data
