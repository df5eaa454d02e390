#include "launch/training/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "core/base/error.h"

namespace ashlar::training {

namespace fs = std::filesystem;

namespace {

constexpr const char* kLockFile = ".lock";

}  // namespace

void RunDirectory::lock() {
  std::error_code error;
  fs::create_directories(path_, error);
  if (error || !fs::is_directory(path_)) {
    throw input_error("run", "cannot create the run directory ", path_.string(), ": ",
                      error ? error.message() : "a file of that name exists",
                      "; set run.dir to a directory you may write");
  }
  const fs::path lock = path_ / kLockFile;
  lock_fd_ = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_fd_ < 0) {
    throw input_error("run", "cannot write to the run directory ", path_.string(), ": ", std::strerror(errno),
                      "; set run.dir to a directory you may write");
  }
  if (flock(lock_fd_, LOCK_EX | LOCK_NB) != 0) {
    close(lock_fd_);
    throw input_error("run", "another process is training in ", path_.string(),
                      "; stop it, or set run.dir to another directory");
  }
}

void RunDirectory::check_visible() const {
  if (fs::exists(path_ / kLockFile)) return;
  throw input_error("run", "the run directory ", fs::absolute(path_).string(),
                    ", which rank 0 has opened, is not there; set run.dir to a directory that all nodes share");
}

RunDirectory::~RunDirectory() {
  if (lock_fd_ >= 0) close(lock_fd_);
}

fs::path RunDirectory::set_aside(const fs::path& path) {
  if (!fs::exists(path)) return {};
  fs::path clean = path;
  if (!clean.has_filename()) clean = clean.parent_path();
  for (int n = 1;; ++n) {
    const fs::path aside = clean.string() + ".old-" + std::to_string(n);
    if (fs::exists(aside)) continue;
    std::error_code error;
    fs::rename(clean, aside, error);
    if (error)
      throw input_error("run", "cannot rename ", clean.string(), " to ", aside.string(), ": ", error.message(),
                        "; move it by hand");
    return aside;
  }
}

}  // namespace ashlar::training
