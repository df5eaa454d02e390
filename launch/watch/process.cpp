#include "launch/watch/process.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <system_error>

#include "core/base/strings.h"
#include "core/io/posix_file.h"

namespace ashlar::watch {

ProcessStat parse_process_stat(const std::string& text) {
  const size_t name_end = text.rfind(')');  // the name in parentheses may contain anything
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return {};
  ProcessStat result{.state = text[name_end + 2]};
  size_t at = name_end + 2;
  for (int field = 3; field < 22 && at != std::string::npos; ++field) at = text.find(' ', at + 1);
  if (at != std::string::npos) result.started = std::strtoull(text.c_str() + at, nullptr, 10);
  return result;
}

ProcessStat process_stat(int pid, int task) {
  return parse_process_stat(
      io::text_if_readable(str_cat("/proc/", pid, task == 0 ? "" : str_cat("/task/", task), "/stat")));
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string text_in(int fd) {
  char text[4096];
  const ssize_t size = fd < 0 ? -1 : pread(fd, text, sizeof(text), 0);
  return size <= 0 ? "" : std::string(text, static_cast<size_t>(size));
}

std::string boot_id() { return first_line("/proc/sys/kernel/random/boot_id"); }

std::string pid_space() {
  std::error_code none;
  return std::filesystem::read_symlink("/proc/self/ns/pid", none).string();
}

}  // namespace ashlar::watch
