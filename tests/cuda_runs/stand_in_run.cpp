#include "tests/cuda_runs/stand_in_run.h"

#include <stdexcept>

#include "core/base/strings.h"

namespace ashlar::testing {

namespace {

#ifdef ASHLAR_STAND_IN_NCCL
constexpr const char* kNccl = ASHLAR_STAND_IN_NCCL;
#else
constexpr const char* kNccl = "";
#endif

}  // namespace

bool StandInRun::has_nccl() { return *kNccl != '\0'; }

StandInRun::StandInRun() : run_(ASHLAR_ON_STAND_INS) {
  run_.write("gpu.toml",
             "[run]\ndevice = \"cuda\"\ndtype = \"fp32\"\nthreads = 1\nseed = 3\n"
             "[model]\nd_model = 16\nn_layers = 1\nn_heads = 2\nd_ff = 24\n"
             "[dropout]\nresid = 0.1\n"
             "[train]\nsteps = 4\nsequence_length = 8\nglobal_batch = 2\nmicro_batch = 1\neval_sequences = 1\n"
             "[optimizer]\nlr = 1e-2\n[schedule]\nwarmup_steps = 1\n[data]\npath = \"chars\"\n"
             "[checkpoint]\nevery = 2\n");
  const ShellResult built = run_.ashlar("data build text.txt --out chars --tokenizer characters");
  if (built.code != 0) throw std::runtime_error("no dataset: " + built.err);
}

std::string StandInRun::environment(const std::string& machine) const {
  return str_cat("ASHLAR_CUBLASLT=", shell_quote(ASHLAR_STAND_IN_CUBLASLT),
                 " ASHLAR_NVML=", shell_quote(ASHLAR_STAND_IN_NVML_LIBRARY), has_nccl() ? " ASHLAR_NCCL=" : "",
                 has_nccl() ? shell_quote(kNccl) : "", " ASHLAR_STAND_IN_CUDA=", shell_quote(machine), " ");
}

ShellResult StandInRun::ashlar(const std::string& words) const { return run_.ashlar(words, environment("")); }

ShellResult StandInRun::train(const std::string& words, const std::string& machine,
                              const std::string& variables) const {
  return run_.ashlar("train gpu.toml " + words, environment(machine) + variables);
}

ShellResult StandInRun::train_on_ranks(int ranks, const std::string& words, const std::string& machine,
                                       const std::string& variables) const {
  return run_shell(str_cat("cd ", shell_quote(run_.dir().string()), " && exec env ", environment(machine), variables,
                           " ", shell_quote(ASHLAR_SOURCE_DIR "/launch/scripts/with_ranks.sh"), " ", ranks, " ",
                           shell_quote(ASHLAR_ON_STAND_INS), " train gpu.toml ", words));
}

ShellResult StandInRun::on_emulator(const std::string& words) const {
  return run_shell(
      str_cat("cd ", shell_quote(run_.dir().string()), " && exec ", shell_quote(ASHLAR_ON_EMULATOR), " ", words));
}

}  // namespace ashlar::testing
