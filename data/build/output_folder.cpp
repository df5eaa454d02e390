#include "data/build/output_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "core/base/error.h"
#include "core/io/posix_file.h"

namespace ashlar::data {

namespace fs = std::filesystem;

// After the delegated constructor the object counts as constructed, so the destructor runs if the code below throws.
OutputFolder::OutputFolder(const std::string& path) : OutputFolder() {
  path_ = path;
  std::error_code ignored;
  for (fs::path folder = path_; !folder.empty() && !fs::exists(folder, ignored); folder = folder.parent_path())
    created_.push_back(folder);
  io::create_directories(path_);
  if (::access(path_.c_str(), W_OK | X_OK) != 0) throw io::system_error("data build", "write to", path_, errno);
  const int fd = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw io::system_error("data build", "open", path_, errno);
  // On a file system without locks, flock fails with another error and the build runs without a lock.
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(fd);
    created_.clear();  // these folders belong to the other build
    throw input_error("data build", "another build is writing to ", path, "; wait for it or choose another --out");
  }
  fd_ = fd;
}

OutputFolder::~OutputFolder() {
  for (const fs::path& folder : created_) ::rmdir(folder.c_str());  // fails for a folder that is not empty
  // The lock is released last. Otherwise a second build could lock the folder just before rmdir removes it.
  if (fd_ >= 0) ::close(fd_);
}

std::string OutputFolder::at(const std::string& file) const { return (path_ / file).string(); }

std::string OutputFolder::spool() const { return at("stdin.spool"); }

}  // namespace ashlar::data
