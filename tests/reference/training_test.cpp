// Runs of the optimizer step by step: real AdamW, clipping, z-loss and schedule from the reference's first weights.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/optim/lr_schedule.h"
#include "launch/training/evaluation.h"
#include "tests/reference/golden_folder.h"

namespace ashlar::testing {
namespace {

namespace fs = std::filesystem;

optim::LrScheduleKind schedule_named(const std::string& name) {
  using enum optim::LrScheduleKind;
  for (const auto kind : {kConstant, kLinear, kCosine, kWsd, kInvSqrt}) {
    if (name == optim::name_of(kind)) return kind;
  }
  throw Bug("[reference] schedule " + name);
}

class Training : public ::testing::TestWithParam<Setting> {
 protected:
  void expect_reference(DType dtype, double scalar_bound, double weight_bound) {
    const fs::path dir = golden_root() / "training" / GetParam().folder;
    std::ifstream file(dir / "run.json");
    const auto run = nlohmann::json::parse(file);
    const fs::path family = golden_root() / run.at("family").get<std::string>();
    hf::ImportedModel start = hf::import_hf(family);
    model::ModelConfig config = start.config().model;
    config.loss.z_coef = run.at("z_loss");
    const int64_t steps = run.at("steps"), M = run.at("micro_batches"), B = run.at("batch"), T = run.at("sequence");
    const int64_t warmup = run.at("warmup");
    const auto kind = schedule_named(run.at("schedule"));
    const optim::LrSchedule schedule{.kind = kind,
                                     .peak = run.at("peak"),
                                     .steps = steps,
                                     .warmup_steps = warmup,
                                     .decay_steps = kind == optim::LrScheduleKind::kWsd ? steps / 5 : steps - warmup,
                                     .min_ratio = 0.1};
    const std::string problem = LoadedEngine::problem(config, GetParam().layout);
    if (!problem.empty()) GTEST_SKIP() << problem;
    LoadedEngine loaded({.model = config,
                         .layout = GetParam().layout,
                         .dtype = dtype,
                         .optimizer = {.beta1 = run.at("betas")[0],
                                       .beta2 = run.at("betas")[1],
                                       .eps = run.at("eps"),
                                       .weight_decay = run.at("decay"),
                                       .decay_embeddings = true},
                         .clip = run.at("clip"),
                         .sequence_length = T},
                        read_model(start));
    const io::SafetensorsReader batches(dir / "batches.safetensors");
    const std::vector<int32_t> ids = read_integers(batches, "input_ids"), targets = read_integers(batches, "targets");

    for (const auto& row : run.at("rows")) {
      const int64_t s = row.at("step");
      SCOPED_TRACE(str_cat("step ", s));
      std::vector<training::DeviceBatch> slots;
      for (int64_t m = 0; m < M; ++m) {
        const size_t begin = (s * M + m) * B * T, size = B * T;
        slots.push_back(loaded.batch({.ids = std::span(ids).subspan(begin, size),
                                      .targets = std::span(targets).subspan(begin, size),
                                      .B = B,
                                      .T = T}));
      }
      training::StepResult result = loaded.engine().forward_backward(training::micro_batches(slots), s);
      const auto expect_near = [&](const char* what, double got, double expected, double bound) {
        EXPECT_LE(std::abs(got - expected), bound * std::abs(expected))
            << what << " " << got << ", reference " << expected;
      };
      EXPECT_EQ(result.valid_targets, row.at("valid_targets").get<int64_t>());
      expect_near("loss", result.loss, row.at("loss"), scalar_bound);
      expect_near("z_loss", result.z_loss, row.at("z_loss"), scalar_bound);
      expect_near("grad_norm", result.grad_norm, row.at("grad_norm"), scalar_bound);
      expect_near("lr", schedule.lr(s), row.at("lr"), 1e-12);
      loaded.engine().update(s, schedule.lr(s));
    }
    const io::SafetensorsReader final_file(dir / "final.safetensors");
    const NamedValues expected = read_as_model(family, final_file, "");
    const NamedValues got = loaded.weights();
    ASSERT_EQ(got.size(), expected.size());
    for (const auto& [name, reference] : expected) {
      // Without rotary positions a key bias has the true gradient zero: Adam turns rounding noise into steps.
      const bool noise =
          name.ends_with(".attn.k.bias") && config.pos.type != model::PosType::kRope && dtype != DType::kFloat64;
      if (noise) continue;
      EXPECT_LE(distance(got.at(name), reference) / norm(reference), weight_bound) << name;
    }
  }
};

TEST_P(Training, Fp64) { expect_reference(DType::kFloat64, 1e-6, 1e-5); }
TEST_P(Training, Fp32) { expect_reference(DType::kFloat32, 1e-5, 2e-5); }

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Training);
INSTANTIATE_TEST_SUITE_P(Golden, Training,
                         ::testing::ValuesIn(settings(golden_root() / "training",
                                                      folders_with(golden_root() / "training", "run.json"))),
                         [](const auto& at) { return at.param.name(); });

}  // namespace
}  // namespace ashlar::testing
