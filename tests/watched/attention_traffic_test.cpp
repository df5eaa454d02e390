// Bytes that attention moves in bf16, and bank conflicts of its tiles, where rows are aligned: what training runs.
#include <gtest/gtest.h>

#include <iomanip>
#include <iostream>
#include <map>

#include "core/base/bf16.h"
#include "kernels/cuda/emulated_backend.h"
#include "tests/kernels/cases/attention_call.h"

namespace ashlar::testing {
namespace {

using Table = std::map<std::string, emulator::Traffic>;

Table traffic_of(AttentionCall<BF16>& call) {
  Table table;
  call.run([&](Backend& backend, Stream& stream) {
    backend.attention_forward(call.forward_args(), stream);
    backend.attention_backward(call.backward_args(GradMode::kOverwrite), stream);
    stream.synchronize();
    table = static_cast<instrumented::EmulatedBackend&>(backend).device().state().gpu.machine().traffic();
  });
  return table;
}

TEST(AttentionTraffic, WholeSectorsAndNoBankConflict) {
  for (const int64_t D : {64, 128}) {
    AttentionCall<BF16> call({.T_q = 512, .T_kv = 512, .H = 2, .G = 1, .D = D, .align = 64});
    for (const auto& [kernel, t] : traffic_of(call)) {
      std::cout << "D " << D << " " << std::left << std::setw(34) << kernel << std::right << std::setw(12)
                << t.read_sectors * 32 << std::setw(12) << t.write_sectors * 32 << std::fixed << std::setprecision(3)
                << std::setw(8) << t.sector_ratio() << std::setw(10) << t.shared_passes << std::setw(10)
                << t.bank_conflicts() << "\n";
      EXPECT_EQ(t.bank_conflicts(), 0) << kernel;
      EXPECT_LE(t.sector_ratio(), 1.01) << kernel;
    }
  }
}

}  // namespace
}  // namespace ashlar::testing
