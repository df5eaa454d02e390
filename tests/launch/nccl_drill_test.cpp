// A rank that dies, or stays away, while the others' devices wait for it in a sum over NCCL: named, every rank ends its
// communication, exit code 5.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/base/strings.h"
#include "tests/support/shell.h"

namespace ashlar::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

ShellResult three_ranks([[maybe_unused]] const std::string& what) {
#ifdef ASHLAR_NCCL_HANG_PROGRAM
  return run_shell(str_cat("export ASHLAR_NCCL=", shell_quote(ASHLAR_STAND_IN_NCCL), "; exec timeout -s KILL 60 ",
                           shell_quote(ASHLAR_SOURCE_DIR), "/launch/scripts/with_ranks.sh 3 ",
                           shell_quote(ASHLAR_NCCL_HANG_PROGRAM), " ", what));
#else
  return {};
#endif
}

class NcclDrill : public ::testing::Test {
 protected:
  void SetUp() override {
#ifndef ASHLAR_NCCL_HANG_PROGRAM
    GTEST_SKIP() << "no nccl.h to build the stand-in against";
#endif
  }
};

TEST_F(NcclDrill, ARankThatDiesInASumIsNamed) {
  const ShellResult r = three_ranks("dies");
  EXPECT_NE(r.code, 0);
  EXPECT_THAT(r.err, AllOf(ContainsRegex("ashlar: \\[rank 2 of 3 on .*\\] died"), HasSubstr("at step 5"),
                           ContainsRegex("rank [01] ended its communication")));
}

TEST_F(NcclDrill, ARankThatStaysAwayFromASumIsNamed) {
  const ShellResult r = three_ranks("hangs");
  EXPECT_NE(r.code, 0);
  EXPECT_THAT(r.err,
              AllOf(HasSubstr("ashlar: hang: no rank has made progress for"),
                    ContainsRegex("ashlar: hang: rank 2 of 3 on [^ ]+ is behind: its last operation on world is number "
                                  "3, rank [01] has issued all_reduce"),
                    HasSubstr("the job ends here"), ContainsRegex("rank [01] ended its communication")));
}

}  // namespace
}  // namespace ashlar::testing
