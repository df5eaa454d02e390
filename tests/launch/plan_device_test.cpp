#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "launch/plan/device.h"
#include "tests/support/sanitizers.h"
#include "tests/support/scratch_dir.h"
#include "tests/support/shell.h"
#include "tests/support/thrown.h"

namespace ashlar::plan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string input_error_of(const std::function<void()>& call) {
  const Error error = ashlar::testing::error_of(call);
  EXPECT_EQ(error.code(), ExitCode::kInput);
  return error.what();
}

std::string h100_text() {
  for (const DeviceText& text : device_texts())
    if (text.name == "h100-sxm") return std::string(text.toml);
  return "";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(PlanDevice, EveryBuiltInFileIsReadAndWrittenBack) {
  ASSERT_GE(device_texts().size(), 8U);
  for (const DeviceText& text : device_texts()) {
    const Device device = device_named(std::string(text.name));
    EXPECT_LE(device.bf16.sustained, device.bf16.peak) << text.name;
    EXPECT_LE(device.bf16.streaming, device.bandwidth) << text.name;
    EXPECT_GT(device.inter.bandwidth + device.intra.bandwidth, 0) << text.name;
    const std::string written = to_toml(device);
    EXPECT_EQ(to_toml(parse_device(written, "again")), written) << text.name;
    EXPECT_EQ(device.bf16.peak, parse_device(written, "again").bf16.peak) << text.name;
  }
}

TEST(PlanDevice, ProductsAreSlowerTheFewerTermsTheySum) {
  const DtypeRates rates{.peak = 2e12, .sustained = 1e12, .half_terms = 128};
  EXPECT_DOUBLE_EQ(rates.seconds(1e12, 128), 2);
  EXPECT_NEAR(rates.seconds(1e12, 1 << 20), 1, 2e-4);
}

TEST(PlanDevice, AttentionIsInterpolatedBetweenLengthsOfTheNearestWidth) {
  const std::vector<AttentionRates> rows = {
      {64, 1024, 100, 50}, {64, 4096, 200, 150}, {128, 1024, 1000, 1000}, {128, 4096, 2000, 2000}};
  EXPECT_DOUBLE_EQ(attention_rates(rows, 64, 2048).forward, 150);
  EXPECT_DOUBLE_EQ(attention_rates(rows, 80, 2048).backward, 100);
  EXPECT_DOUBLE_EQ(attention_rates(rows, 64, 100).forward, 100);
  EXPECT_DOUBLE_EQ(attention_rates(rows, 256, 99999).forward, 2000);
}

TEST(PlanDevice, AnUnknownDeviceListsTheKnownOnes) {
  EXPECT_THAT(input_error_of([] { device_named("h100"); }),
              AllOf(HasSubstr("got 'h100'"), HasSubstr("h100-sxm"), HasSubstr("rtx-5090"), HasSubstr("bench device")));
}

TEST(PlanDevice, ADamagedFileNamesKeyExpectedAndGot) {
  const auto error = [](const std::string& from, const std::string& to) {
    return input_error_of([&] { parse_device(replaced(h100_text(), from, to), "my.toml"); });
  };
  EXPECT_THAT(error("peak = 9.894e14", "peak = \"fast\""),
              HasSubstr("my.toml: bf16.peak: expected a number of 0 or more, got 'fast'"));
  EXPECT_THAT(error("peak = 9.894e14", "peak = 0.0"), HasSubstr("bf16.peak: expected a rate above 0, got 0"));
  EXPECT_THAT(error("peak = 9.894e14", ""), HasSubstr("bf16.peak: expected a number of 0 or more, got nothing"));
  EXPECT_THAT(error("peak = 9.894e14", "peek = 1.0\npeak = 9.894e14"), HasSubstr("bf16.peek: expected no such key"));
  EXPECT_THAT(error("kind = \"cuda\"", "kind = \"tpu\""), HasSubstr("kind: expected \"cpu\" or \"cuda\", got 'tpu'"));
  EXPECT_THAT(error("[memory]", "[memory"), HasSubstr("expected TOML"));
  EXPECT_THAT(error("head_dim = 64", "head_dim = -1"),
              HasSubstr("attention[0].head_dim: expected a whole number above 0, got -1"));
}

TEST(PlanDevice, ThisMachineIsReadFromTheCacheFolder) {
  const ashlar::testing::ScratchDir dir;
  ::setenv("XDG_CACHE_HOME", dir.path().c_str(), 1);
  EXPECT_THAT(input_error_of([] { device_or_measured({}); }),
              AllOf(HasSubstr(measured_device_path()), HasSubstr("run ashlar bench device once")));
  std::filesystem::create_directories(dir.path() / "ashlar");
  std::ofstream(dir.path() / "ashlar" / "device.toml") << h100_text();
  EXPECT_EQ(device_or_measured({}).bf16.peak, device_named("h100-sxm").bf16.peak);
  EXPECT_EQ(device_or_measured("h200").capacity, device_named("h200").capacity);
  ::unsetenv("XDG_CACHE_HOME");
}

/// Two ranks measure themselves and the link between them; what they write is what plan reads.
TEST(PlanDevice, BenchDeviceWritesAFileThatIsRead) {
  if (ashlar::testing::under_address_sanitizer()) GTEST_SKIP() << "minutes of kernels that the suite kernels runs";
  const ashlar::testing::ScratchDir dir;
  const std::string binary = ashlar::testing::shell_quote(ASHLAR_BINARY), out = dir.file("new/device.toml");
  const ashlar::testing::ShellResult r = ashlar::testing::run_shell(
      binary + " launch -np 2 bench device --threads 1 --seconds 0.001 --out " + ashlar::testing::shell_quote(out));
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(r.out, HasSubstr("wrote " + out));
  const Device device = device_named(out);
  EXPECT_EQ(device.kind, DeviceKind::kCpu);
  EXPECT_EQ(device.threads, 1);
  EXPECT_THAT(device.source, HasSubstr("2 ranks of 1 thread"));
  for (const double rate : {device.bf16.sustained, device.fp32.sustained, device.optimizer, device.bandwidth,
                            device.intra.bandwidth, attention_rates(device.attention_bf16, 64, 1024).backward}) {
    EXPECT_GT(rate, 1e6);
    EXPECT_LT(rate, 1e14);
  }
  EXPECT_LT(device.fp32.sustained, 1.2 * device.fp32.peak);
  const ashlar::testing::ShellResult bad = ashlar::testing::run_shell(binary + " bench device --ot x");
  EXPECT_EQ(bad.code, 2);
  EXPECT_THAT(bad.err, HasSubstr("--out"));
}

}  // namespace
}  // namespace ashlar::plan
