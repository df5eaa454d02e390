// Runs that earlier versions trained with run.device = "emulated", which is no device of the program any more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "parallel/checkpoint/manifest.h"
#include "tests/launch/run_fixture.h"

namespace ashlar::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string with_old_device(std::string toml) {
  const std::string now = "device = \"cpu\"";
  const size_t at = toml.find(now);
  if (at == std::string::npos) throw std::runtime_error("no run.device in " + toml);
  return toml.replace(at, now.size(), "device = \"emulated\"");
}

TEST(RemovedDevice, AnOldRunGetsOneErrorAndGoesOnWithAnotherDevice) {
  const RunFixture run;
  ASSERT_EQ(run.ashlar("train tiny.toml train.steps=6").code, 0);
  std::filesystem::remove_all(run.dir() / "run/checkpoints/step-00000006");
  const std::string file = "run/checkpoints/step-00000003/manifest.json";
  checkpoint::Manifest manifest = checkpoint::parse_manifest(run.read(file), file);
  manifest.config_toml = with_old_device(manifest.config_toml);
  run.write(file, checkpoint::manifest_text(manifest));
  run.write("run/config.toml", with_old_device(run.read("run/config.toml")));
  for (const char* words : {"train run", "train tiny.toml run.device=emulated"}) {
    const ShellResult refused = run.ashlar(words);
    EXPECT_EQ(refused.code, 2) << words;
    EXPECT_THAT(refused.err, AllOf(HasSubstr("run.device = \"emulated\": not supported by this version"),
                                   HasSubstr("the emulated GPU is part of the tests now; set run.device=cpu")))
        << words;
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  }
  // What reads the checkpoint does not ask what computed it.
  EXPECT_EQ(run.ashlar("eval run").code, 0);
  const ShellResult on = run.ashlar("train run run.device=cpu");
  ASSERT_EQ(on.code, 0) << on.err;
  EXPECT_THAT(on.out, HasSubstr("step-00000003 at step 3"));
}

}  // namespace
}  // namespace ashlar::testing
