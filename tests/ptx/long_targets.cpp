#include "tests/ptx/long_targets.h"

#include "core/base/error.h"
#include "tests/support/shell.h"

namespace ashlar::ptx {

#if defined(ASHLAR_PTX_DIR)

void make_long_targets() {
  static const testing::ShellResult made =  // once a process
      testing::run_shell("cmake --build " + testing::shell_quote(ASHLAR_BUILD_DIR) + " --target ashlar_ptx_long");
  ASHLAR_CHECK(made.code == 0, "no PTX for sm_100: ", made.out, made.err);
}

#endif

}  // namespace ashlar::ptx
