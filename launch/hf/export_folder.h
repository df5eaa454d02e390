#pragma once

#include <cstddef>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/log.h"

namespace ashlar::hf {

/// The folder that an export writes to, held by one process; others may write files into it that it has claimed. Its
/// journal is made before any other file and says how many shards there will be and what lies beside the model, hence
/// the names of all files that are the export's own: config.json, which is written last, the index, the shards, those
/// of the tokenizer. An export that was
/// killed leaves a journal and no config.json, which nobody takes for a model, and which the next export to the folder
/// takes away. Nothing that no journal names is deleted or overwritten.
class ExportFolder {
 public:
  static constexpr std::string_view kJournalFile = ".ashlar-export";

  /// What an export will write beside config.json.
  struct Names {
    size_t shards = 0;
    std::set<std::string> beside;  ///< files that are no part of a model: a tokenizer's
  };

  /// Makes the folder where it is missing and claims the names. What a killed export left is removed first, with a line
  /// in the log. Input error for a folder that holds a model, part of one, one of the files beside, or a foreign
  /// journal, or that another export writes to: nothing is touched then.
  ExportFolder(std::filesystem::path path, Names names, Log& log);
  /// What was neither finished nor removed stays, with its journal.
  ~ExportFolder();
  ExportFolder(const ExportFolder&) = delete;
  ExportFolder& operator=(const ExportFolder&) = delete;

  /// The export is whole: the journal goes.
  void finish() noexcept;
  /// The export failed, and nobody writes any more: removes its files, the journal, and the folders it made.
  void remove() noexcept;

 private:
  ExportFolder() = default;
  void lock();
  void take_over(Log& log);
  void claim();

  std::filesystem::path path_;
  std::vector<std::filesystem::path> made_;  // innermost first
  Names names_;
  int fd_ = -1;  // of the folder, holds the lock
};

}  // namespace ashlar::hf
