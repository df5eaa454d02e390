#include "core/base/hash_map.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <exception>
#include <new>
#include <string>

#include "tests/support/address_limit.h"
#include "tests/support/sanitizers.h"

namespace ashlar {
namespace {

/// The handler of the program ends with the code for memory; so does this one, when the exception is there to be seen.
void leave() {
  try {
    std::rethrow_exception(std::current_exception());
  } catch (const std::bad_alloc&) {
    _exit(6);
  } catch (...) {
    _exit(1);
  }
}

template <typename Work>
void with_little_memory(const Work& work) {
  std::set_terminate(leave);
  if (!testing::limit_addresses_to(int64_t{24} << 20)) _exit(6);
  try {
    work();
  } catch (const std::bad_alloc&) {
    _exit(2);  // a table was destroyed on the way here
  }
  _exit(3);
}

TEST(HashMap, EndsTheProgramInOrderWhenItCannotGrow) {
  if (testing::under_address_sanitizer()) GTEST_SKIP() << "which reserves more addresses than any limit";
  const auto grow = [] {
    HashMap<std::string, int64_t> map;
    for (int64_t i = 0;; ++i) map[std::to_string(i)] += i;
  };
  EXPECT_EXIT(with_little_memory(grow), ::testing::ExitedWithCode(6), "");
  const auto insert = [] {
    HashMap<int64_t, int64_t> map;
    for (int64_t i = 0;; ++i) map.emplace(i, i);
  };
  EXPECT_EXIT(with_little_memory(insert), ::testing::ExitedWithCode(6), "");
  EXPECT_EXIT(with_little_memory([] { HashMap<int64_t, int64_t>().reserve(size_t{1} << 40); }),
              ::testing::ExitedWithCode(6), "");
}

}  // namespace
}  // namespace ashlar
