// What control groups and limits allow: from texts of files as systems have them.
#include "core/device/host_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <string>

namespace ashlar {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kMiB = int64_t{1} << 20;

using Files = std::map<std::string, std::string>;

FileReader reader_of(const Files& files) {
  return [files](const std::string& path) -> std::optional<std::string> {
    const auto found = files.find(path);
    if (found == files.end()) return std::nullopt;
    return found->second;
  };
}

// A system with version 2 alone, the process in the group of a service.
Files version_2() {
  return {{"/proc/self/cgroup", "0::/system.slice/train.service\n"},
          {"/proc/self/mountinfo",
           "24 30 0:22 / /proc rw,nosuid - proc proc rw\n"
           "35 24 0:30 / /sys/fs/cgroup rw,nosuid,nodev shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"}};
}

// A system with version 1; the cpu controller shares its hierarchy, as on most.
Files version_1(const std::string& group) {
  return {{"/proc/self/cgroup",
           "9:name=systemd:" + group + "\n4:cpu,cpuacct:" + group + "\n3:cpuset:/\n2:memory:" + group + "\n0::/\n"},
          {"/proc/self/mountinfo",
           "30 23 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n"
           "32 30 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
           "33 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:15 - cgroup cgroup rw,cpu,cpuacct\n"
           "34 30 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"}};
}

std::optional<int64_t> cores(const Files& files) { return cgroup_limits(reader_of(files)).cores; }

TEST(HostLimits, CoresOfVersion2RoundDownToOneAtLeast) {
  const std::string file = "/sys/fs/cgroup/system.slice/train.service/cpu.max";
  const auto with = [&](const std::string& text) {
    Files files = version_2();
    files[file] = text;
    return cores(files);
  };
  EXPECT_EQ(with("max 100000\n"), std::nullopt);
  EXPECT_EQ(with("400000 100000\n"), 4);
  EXPECT_EQ(with("399999 100000\n"), 3);
  EXPECT_EQ(with("150000 100000\n"), 1);
  EXPECT_EQ(with("50000 100000\n"), 1) << "half a core still trains";
  EXPECT_EQ(with("100000 50000\n"), 2) << "another period";
  for (const char* odd :
       {"", "\n", "100000", "-1 100000\n", "0 100000\n", "100000 0\n", "many cores\n", "99999999999999999999 1\n"})
    EXPECT_EQ(with(odd), std::nullopt) << odd;
  EXPECT_EQ(cores(version_2()), std::nullopt) << "a group without the controller";
  EXPECT_EQ(cores({}), std::nullopt) << "a system without control groups";
}

TEST(HostLimits, TheTightestGroupAboveCounts) {
  Files files = version_2();
  files["/sys/fs/cgroup/system.slice/train.service/cpu.max"] = "800000 100000\n";
  files["/sys/fs/cgroup/system.slice/cpu.max"] = "250000 100000\n";
  EXPECT_EQ(cores(files), 2);
  files["/sys/fs/cgroup/cpu.max"] = "100000 100000\n";  // of a container
  EXPECT_EQ(cores(files), 1);
}

TEST(HostLimits, CoresOfVersion1) {
  Files files = version_1("/docker/1234");
  const std::string folder = "/sys/fs/cgroup/cpu,cpuacct/docker/1234/";
  files[folder + "cpu.cfs_period_us"] = "100000\n";
  files[folder + "cpu.cfs_quota_us"] = "-1\n";
  EXPECT_EQ(cores(files), std::nullopt);
  files[folder + "cpu.cfs_quota_us"] = "370000\n";
  EXPECT_EQ(cores(files), 3);
  files["/sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_period_us"] = "50000\n";
  files["/sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us"] = "60000\n";
  EXPECT_EQ(cores(files), 1);
}

// Docker without a name space: the path is the host's, and what is mounted is the group itself.
TEST(HostLimits, AContainerWhoseGroupIsItsMount) {
  Files files = version_1("/docker/1234");
  files["/proc/self/mountinfo"] =
      "33 30 0:29 /docker/1234 /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
      "34 30 0:31 /docker/1234 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
  files["/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us"] = "100000\n";
  files["/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us"] = "200000\n";
  EXPECT_EQ(cores(files), 2);
}

TEST(HostLimits, MemoryOfBothVersions) {
  Files files = version_2();
  const std::string folder = "/sys/fs/cgroup/system.slice/train.service";
  files[folder + "/memory.max"] = "max\n";
  EXPECT_EQ(cgroup_limits(reader_of(files)).memory_bytes, std::nullopt);
  files[folder + "/memory.max"] = "1048576000\n";
  files[folder + "/memory.current"] = "900000000\n";
  files[folder + "/memory.stat"] = "anon 100\ninactive_file 300000000\nactive_file 100000000\n";
  files["/proc/meminfo"] = "MemTotal: 24000000 kB\nMemFree: 1 kB\nMemAvailable: 20000000 kB\n";
  EXPECT_EQ(cgroup_limits(reader_of(files)).memory_bytes, 1048576000);
  EXPECT_EQ(memory_left_bytes(reader_of(files)), 548576000) << "what files hold in the cache is given back";
  files["/proc/meminfo"] = "MemAvailable: 1000 kB\n";
  EXPECT_EQ(memory_left_bytes(reader_of(files)), 1024000);

  Files old = version_1("/batch/job");
  old["/sys/fs/cgroup/memory/memory.limit_in_bytes"] = "9223372036854771712\n";  // none
  EXPECT_EQ(cgroup_limits(reader_of(old)).memory_bytes, std::nullopt);
  old["/sys/fs/cgroup/memory/batch/job/memory.limit_in_bytes"] = "2000\n";
  old["/sys/fs/cgroup/memory/batch/job/memory.usage_in_bytes"] = "1500\n";
  old["/sys/fs/cgroup/memory/batch/job/memory.stat"] = "total_inactive_file 100\ninactive_file 7\n";
  EXPECT_EQ(cgroup_limits(reader_of(old)).memory_left_bytes, 600);
}

// A kernel built for 8,192 CPUs, which refuses masks that have no room for as many as the machine may have.
TEST(HostLimits, MachinesWithMoreThan1024Cpus) {
  const auto read = [](size_t bytes, void* mask) {
    if (bytes < 2048 / 8) return errno = EINVAL, -1;
    std::memset(mask, 0, bytes);
    for (const int cpu : {0, 1023, 1024, 2047}) static_cast<unsigned char*>(mask)[cpu / 8] |= 1 << cpu % 8;
    return 0;
  };
  EXPECT_THAT(allowed_cpus(read), ElementsAre(0, 1023, 1024, 2047));
  EXPECT_THAT(allowed_cpus([](size_t, void*) { return -1; }), IsEmpty());
  const std::vector<int> before = allowed_cpus();
  ASSERT_FALSE(before.empty());
  EXPECT_TRUE(set_allowed_cpus(std::vector<int>{before.back()}));
  EXPECT_THAT(allowed_cpus(), ElementsAre(before.back()));
  EXPECT_FALSE(set_allowed_cpus({}));
  EXPECT_TRUE(set_allowed_cpus(before));
  EXPECT_EQ(allowed_cpus(), before);
}

TEST(HostLimits, ThisProcess) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), CPU_COUNT(&mask));
  EXPECT_EQ(usable_cores(reader_of({})), CPU_COUNT(&mask));
  EXPECT_GT(memory_left_bytes(), kMiB);
  EXPECT_EQ(read_host_file("/proc/no such file"), std::nullopt);
}

TEST(HostLimits, ALimitOfAddressesIsNamedWithItsValue) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  if (before.rlim_cur != RLIM_INFINITY) GTEST_SKIP() << "limited already";
  EXPECT_THAT(memory_state_text(), HasSubstr("MiB of memory left"));
  rlimit limited = before;
  limited.rlim_cur = rlim_t{1} << 50;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limited), 0);
  const std::string text = memory_state_text();
  setrlimit(RLIMIT_AS, &before);
  EXPECT_THAT(text,
              HasSubstr("MiB of address space, limit 1073741824 MiB (ulimit -v 1099511627776); raise that limit"));
}

}  // namespace
}  // namespace ashlar
