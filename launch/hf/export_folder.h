#pragma once

#include <cstddef>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/log.h"

namespace ashlar::hf {

/// The folder that an export writes to. One process holds it; other ranks may write the files that it has claimed. Its
/// journal is written before any other file. It lists the number of shards and the extra files, and so the names of all
/// files of the export: the shards, the index, the tokenizer's files, and config.json, which is written last. An export
/// that was killed leaves a journal and no config.json: no reader takes that for a model, and the next export to the
/// folder removes it. A file that no journal names is never deleted or overwritten.
class ExportFolder {
 public:
  static constexpr std::string_view kJournalFile = ".ashlar-export";

  /// Files that an export will write in addition to config.json.
  struct Names {
    size_t shards = 0;
    std::set<std::string> beside;  ///< extra files, not part of a model: those of a tokenizer
  };

  /// Creates the folder if it is missing and claims the names. First removes the files of a killed export, with a line
  /// in the log. Input error, before anything is changed, for a folder that another export writes to, or that holds a
  /// model, a part of one, one of the extra files, or a journal of another program.
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
  std::vector<std::filesystem::path> created_;  // innermost first
  Names names_;
  int fd_ = -1;  // of the folder, holds the lock
};

}  // namespace ashlar::hf
