// The rows that log.stats_every writes, against the checkpoint of the same step, the step's own gradient norm, and
// models cut off after each block.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
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
      deepest = engine.residual_rms({&batch.micro_batch(), 1});
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

}  // namespace
}  // namespace ashlar::testing
