#include "parallel/checkpoint/partial.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/io/atomic_file.h"
#include "core/io/posix_file.h"

namespace ashlar::checkpoint {
namespace {

/// Makes the name FINAL.partial available: removes a directory that this program may delete, and throws if anything
/// else has that name.
void clear_the_way(const std::filesystem::path& partial) {
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(partial, error))) return;
  if (!is_ours(partial)) {
    throw input_error("checkpoint", "expected no file or directory ", printable(partial.string()),
                      ", got one that this program did not write (it has no ", kMarkerFile,
                      "); rename or remove it, or choose another output");
  }
  remove_tree(partial);
}

}  // namespace

std::filesystem::path partial_path(std::filesystem::path final_path) { return final_path += kPartialSuffix; }

void mark(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kMarkerFile;
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd < 0) throw io::system_error("checkpoint", "create", path, errno);
  ::close(fd);
  io::sync_directory(directory);
}

bool is_ours(const std::filesystem::path& directory) {
  std::error_code error;
  if (!std::filesystem::is_directory(std::filesystem::symlink_status(directory, error))) return false;
  if (std::filesystem::is_regular_file(std::filesystem::symlink_status(directory / kMarkerFile, error))) return true;
  return std::filesystem::is_empty(directory, error) && !error;
}

void rename_path(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    throw io::system_error("checkpoint", str_cat("rename ", printable(from.string()), " to"), to, errno);
  }
}

void remove_tree(const std::filesystem::path& path) {
  std::error_code error;
  // The marker is removed last, so that an interrupted removal can be continued.
  for (std::filesystem::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename() == kMarkerFile) continue;
    std::error_code problem;
    std::filesystem::remove_all(at->path(), problem);
    if (problem) throw io::system_error("checkpoint", "remove", at->path(), problem.value());
  }
  std::filesystem::remove_all(path, error);
  if (error) throw io::system_error("checkpoint", "remove", path, error.value());
}

void remove_checkpoint(const std::filesystem::path& path) {
  const std::filesystem::path partial = partial_path(path);
  clear_the_way(partial);
  mark(path);
  rename_path(path, partial);
  remove_tree(partial);
}

PartialDirectory::PartialDirectory(std::filesystem::path final_path)
    : final_(std::move(final_path)), partial_(partial_path(final_)) {
  std::error_code error;
  existing_ = final_.parent_path();
  while (!existing_.empty() && !std::filesystem::exists(existing_, error)) existing_ = existing_.parent_path();
  io::create_directories(final_.parent_path());
  clear_the_way(partial_);
  std::filesystem::create_directory(partial_, error);
  if (error) throw io::system_error("checkpoint", "create directory", partial_, error.value());
  try {
    mark(partial_);
  } catch (const Error&) {
    std::filesystem::remove(partial_, error);  // still empty
    throw;
  }
}

PartialDirectory::~PartialDirectory() {
  if (committed_) return;
  try {
    remove_tree(partial_);
  } catch (const std::exception&) {
    // This code may run because disk or memory failed, so errors are ignored. The files that are left are removed by
    // the next save of the same checkpoint, or by remove_leftovers at the next start.
  }
}

int64_t PartialDirectory::commit(const Manifest& manifest) {
  const std::string text = manifest_text(manifest);
  io::write_file_atomically(partial_ / kManifestFile, text);
  std::filesystem::path replaced = final_;
  replaced += kReplacedSuffix;
  std::error_code error;
  const bool replaces = std::filesystem::exists(final_, error);
  if (replaces) {
    mark(final_);
    rename_path(final_, replaced);
  }
  // exists() is false for a dangling symbolic link, but rename() cannot replace the link with a directory.
  if (!replaces && std::filesystem::is_symlink(std::filesystem::symlink_status(final_, error)))
    std::filesystem::remove(final_, error);
  try {
    rename_path(partial_, final_);
  } catch (const Error&) {
    if (replaces) rename_path(replaced, final_);
    throw;
  }
  committed_ = true;
  std::filesystem::remove(final_ / kMarkerFile, error);  // a complete checkpoint has no marker
  try {
    // Syncs the parent directories up to the first one that existed before the save, since a new run directory must
    // survive a power failure too.
    std::filesystem::path parent = final_.parent_path();
    for (; parent != existing_; parent = parent.parent_path()) io::sync_directory(parent);
    io::sync_directory(parent);
  } catch (const Error& problem) {
    throw Error(problem.code(), "checkpoint",
                str_cat(printable(final_.string()),
                        " is written and kept, but a power failure may still undo its rename: ", problem.what()));
  }
  if (replaces) remove_tree(replaced);
  return static_cast<int64_t>(text.size());
}

}  // namespace ashlar::checkpoint
