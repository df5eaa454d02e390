#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "parallel/checkpoint/manifest.h"

namespace ashlar::checkpoint {

inline constexpr std::string_view kPartialSuffix = ".partial";
inline constexpr std::string_view kReplacedSuffix = ".replaced";
/// The name of an empty file that marks every directory which this program may delete. It is the first file in a
/// partial directory, and it is written into a checkpoint before that is renamed for removal. A complete checkpoint may
/// have it for a moment; readers ignore it.
inline constexpr std::string_view kMarkerFile = ".ashlar-partial";

/// Returns FINAL.partial.
std::filesystem::path partial_path(std::filesystem::path final_path);

/// Marks a directory, durably, as one that this program may delete.
void mark(const std::filesystem::path& directory);
/// True if a directory may be deleted: it is marked, or it is empty (a process was killed between creating and marking
/// it).
bool is_ours(const std::filesystem::path& directory);

/// rename_path renames; the error names both. remove_tree removes recursively; the error names the path.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);
void remove_tree(const std::filesystem::path& path);
/// Removes a checkpoint. It is first marked and renamed, so that a partly removed one never looks complete, and the
/// next start removes the rest.
void remove_checkpoint(const std::filesystem::path& path);

/// A directory that has its final name only when it is complete. Its files are first written to `FINAL.partial`.
class PartialDirectory {
 public:
  /// Creates FINAL.partial with the marker; first removes one left by a killed process. Input error when something else
  /// has that name.
  explicit PartialDirectory(std::filesystem::path final_path);
  ~PartialDirectory();  ///< removes an uncommitted directory
  PartialDirectory(const PartialDirectory&) = delete;
  PartialDirectory& operator=(const PartialDirectory&) = delete;

  const std::filesystem::path& path() const { return partial_; }

  /// Writes the manifest, renames the directory, and makes the name durable. An existing directory under the final name
  /// is renamed to FINAL.replaced and removed when the new one is in place. Returns the size of the manifest. On an
  /// error the previous state is restored, with two exceptions that the text of the error reports: the directory could
  /// not be synced after the rename (the complete new directory and FINAL.replaced stay), or FINAL.replaced could not
  /// be removed.
  int64_t commit(const Manifest& manifest);

 private:
  std::filesystem::path final_;
  std::filesystem::path partial_;
  std::filesystem::path existing_;  // nearest ancestor that existed before
  bool committed_ = false;
};

}  // namespace ashlar::checkpoint
