#include "data/source_list.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <span>

#include "core/base/error.h"
#include "core/io/atomic_file.h"
#include "core/io/posix_file.h"

namespace ashlar::data {
namespace {

namespace fs = std::filesystem;

bool named_json_lines(const std::string& path) {
  const std::string extension = fs::path(path).extension().string();
  return extension == ".jsonl" || extension == ".ndjson";
}

struct stat stat_of(const std::string& path) {
  struct stat st;
  if (::stat(path.c_str(), &st) != 0) throw io::system_error("data build", "read", path, errno);
  return st;
}

void add_file(const std::string& path, const std::string& shown, SourceFormat format, SourceList& list) {
  const struct stat st = stat_of(path);
  if (st.st_size == 0) {
    ++list.empty_files;
    return;
  }
  const bool json_lines =
      format == SourceFormat::kJsonLines || (format == SourceFormat::kAuto && named_json_lines(path));
  list.files.push_back({.path = path,
                        .shown = shown,
                        .bytes = st.st_size,
                        .modified_ns = st.st_mtim.tv_sec * int64_t{1'000'000'000} + st.st_mtim.tv_nsec,
                        .json_lines = json_lines});
  list.bytes += st.st_size;
}

void add_folder(const std::string& folder, SourceFormat format, SourceList& list) {
  std::vector<std::string> paths;
  std::error_code error;
  auto it = fs::recursive_directory_iterator(folder, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) {
      paths.push_back(it->path().string());
    } else if (!it->is_directory(ignored) || it->is_symlink(ignored)) {
      ++list.other_entries;
    }
  }
  if (error) throw io::system_error("data build", "read folder", folder, error.value());
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) add_file(path, path, format, list);
}

bool lies_inside(const fs::path& inner, const fs::path& outer) {
  const auto [in, out] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  return in == outer.end();
}

}  // namespace

SourceList list_sources(const std::vector<std::string>& inputs, SourceFormat format, const std::string& out,
                        const std::string& spool) {
  if (inputs.empty())
    throw input_error("data build", "no input; name text files, folders, JSONL files or - for standard input");
  SourceList list;
  for (const std::string& input : inputs) {
    if (input == "-") {
      add_file(spool, "standard input", format, list);
      // A spool is as old as this run: its content is told apart by its checksum instead.
      if (!list.files.empty() && list.files.back().path == spool) list.files.back().modified_ns = 0;
      continue;
    }
    const struct stat st = stat_of(input);
    if (S_ISDIR(st.st_mode)) {
      if (lies_inside(fs::weakly_canonical(out), fs::canonical(input))) {
        throw input_error("data build", "the output folder ", out, " lies inside the input folder ", input,
                          "; choose --out elsewhere");
      }
      add_folder(input, format, list);
    } else if (S_ISREG(st.st_mode)) {
      add_file(input, input, format, list);
    } else {
      throw input_error("data build", input, " is neither a file nor a folder; pipe it into - instead");
    }
  }
  if (list.files.empty()) {
    throw input_error("data build", "the input holds no text (", list.empty_files,
                      " empty files); first input: ", inputs[0]);
  }
  return list;
}

void spool_descriptor(int descriptor, const std::string& path) {
  io::AtomicFile file(path);
  std::vector<std::byte> buffer(size_t{1} << 20);
  for (;;) {
    const ssize_t n = ::read(descriptor, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw io::system_error("data build", "read", "standard input", errno);
    if (n == 0) break;
    file.write(std::span(buffer).first(static_cast<size_t>(n)));
  }
  file.commit();
}

}  // namespace ashlar::data
