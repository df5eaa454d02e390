#pragma once

#include <cstddef>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/log.h"

namespace ashlar::hf {

/// The folder that an export writes to. Only rank 0 has this object and the folder's lock; other ranks may write the
/// files that the journal lists. A journal is written before any other file. It lists the number of shards and the
/// extra files, which determine the names of all files of the export: the shards, the index, the tokenizer's files, and
/// config.json, which is written last. A killed export leaves a journal and no config.json: no program reads such a
/// folder as a model, and the next export to the folder removes the files. A file that no journal lists is never
/// deleted or overwritten.
class ExportFolder {
 public:
  static constexpr std::string_view kJournalFile = ".ashlar-export";

  /// Files that an export will write in addition to config.json.
  struct Names {
    size_t shards = 0;
    std::set<std::string> beside;  ///< names of extra files, e.g. the tokenizer's
  };

  /// Creates the folder if it is missing, removes the files of a killed export (with a line in the log), and writes the
  /// journal. Throws an input error, before anything is changed, if another export writes to the folder, or if the
  /// folder contains files of a model, one of the extra files, or a journal that Ashlar did not write.
  ExportFolder(std::filesystem::path path, Names names, Log& log);
  /// Leaves the files and the journal if neither finish() nor remove() was called.
  ~ExportFolder();
  ExportFolder(const ExportFolder&) = delete;
  ExportFolder& operator=(const ExportFolder&) = delete;

  /// Call it when the export is complete. Removes the journal.
  void finish() noexcept;
  /// Call it when the export has failed and no rank writes any more. Removes the files, the journal and the created
  /// folders.
  void remove() noexcept;

 private:
  ExportFolder() = default;
  void lock();
  void take_over(Log& log);
  void claim();

  std::filesystem::path path_;
  std::vector<std::filesystem::path> created_;  // folders made by the constructor, innermost first
  Names names_;
  int fd_ = -1;  // the folder's file descriptor, which carries the lock
};

}  // namespace ashlar::hf
