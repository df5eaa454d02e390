#pragma once

#include <filesystem>
#include <string_view>

#include "core/base/error.h"

namespace ashlar::io {

/// First bytes of a git-lfs pointer: a text of a few lines in place of a large file that was not downloaded
/// (https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md).
inline constexpr std::string_view kLfsPointerBegin = "version https://git-lfs.github.com/spec/";
/// True if a file with the first bytes `begin` is a git-lfs pointer. kLfsPointerBytes bytes are enough.
inline bool is_lfs_pointer(std::string_view begin) { return begin.starts_with(kLfsPointerBegin); }
inline constexpr size_t kLfsPointerBytes = 64;

/// Returns the input error for a git-lfs pointer, with advice on how to download the file.
Error lfs_pointer_error(std::string_view where, const std::filesystem::path& path);

}  // namespace ashlar::io
