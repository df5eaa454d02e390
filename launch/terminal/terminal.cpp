#include "launch/terminal/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

#include "core/base/strings.h"

namespace ashlar::terminal {

int width_of(int fd) {
  const char* const term = std::getenv("TERM");
  if (term == nullptr || std::string_view(term).empty() || std::string_view(term) == "dumb" || isatty(fd) == 0)
    return 0;
  constexpr int kUsual = 80;
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

int width_of_launcher() {
  const char* const width = std::getenv(kWidthVariable);
  if (width == nullptr) return 0;
  constexpr int kMost = 10'000;
  const auto columns = parse_number<int>(width);
  return columns && *columns > 0 && *columns <= kMost ? *columns : 0;
}

}  // namespace ashlar::terminal
