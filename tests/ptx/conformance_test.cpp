// The small kernels of tests/gpu/conformance: nvcc's PTX must write the emulator's words, to the bit and whatever the
// target, and the emulator those of the golden file.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "tests/gpu/conformance/cases.h"
#include "tests/gpu/conformance/words.h"
#include "tests/gpu_emulator/device_memory.h"
#include "tests/ptx/long_targets.h"
#include "tests/ptx/ptx_kernels.h"
#include "tests/support/long_form.h"

#if defined(ASHLAR_PTX_DIR)

#include "tests/support/test_memory.h"

namespace ashlar::test {
namespace {

using conformance::Case;
using Words = DeviceVector<uint32_t>;

std::vector<Case> all_cases() {
  namespace emulated = ::ashlar::emulated::conformance;
  std::vector<Case> all;
  for (const auto cases :
       {emulated::arithmetic_cases(), emulated::function_cases(), emulated::warp_cases(), emulated::memory_cases()}) {
    all.insert(all.end(), cases.begin(), cases.end());
  }
  return all;
}

/// Runs a case with each thread's code made of the call; the emulated kernel itself without.
Words run(const Case& c, const ptx::PtxKernels* ptx, const emulator::Schedule& schedule) {
  const std::vector<uint32_t> input = conformance::inputs_of(c);
  Words in(input.begin(), input.end()), out(static_cast<size_t>(conformance::output_words(c)), 0xdeadbeefU);
  const uint32_t* const from = in.data();
  emulator::Grid grid{.name = c.name,
                      .grid = {conformance::kBlocks},
                      .block = {conformance::kThreads},
                      .shared_bytes = c.shared_bytes,
                      .thread = emulator::bind(c.kernel, from, out.data())};
  if (ptx != nullptr) grid.thread = ptx->find(emulator::describe(c.kernel, from, out.data()));
  emulator::run(grid, schedule);
  return out;
}

void expect_words_of_emulator(const std::filesystem::path& folder) {
  const ptx::PtxKernels kernels(folder, [](const void* at, int64_t bytes) {
    const auto* memory = emulator::DeviceMemory::of(at);
    return memory != nullptr && memory->holds(at, bytes);
  });
  for (const Case& c : all_cases()) {
    EXPECT_EQ(conformance::difference(c, run(c, nullptr, {}), run(c, &kernels, {}), true), "");
  }
}

/// What this build made, or what tests/mutants made with an error in it.
std::filesystem::path made_ptx() {
  const char* other = std::getenv("ASHLAR_CONFORMANCE_PTX");
  return other != nullptr ? other : ASHLAR_CONFORMANCE_PTX_DIR;
}

TEST(Conformance, PtxForSm80) { expect_words_of_emulator(made_ptx() / "compute_80"); }
TEST(Conformance, PtxForSm90) { expect_words_of_emulator(made_ptx() / "compute_90a"); }

TEST(Conformance, PtxForSm100InTheLongForm) {
  if (!ashlar::testing::long_form()) GTEST_SKIP() << "nvcc for one more target takes minutes: of the long form";
  ptx::make_long_targets();
  expect_words_of_emulator(ASHLAR_CONFORMANCE_PTX_DIR "_long/compute_100");
}

TEST(Conformance, EveryScheduleWritesTheSameWords) {
  for (const Case& c : all_cases()) {
    const Words expected = run(c, nullptr, {});
    for (const auto policy : {emulator::Policy::kLifo, emulator::Policy::kRandom, emulator::Policy::kPct}) {
      EXPECT_EQ(conformance::difference(c, expected, run(c, nullptr, {.policy = policy}), true), "");
    }
  }
}

// What changes here changes results of kernels on every device: by a new version of a compiler it may not.
TEST(Conformance, EmulatorWritesTheGoldenWords) {
  const std::string path = ASHLAR_SOURCE_DIR "/tests/gpu/golden/emulated.txt";
  std::map<std::string, std::string> golden;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name >> golden[name];
  }
  const std::string copy = ASHLAR_BUILD_DIR "/tests/ptx_conformance/emulated.txt";
  std::ofstream fresh(copy);
  for (const Case& c : all_cases()) {
    const std::string digest = conformance::digest(run(c, nullptr, {}));
    fresh << c.name << " " << digest << "\n";
    if (c.allowed > 0) continue;  // functions of the host's library among them
    EXPECT_EQ(golden[c.name], digest) << c.name << "; if that is meant: cp " << copy << " " << path;
  }
}

}  // namespace
}  // namespace ashlar::test

#endif
