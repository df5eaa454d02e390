#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/scratch_dir.h"
#include "tests/support/shell.h"

namespace ashlar {

inline std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Writes a program into a folder that need not be there yet.
inline void write_program_in_folder(const std::filesystem::path& path, const std::string& body) {
  std::filesystem::create_directories(path.parent_path());
  testing::write_program(path, body);
}

/// A bundle whose first program answers --device as `device` says, and runs `body` otherwise; the others pass.
class GpuRun : public ::testing::Test {
 protected:
  void make_bundle(const std::string& device, const std::string& body) {
    std::filesystem::create_directories(folder_ / "bin");
    std::filesystem::copy_file(ASHLAR_SOURCE_DIR "/tests/gpu/run.sh", folder_ / "run.sh",
                               std::filesystem::copy_options::overwrite_existing);
    for (const char* shared : {"machine.sh", "clocks.sh"})
      std::filesystem::copy_file(std::filesystem::path(ASHLAR_SOURCE_DIR "/tests/gpu/parts") / shared,
                                 folder_ / "bin" / shared, std::filesystem::copy_options::overwrite_existing);
    std::ofstream(folder_ / "commit") << "0123abc\n";
    testing::write_program(folder_ / "bin/gpu_conformance",
                           "if [ \"$1\" = --device ]; then " + device + "; fi\n" + body + "\n");
    for (const char* other :
         {"gpu_kernels", "nccl.sh", "training.sh", "determinism.sh", "bench.sh", "profile.sh", "two_gpus.sh", "ashlar"})
      testing::write_program(folder_ / "bin" / other, "echo \"$0 has $*, cublasLt is ${ASHLAR_CUBLASLT-none}\"\n");
  }
  testing::ShellResult run(const std::string& arguments = "") {
    return testing::run_shell(testing::shell_quote(folder_ / "run.sh") + " " + arguments);
  }

  const testing::ScratchDir scratch_;
  const std::filesystem::path folder_ = std::filesystem::path(scratch_.path()) / "bundle";
};

}  // namespace ashlar
