#include "tests/support/full_pipe.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <stdexcept>

namespace ashlar::testing {

void make_full_pipe(int fd) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  const std::array<char, 4096> some{};
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  while (write(ends[1], some.data(), some.size()) > 0) {
  }
  fcntl(ends[1], F_SETFL, 0);
  if (dup2(ends[1], fd) < 0) throw std::runtime_error("no descriptor");
  close(ends[1]);
}

}  // namespace ashlar::testing
