// Registers, spills and shared memory of each kernel as ptxas reports them, against the table beside this file.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iterator>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/strings.h"
#include "tests/ptx/kernel_names.h"
#include "tests/ptx/long_targets.h"
#include "tests/support/long_form.h"

namespace ashlar::ptx {
namespace {

struct Resources {
  int registers = 0;
  int spilled_bytes = 0;
  int shared_bytes = 0;

  std::string text() const {
    std::ostringstream out;
    out << std::setw(4) << registers << std::setw(7) << spilled_bytes << std::setw(8) << shared_bytes;
    return out.str();
  }
};
/// "sm_80  norm_forward_kernel<float>" and its like
using Table = std::map<std::string, Resources>;

#if defined(ASHLAR_PTX_DIR)

/// The name without what all kernels share.
std::string short_name(const std::string& mangled) {
  return std::regex_replace(source_name(mangled), std::regex("ashlar::(cuda::)?|\\(anonymous namespace\\)::"), "");
}

int number_before(const std::string& text, const std::string& word) {
  std::smatch found;
  return std::regex_search(text, found, std::regex("(\\d+) " + word)) ? std::stoi(found[1]) : 0;
}

/// Of what `ptxas -v` says: the name of a kernel, then its spills, then its registers.
void read_report(const std::filesystem::path& path, Table& table) {
  std::ifstream file(path);
  std::string kernel;
  const std::regex name("Compiling entry function '([^']*)' for '([^']*)'");
  for (std::string line; std::getline(file, line);) {
    std::smatch found;
    if (std::regex_search(line, found, name)) {
      kernel = found[2].str() + "  " + short_name(found[1]);
    } else if (line.find("bytes spill stores") != std::string::npos) {
      table[kernel].spilled_bytes =
          number_before(line, "bytes spill stores") + number_before(line, "bytes spill loads");
    } else if (line.find("Used ") != std::string::npos) {
      table[kernel].registers = number_before(line, "registers");
      table[kernel].shared_bytes = number_before(line, "bytes smem");
    }
  }
}

Table measured() {
  Table table;
  std::vector<std::string> folders = {ASHLAR_PTX_DIR};
  if (testing::long_form()) {
    make_long_targets();
    folders.emplace_back(ASHLAR_BUILD_DIR "/tests/ptx_long");
  }
  for (const std::string& folder : folders) {
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      if (file.path().extension() == ".resources") read_report(file.path(), table);
    }
  }
  return table;
}

/// Whether this form of the tests measures that row of the table: a build may be without the binary for sm_90a.
bool is_measured(const std::string& row) {
  if (row.starts_with("sm_90a ")) return std::filesystem::exists(ASHLAR_PTX_DIR "/compute_90a");
  return testing::long_form() || !row.starts_with("sm_100 ");
}

Table written(const std::string& path) {
  Table table;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    Resources r;
    std::string name;
    words >> r.registers >> r.spilled_bytes >> r.shared_bytes >> std::ws;
    std::getline(words, name);
    table[name] = r;
  }
  return table;
}

TEST(Resources, AreThoseOfTheTable) {
  const std::string path = ASHLAR_SOURCE_DIR "/tests/ptx/resources.txt";
  const Table now = measured(), table = written(path);
  ASSERT_FALSE(now.empty());
  Table rows = now;
  std::copy_if(table.begin(), table.end(), std::inserter(rows, rows.end()),
               [](const auto& row) { return !is_measured(row.first); });
  std::ostringstream fresh;
  for (const auto& [kernel, r] : rows) fresh << r.text() << "  " << kernel << "\n";
  std::string wrong;
  for (const auto& [kernel, r] : now) {
    const auto known = table.find(kernel);
    if (known == table.end()) {
      wrong += "  not in the table: " + kernel + "\n";
    } else if (r.registers > known->second.registers || r.spilled_bytes > known->second.spilled_bytes ||
               r.shared_bytes > known->second.shared_bytes) {
      wrong += "  more than before: " + kernel + "\n   was " + known->second.text() + "\n    is " + r.text() + "\n";
    }
  }
  for (const auto& [kernel, r] : table) {
    if (rows.find(kernel) == rows.end()) wrong += "  no such kernel any more: " + kernel + "\n";
  }
  const std::string copy = ASHLAR_PTX_DIR "_resources.txt";
  std::ofstream(copy) << "# registers, bytes spilled, bytes of static shared memory; sm, kernel. Written by tests/ptx/"
                         "resources_test.cpp.\n"
                      << fresh.str();
  EXPECT_EQ(wrong, "") << "if that is meant: cp " << copy << " " << path;
}

// What spills goes to memory once for each time that it is needed: twice as slow is nothing unusual. Of the targets
// that binaries are made for; what sm_100 spills is in the table.
TEST(Resources, NothingSpills) {
  for (const auto& [kernel, r] : measured()) {
    if (kernel.starts_with("sm_100 ")) continue;
    EXPECT_EQ(r.spilled_bytes, 0) << kernel;
  }
}

TEST(Resources, AreThoseOfEveryBinary) {
  if (!std::filesystem::exists(ASHLAR_PTX_DIR "/compute_90a"))
    GTEST_SKIP() << "built for sm_80 alone (./check --once): ./check compiles for sm_90a too";
}

#endif

}  // namespace
}  // namespace ashlar::ptx
