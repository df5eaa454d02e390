#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ashlar::data {

/// The folder that a build writes to. It is created with its parents if needed, and locked, so that only one build uses
/// it at a time. The destructor removes the folders that this object created if they are empty. So a build that fails
/// early leaves nothing, and a build that can be resumed keeps its plan, journal and shards.
class OutputFolder {
 public:
  /// Throws an input error when another build holds the folder, system errors when it cannot be created or written.
  explicit OutputFolder(const std::string& path);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  std::string path() const { return path_.string(); }
  std::string at(const std::string& file) const;
  std::string spool() const;  ///< path of the copy of standard input

 private:
  OutputFolder() = default;

  std::filesystem::path path_;
  std::vector<std::filesystem::path> created_;  ///< innermost first
  int fd_ = -1;                                 ///< holds the lock
};

}  // namespace ashlar::data
