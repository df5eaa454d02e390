#include "launch/hf/export_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/str_split.h"
#include "core/base/error.h"
#include "core/io/atomic_file.h"
#include "core/io/posix_file.h"
#include "launch/hf/shards.h"

namespace ashlar::hf {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kJournalStart = "ashlar export 1, files: ";

/// Returns the names of all files that an export writes, and of their temporary files.
std::set<std::string> all_of(const ExportFolder::Names& own) {
  std::set<std::string> names = own.beside;
  names.insert(std::string(kConfigFile));
  if (own.shards > 1) names.insert(std::string(kIndexFile));
  for (size_t s = 0; s < own.shards; ++s) names.insert(shard_file(s, own.shards));
  for (const std::string& name : std::set<std::string>(names)) names.insert(io::partial_path(name).string());
  return names;
}

std::vector<std::string> model_files_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (is_model_file(io::without_partial(name).string())) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

std::string journal_text(const ExportFolder::Names& names) {
  std::string text = str_cat(kJournalStart, names.shards, "\n");
  for (const std::string& name : names.beside) text += name + "\n";
  return text;
}

/// True if `name` may be an extra (non-model) file of an export: a plain file name, not hidden, not a model file.
bool may_be_beside(std::string_view name) {
  return !name.empty() && name[0] != '.' && name.find('/') == std::string_view::npos && !is_model_file(name);
}

/// Reads a journal. Ashlar writes journals atomically, so a text that does not parse comes from another program.
ExportFolder::Names read_journal(const fs::path& path) {
  constexpr size_t kMost = 1'000'000;  // largest number of shards accepted; no model has as many tensors
  const std::string text = io::read_text_file(path, 4096);
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  ExportFolder::Names names;
  if (lines[0].starts_with(kJournalStart) && lines.size() > 1 && lines.back().empty()) {
    names.shards = parse_number<size_t>(lines[0].substr(kJournalStart.size())).value_or(0);
    names.beside = {lines.begin() + 1, lines.end() - 1};
    const bool good = std::ranges::all_of(names.beside, may_be_beside);
    if (good && names.shards > 0 && names.shards <= kMost) return names;
  }
  throw input_error(
      "export", printable(path.string()),
      ": expected the journal that an interrupted export leaves, got another file; nothing was touched: choose another "
      "directory, or move that file away");
}

}  // namespace

// The delegated constructor completes the object, so that the destructor runs when the code below throws.
ExportFolder::ExportFolder(fs::path path, Names names, Log& log) : ExportFolder() {
  path_ = std::move(path);
  names_ = std::move(names);
  std::error_code ignored;
  for (fs::path folder = path_; !folder.empty() && !fs::exists(folder, ignored); folder = folder.parent_path())
    created_.push_back(folder);
  io::create_directories(path_);
  try {
    lock();
    take_over(log);
    claim();
  } catch (const Error&) {
    for (const fs::path& folder : created_) ::rmdir(folder.c_str());  // fails for a folder that is not empty
    throw;
  }
}

ExportFolder::~ExportFolder() {
  if (fd_ >= 0) ::close(fd_);
}

void ExportFolder::lock() {
  fd_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd_ < 0) throw io::system_error("export", "open directory", path_, errno);
  // On a file system without flock() the export continues without a lock.
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw input_error("export", "another export is writing to ", printable(path_.string()),
                      "; wait for it or choose another directory");
  }
}

void ExportFolder::take_over(Log& log) {
  const fs::path journal = path_ / kJournalFile;
  std::error_code ignored;
  const bool interrupted = fs::exists(fs::symlink_status(journal, ignored));
  const Names left = interrupted ? read_journal(journal) : Names();
  // config.json is written last. So a folder with a config.json contains a complete export, or the files of another
  // program.
  const bool whole = fs::exists(path_ / kConfigFile, ignored);
  const std::set<std::string> ours = interrupted && !whole ? all_of(left) : std::set<std::string>();
  for (const std::string& name : model_files_in(path_)) {
    if (ours.contains(name)) continue;
    throw input_error("export", printable((path_ / name).string()), " exists; nothing was touched: choose an empty",
                      " directory, or move the model away");
  }
  for (const std::string& name : names_.beside) {
    if (ours.contains(name) || !fs::exists(fs::symlink_status(path_ / name, ignored))) continue;
    throw input_error("export", printable((path_ / name).string()), " exists; nothing was touched: choose an empty",
                      " directory, move the file away, or keep it and export the model alone with --no-tokenizer");
  }
  if (!interrupted) return;
  int removed = 0;
  for (const std::string& name : ours) {
    if (::unlink((path_ / name).c_str()) == 0) ++removed;
  }
  log.info(str_cat("note: an export to ", printable(path_.string()), " was interrupted; removed the ", removed,
                   " files that it left"));
}

void ExportFolder::claim() {
  // Replaces the journal of an interrupted export, whose files have been removed.
  io::write_file_atomically(path_ / kJournalFile, journal_text(names_));
}

void ExportFolder::finish() noexcept {
  // An error is ignored: once config.json exists, a journal has no effect.
  ::unlink((path_ / kJournalFile).c_str());
}

void ExportFolder::remove() noexcept {
  try {
    for (const std::string& name : all_of(names_)) ::unlink((path_ / name).c_str());
    // The journal is removed last, so that the next export can complete an interrupted removal.
    ::unlink((path_ / kJournalFile).c_str());
    for (const fs::path& folder : created_) ::rmdir(folder.c_str());
  } catch (const std::exception&) {
    // The journal stays, so that the next export can remove the remaining files.
  }
}

}  // namespace ashlar::hf
