#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ashlar::data {

/// The folder a build writes to: made with its parents if need be, and locked, one build a folder at a time. The
/// destructor removes those folders that this object made and nothing is in: a build that fails early leaves no trace,
/// one that can be continued keeps its plan, journal and shards.
class OutputFolder {
 public:
  /// Throws an input error when another build holds the folder, system errors when it cannot be made or written.
  explicit OutputFolder(const std::string& path);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  std::string path() const { return path_.string(); }
  std::string at(const std::string& file) const;
  std::string spool() const;  ///< where standard input is copied to

 private:
  OutputFolder() = default;

  std::filesystem::path path_;
  std::vector<std::filesystem::path> made_;  ///< innermost first
  int fd_ = -1;                              ///< holds the lock
};

}  // namespace ashlar::data
