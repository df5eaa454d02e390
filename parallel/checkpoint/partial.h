#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "parallel/checkpoint/manifest.h"

namespace ashlar::checkpoint {

inline constexpr std::string_view kPartialSuffix = ".partial";
inline constexpr std::string_view kReplacedSuffix = ".replaced";
/// The name of an empty marker file. This program deletes a directory only if the directory contains this file or is
/// empty. The file is the first one in a partial directory, and is written into a checkpoint before the checkpoint is
/// renamed for removal. So a complete checkpoint may contain the file for a short time; readers ignore it.
inline constexpr std::string_view kMarkerFile = ".ashlar-partial";

/// Returns FINAL.partial.
std::filesystem::path partial_path(std::filesystem::path final_path);

/// Durably writes the marker file into a directory, so that this program may delete the directory.
void mark(const std::filesystem::path& directory);
/// True if a directory may be deleted: it is marked, or it is empty (a process was killed between creating and marking
/// it).
bool is_ours(const std::filesystem::path& directory);

/// rename_path renames a file or directory; remove_tree removes a directory recursively. Both throw a system error that
/// names the paths.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);
void remove_tree(const std::filesystem::path& path);
/// Removes a checkpoint. The checkpoint is first marked and renamed to PATH.partial. So a partly removed checkpoint
/// never looks complete, and remove_leftovers removes the rest at the next start.
void remove_checkpoint(const std::filesystem::path& path);

/// A directory that has its final name only when it is complete. Its files are first written to `FINAL.partial`.
class PartialDirectory {
 public:
  /// Creates FINAL.partial with the marker file. A FINAL.partial left by a killed process is removed first. Throws an
  /// input error when a file or directory of another program has that name.
  explicit PartialDirectory(std::filesystem::path final_path);
  ~PartialDirectory();  ///< removes an uncommitted directory
  PartialDirectory(const PartialDirectory&) = delete;
  PartialDirectory& operator=(const PartialDirectory&) = delete;

  const std::filesystem::path& path() const { return partial_; }

  /// Writes the manifest, renames the directory, and makes the name durable. An existing directory under the final name
  /// is renamed to FINAL.replaced and removed when the new one is in place. Returns the size of the manifest. If an
  /// error occurs, the previous state is restored, except in two cases, which the error text states. If the parent
  /// directory could not be synced after the rename, the complete new directory and FINAL.replaced stay. If
  /// FINAL.replaced could not be removed, the new directory and the rest of FINAL.replaced stay.
  int64_t commit(const Manifest& manifest);

 private:
  std::filesystem::path final_;
  std::filesystem::path partial_;
  std::filesystem::path existing_;  // nearest ancestor of final_ that existed before construction
  bool committed_ = false;
};

}  // namespace ashlar::checkpoint
