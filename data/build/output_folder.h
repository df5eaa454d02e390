#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ashlar::data {

/// The folder that a build writes to. The constructor creates it with its parents if needed, and locks it, so that only
/// one build uses it at a time. The destructor removes those folders that the constructor created and that are empty: a
/// build that fails before it writes files leaves nothing. A folder with the plan, journal and shards of a build that
/// can be resumed is not empty, so it stays.
class OutputFolder {
 public:
  /// Throws an input error when another build has locked the folder, and a system error when the folder cannot be
  /// created or written.
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
  std::vector<std::filesystem::path> created_;  ///< folders that the constructor created, innermost first
  int fd_ = -1;                                 ///< descriptor of the folder, which is locked
};

}  // namespace ashlar::data
