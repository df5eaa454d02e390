#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "parallel/checkpoint/manifest.h"

namespace ashlar::checkpoint {

inline constexpr std::string_view kPartialSuffix = ".partial";
inline constexpr std::string_view kReplacedSuffix = ".replaced";
/// An empty file in every directory that this program may delete: written first into a partial directory, and into a
/// checkpoint before it loses its name. A whole checkpoint may hold it for a moment; readers do not look at it.
inline constexpr std::string_view kMarkerFile = ".ashlar-partial";

/// FINAL.partial.
std::filesystem::path partial_path(std::filesystem::path final_path);

/// Marks a directory as ours to delete, durably.
void mark(const std::filesystem::path& directory);
/// Whether a directory may be deleted: marked, or empty (a process was killed between making and marking it).
bool is_ours(const std::filesystem::path& directory);

/// Renames, with the error naming both. Removes a tree, with the error naming it.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);
void remove_tree(const std::filesystem::path& path);
/// Removes a checkpoint: it is marked and loses its name first, so that a half removed one is never taken for whole,
/// and the next start removes the rest.
void remove_checkpoint(const std::filesystem::path& path);

/// A directory that appears under its final name whole or not at all: files go to `FINAL.partial`.
class PartialDirectory {
 public:
  /// Creates FINAL.partial with the marker in it; what a killed process of ours left there is removed first. Input
  /// error when something else has that name, which is left as it is.
  explicit PartialDirectory(std::filesystem::path final_path);
  ~PartialDirectory();  ///< removes what was not committed
  PartialDirectory(const PartialDirectory&) = delete;
  PartialDirectory& operator=(const PartialDirectory&) = delete;

  const std::filesystem::path& path() const { return partial_; }

  /// Writes the manifest, renames the directory, makes the name durable. What stood under the final name is moved
  /// aside as FINAL.replaced and removed when the new one is in place. Returns the size of the manifest. Errors leave
  /// what was there before, but for two that say so: the directory could not be synced after the renaming (the new one
  /// stays, whole; what it replaced stays aside), or what it replaced could not be removed.
  int64_t commit(const Manifest& manifest);

 private:
  std::filesystem::path final_;
  std::filesystem::path partial_;
  std::filesystem::path existing_;  // nearest ancestor that was there before
  bool committed_ = false;
};

}  // namespace ashlar::checkpoint
