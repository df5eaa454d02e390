#include "core/io/lfs_pointer.h"

#include "core/base/printable.h"

namespace ashlar::io {

Error lfs_pointer_error(std::string_view where, const std::filesystem::path& path) {
  return input_error(where, printable(path.string()),
                     " is a git-lfs pointer, not the file itself; download the file with `git lfs pull` in its "
                     "folder (after git lfs install), or download it directly");
}

}  // namespace ashlar::io
