#include "kernels/cpu/cpu_info.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "core/base/strings.h"
#include "tests/support/shell.h"

namespace ashlar::cpu {
namespace {

constexpr const char* kExpected = "ASHLAR_TEST_CORES";

// OpenMP reads its variables before main(): this test runs itself with them set, and the copy compares.
TEST(CpuInfo, CountsTheCoresOfTheOpenMpPlaces) {
  if (const char* expected = std::getenv(kExpected); expected != nullptr) {
    EXPECT_EQ(detect_cpu().cores, std::atoi(expected));
    return;
  }
  if (std::getenv("OMP_PROC_BIND") != nullptr || std::getenv("OMP_PLACES") != nullptr ||
      std::getenv("GOMP_CPU_AFFINITY") != nullptr) {
    GTEST_SKIP() << "already bound: the machine's own cores are not known here";
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  const int all = CPU_COUNT(&set);
  int first = 0;
  while (!CPU_ISSET(first, &set)) ++first;
  EXPECT_EQ(detect_cpu().cores, all);
  const std::string self = testing::shell_quote(std::filesystem::read_symlink("/proc/self/exe").string());
  const auto expect = [&](const std::string& environment, int cores) {
    const testing::ShellResult result = testing::run_shell(str_cat(
        environment, " ", kExpected, "=", cores, " ", self, " --gtest_filter=CpuInfo.CountsTheCoresOfTheOpenMpPlaces"));
    EXPECT_EQ(result.code, 0) << environment << "\n" << result.out << result.err;
    EXPECT_NE(result.out.find("[  PASSED  ] 1 test"), std::string::npos) << result.out;
  };
  expect("OMP_PROC_BIND=false", all);
  expect("OMP_PROC_BIND=true", all);
  expect("OMP_PROC_BIND=spread OMP_PLACES=threads", all);
  expect("OMP_PROC_BIND=master OMP_PLACES=threads", 1);
  expect(str_cat("OMP_PROC_BIND=close OMP_PLACES='{", first, "},{", first, "}'"), 1);
}

}  // namespace
}  // namespace ashlar::cpu
