#include "tests/support/address_limit.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

namespace ashlar::testing {

bool limit_addresses_to(int64_t more_bytes) {
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  statm >> pages;
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = pages * static_cast<rlim_t>(getpagesize()) + static_cast<rlim_t>(more_bytes);
  return setrlimit(RLIMIT_AS, &limit) == 0;
}

}  // namespace ashlar::testing
