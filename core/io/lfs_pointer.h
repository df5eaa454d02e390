#pragma once

#include <filesystem>
#include <string_view>

#include "core/base/error.h"

namespace ashlar::io {

/// Whether a file that begins so is a pointer of git-lfs: a few lines that stand for a file which was never fetched
/// (https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md). `begin`: its first bytes, kLfsPointerBytes are enough.
inline constexpr std::string_view kLfsPointerBegin = "version https://git-lfs.github.com/spec/";
inline bool is_lfs_pointer(std::string_view begin) { return begin.starts_with(kLfsPointerBegin); }
inline constexpr size_t kLfsPointerBytes = 64;

/// Input error that says so, and how to fetch the file.
Error lfs_pointer_error(std::string_view where, const std::filesystem::path& path);

}  // namespace ashlar::io
