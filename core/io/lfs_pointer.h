#pragma once

#include <filesystem>
#include <string_view>

#include "core/base/error.h"

namespace ashlar::io {

/// Prefix of a git-lfs pointer, which is a few lines in place of a file that was not downloaded
/// (https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md). `begin`: the first bytes of a file; kLfsPointerBytes
/// are enough.
inline constexpr std::string_view kLfsPointerBegin = "version https://git-lfs.github.com/spec/";
inline bool is_lfs_pointer(std::string_view begin) { return begin.starts_with(kLfsPointerBegin); }
inline constexpr size_t kLfsPointerBytes = 64;

/// The input error for a pointer, with advice on downloading the file.
Error lfs_pointer_error(std::string_view where, const std::filesystem::path& path);

}  // namespace ashlar::io
