#include "launch/tasks/fetch.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "absl/strings/str_join.h"
#include "core/base/printable.h"
#include "core/base/strings.h"
#include "core/io/posix_file.h"

namespace ashlar::tasks {

namespace {

namespace fs = std::filesystem;

std::string by_hand(const Task& task, const fs::path& data) {
  return str_cat("get ", comma_list(task.source->addresses),
                 " where there is a network (licence: ", task.source->licence, "), and put or unpack it into ",
                 printable(folder_of_addresses(task, data).string()));
}

bool is_archive(std::string_view name) { return name.ends_with(".zip") || name.ends_with(".tar"); }

/// A folder that is removed unless the fetch completes.
class PartialFolder {
 public:
  explicit PartialFolder(const fs::path& data) : path_(data / ".fetch.partial") {
    remove();
    io::create_directories(path_);
  }
  ~PartialFolder() { remove(); }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  void remove() noexcept {
    std::error_code none;
    fs::remove_all(path_, none);
  }
  fs::path path_;
};

void run_or_throw(const Task& task, const fs::path& data, const std::vector<std::string>& words, const RunProgram& run,
                  const std::function<void(const std::string&)>& tell) {
  tell(absl::StrJoin(words, " "));
  const int status = run(words);
  if (status == 0) return;
  throw input_error("fetch", task.name, ": ", words[0],
                    status == 127 ? std::string(" is not installed") : str_cat(" ended with status ", status), "; ",
                    by_hand(task, data));
}

/// Returns the number of records.
int64_t checked_records(const Task& task, const fs::path& data) {
  const auto found = std::ssize(task.read(data));
  if (task.records == 0 || found == task.records) return found;
  throw damaged_error("fetch", task.name, ": ", printable((data / task.source->folder).string()), " has ", found,
                      " records, expected the published ", task.records, "; remove the folder and fetch it again");
}

void sync_all(const fs::path& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) io::sync_file(entry.path());
    if (entry.is_directory()) io::sync_directory(entry.path());
  }
  io::sync_directory(folder);
}

bool has_files(const Task& task, const fs::path& data) {
  std::error_code none;
  for (const std::string_view file : task.files)
    if (!fs::exists(data / file, none)) return false;
  return true;
}

}  // namespace

std::vector<std::string> task_list(const fs::path& data) {
  std::vector<std::string> lines;
  for (const Task& task : all_tasks()) {
    lines.push_back(str_cat(task.name, ": ", task.records == 0 ? "" : str_cat(task.records, " records, "), "licence ",
                            task.source->licence, has_files(task, data) ? ", present" : ", absent"));
    for (const std::string_view address : task.source->addresses) lines.push_back(str_cat("  from  ", address));
    for (const std::string_view file : task.files) lines.push_back(str_cat("  to    ", (data / file).string()));
  }
  return lines;
}

RunProgram run_program() {
  return [](const std::vector<std::string>& words) {
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    pid_t child = 0;
    if (posix_spawnp(&child, argv[0], nullptr, nullptr, argv.data(), environ) != 0) return 127;
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
      if (errno != EINTR) return 127;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  };
}

void fetch(const Task& task, const fs::path& data, const RunProgram& run,
           const std::function<void(const std::string&)>& tell) {
  const fs::path folder = data / task.source->folder;
  if (has_files(task, data)) {
    const int64_t records = checked_records(task, data);
    return tell(str_cat(task.name, ": present in ", printable(folder.string()), ", ", records, " records"));
  }
  std::error_code none;
  if (fs::exists(folder, none))
    throw input_error("fetch", task.name, ": ", printable(folder.string()), " exists without ", comma_list(task.files),
                      "; move it away, or complete it by hand: ", by_hand(task, data));
  const PartialFolder partial(data);
  const fs::path unpacked = partial.path() / task.source->folder, into = folder_of_addresses(task, partial.path());
  io::create_directories(into);
  for (const std::string_view address : task.source->addresses) {
    const std::string name(address.substr(address.rfind('/') + 1));
    const std::string file = ((is_archive(name) ? partial.path() : unpacked) / name).string();
    run_or_throw(task, data,
                 {"curl", "--fail", "--location", "--silent", "--show-error", "--output", file, std::string(address)},
                 run, tell);
    if (name.ends_with(".zip")) run_or_throw(task, data, {"unzip", "-q", file, "-d", into.string()}, run, tell);
    if (name.ends_with(".tar")) run_or_throw(task, data, {"tar", "-xf", file, "-C", into.string()}, run, tell);
  }
  require_files(task, partial.path());
  const int64_t records = checked_records(task, partial.path());
  sync_all(unpacked);
  fs::rename(unpacked, folder, none);
  if (none) throw io::system_error("fetch", "rename", unpacked, none.value());
  io::sync_directory(data);
  tell(str_cat(task.name, ": ", records, " records in ", printable(folder.string())));
}

}  // namespace ashlar::tasks
