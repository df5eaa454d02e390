// The rows that log.stats_every writes, against the checkpoint of the same step, the step's own gradient norm, and
// models cut off after each block.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "core/io/safetensors.h"
#include "kernels/make_backend.h"
#include "launch/training/engine.h"
#include "tests/launch/run_fixture.h"
#include "tests/support/lone_rank.h"

namespace ashlar::testing {
namespace {

double rms(const std::vector<float>& values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * v;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

TEST(Statistics, RowsDescribeTheStepTheyName) {
  const RunFixture run;
  const ShellResult r = run.ashlar("train tiny.toml train.steps=6 checkpoint.every=6 log.stats_every=3");
  ASSERT_EQ(r.code, 0) << r.err;
  std::map<int64_t, nlohmann::json> statistics;
  std::map<int64_t, double> grad_norm;
  std::istringstream rows(run.read("run/metrics.jsonl"));
  for (std::string line; std::getline(rows, line);) {
    const auto row = nlohmann::json::parse(line);
    if (row.contains("grad_norm")) grad_norm[row.at("step")] = row.at("grad_norm");
    if (row.contains("stats")) statistics[row.at("step")] = row.at("stats");
  }
  ASSERT_EQ(statistics.size(), 2u);
  ASSERT_TRUE(statistics.contains(3) && statistics.contains(6));

  // 1. weights: those that step 6 saved; gradients: together the norm that the step reported
  const io::SafetensorsReader saved(run.dir() / "run/checkpoints/step-00000006/weights-00000.safetensors");
  double squares = 0;
  size_t tensors = 0;
  for (const auto& tensor : saved.tensors()) {
    SCOPED_TRACE(tensor.name);
    ASSERT_TRUE(statistics[6].contains(tensor.name));
    std::vector<float> values(tensor.num_elems());
    saved.read(tensor, std::as_writable_bytes(std::span(values)));
    EXPECT_NEAR(statistics[6][tensor.name].at("weight_rms").get<double>(), rms(values), 1e-6 * rms(values));
    squares +=
        std::pow(statistics[6][tensor.name].at("grad_rms").get<double>(), 2) * static_cast<double>(values.size());
    ++tensors;
  }
  EXPECT_NEAR(std::sqrt(squares), grad_norm.at(6), 1e-6 * grad_norm.at(6));

  // 2. the residual stream: one row for the embedding and each of three blocks
  EXPECT_EQ(statistics[6].size(), tensors + 4);
  for (const char* name : {"embed", "blocks.0", "blocks.1", "blocks.2"})
    EXPECT_GT(statistics[6].at(name).at("output_rms").get<double>(), 0) << name;
}

model::ModelConfig layers(int64_t n) {
  model::ModelConfig c;
  c.d_model = 24;
  c.n_layers = n;
  c.n_heads = c.n_kv_heads = 3;
  c.head_dim = 8;
  c.d_ff = 40;
  c.vocab_size = 31;
  c.pos = {.type = model::PosType::kRope};
  c.rope.dims = 8;
  c.attn.scale = 0.35;
  c.init = {.scheme = model::InitScheme::kNormal, .std = 0.3, .residual_scale = 1};
  return c;
}

TEST(Statistics, ResidualRmsIsThatOfAModelWhichEndsThere) {
  const auto backend = kernels::make_backend({.threads = 1});
  const auto stream = backend->make_stream();
  data::Batch host;
  data::resize_batch(host, 2, 7, {});
  for (int64_t b = 0; b < 2; ++b) {
    std::vector<int32_t> row(8);
    for (int64_t t = 0; t < 8; ++t) row[t] = static_cast<int32_t>((5 * b + 3 * t * t) % 31);
    data::fill_row(host, b, row, -1, {});
  }
  std::vector<int32_t> counts;
  data::fill_order(host, 31, counts);

  std::vector<double> deepest;
  for (int64_t n = 3; n >= 1; --n) {
    mesh::LoneRank lone;
    training::Engine engine(*backend, *stream, lone.mesh, {.model = layers(n), .seed = 5, .sequence_length = 7});
    engine.initialize();
    training::DeviceBatch batch;
    batch.upload(engine.ctx(), host);
    if (n == 3) {
      engine.measure_residual();
      LossStats losses;
      engine.evaluate({&batch.micro_batch(), 1}, losses);
      deepest = engine.residual_rms();
      ASSERT_EQ(deepest.size(), 4u);
    }
    // Weights depend on seed and name alone, so the blocks of the shorter model are the first of the longer one.
    const model::Stage& whole = *engine.chunks().front();
    const Var embedded = whole.embed(engine.ctx(), batch.view());
    const auto expect_rms = [&](int64_t blocks, const Tensor& rows) {
      std::vector<float> values(rows.size());
      backend->read(rows.view(), values.data(), *stream);
      EXPECT_NEAR(deepest[blocks], rms(values), 1e-6 * rms(values)) << blocks << " blocks";
    };
    expect_rms(0, embedded.value);
    expect_rms(n, whole.blocks(engine.ctx(), embedded, batch.view()).value);
  }
  EXPECT_GT(deepest[3], 1.05 * deepest[0]) << "the blocks add nothing: the test would not see a missing one";
}

/// The rows of log.stats_every of a run, by step.
std::map<int64_t, nlohmann::json> statistics_of(const RunFixture& run, const std::string& dir) {
  std::map<int64_t, nlohmann::json> all;
  std::istringstream rows(run.read(dir + "/metrics.jsonl"));
  for (std::string line; std::getline(rows, line);)
    if (const auto row = nlohmann::json::parse(line); row.contains("stats")) all[row.at("step")] = row.at("stats");
  return all;
}

TEST(Statistics, TellTheLoadOfExpertsOnAnyMesh) {
  const RunFixture run;
  const std::string words =
      "train tiny.toml train.steps=4 schedule.warmup_steps=1 log.stats_every=1 checkpoint.every=0 moe.experts=5 "
      "moe.dense_layers=[1] "
      "moe.selection_bias=true moe.bias_rate=0.125 run.dir=";
  ASSERT_EQ(run.ashlar(words + "one").code, 0);
  std::map<int64_t, nlohmann::json> one = statistics_of(run, "one");
  ASSERT_TRUE(one.contains(1) && one.contains(4));
  EXPECT_FALSE(one[1].contains("blocks.1.moe")) << "a dense layer";
  for (const int64_t step : {1, 4}) {
    for (const char* layer : {"blocks.0.moe", "blocks.2.moe"}) {
      SCOPED_TRACE(str_cat(layer, " of step ", step));
      const nlohmann::json& load = one[step].at(layer);
      const auto counts = load.at("counts").get<std::vector<int64_t>>();
      ASSERT_EQ(counts.size(), 5u);
      EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), 4 * 16 * 2) << "two choices a token";
      EXPECT_EQ(load.at("max_over_mean"), static_cast<double>(*std::ranges::max_element(counts)) * 5 / 128);
      EXPECT_EQ(load.at("idle"), std::ranges::count(counts, 0));
      // The bias of a step moves by the rate, up or down: 128 choices are never balanced over 5 experts.
      const auto range = load.at("bias_range").get<std::vector<double>>();
      if (step == 1) {
        EXPECT_EQ(range, (std::vector<double>{-0.125, 0.125}));
      }
      for (const double bias : range) {
        EXPECT_EQ(bias / 0.125, std::round(bias / 0.125));
        EXPECT_LE(std::abs(bias), 0.125 * static_cast<double>(step));
      }
    }
  }
  ASSERT_EQ(run.ashlar("launch -np 2 " + words + "stages mesh.pipeline=2").code, 0);
  ASSERT_EQ(run.ashlar("launch -np 2 " + words + "replicas mesh.data=2 run.dtype=fp64").code, 0);
  ASSERT_EQ(run.ashlar(words + "wide run.dtype=fp64").code, 0);
  std::map<int64_t, nlohmann::json> stages = statistics_of(run, "stages"), replicas = statistics_of(run, "replicas"),
                                    wide = statistics_of(run, "wide");
  for (const int64_t step : {1, 4}) {
    for (const char* layer : {"blocks.0.moe", "blocks.2.moe"}) {
      EXPECT_EQ(stages[step].at(layer), one[step].at(layer)) << layer << " of step " << step;
      EXPECT_EQ(replicas[step].at(layer), wide[step].at(layer)) << layer << " of step " << step;
    }
  }
}

}  // namespace
}  // namespace ashlar::testing
