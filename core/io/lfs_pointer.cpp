#include "core/io/lfs_pointer.h"

#include "core/base/printable.h"

namespace ashlar::io {

bool is_lfs_pointer(std::string_view begin) { return begin.starts_with("version https://git-lfs.github.com/spec/"); }

Error lfs_pointer_error(std::string_view where, const std::filesystem::path& path) {
  return input_error(where, printable(path.string()),
                     " is a git-lfs pointer, not the file that it stands for; fetch that with `git lfs pull` in its "
                     "folder (git lfs install comes first), or download it by itself");
}

}  // namespace ashlar::io
