// Generation: the cache changes nothing, sampling does what it says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/make_backend.h"
#include "launch/inference/decoder.h"
#include "launch/inference/generator.h"
#include "tests/support/lone_rank.h"

namespace ashlar::inference {
namespace {

struct Tiny {
  Tiny(const model::ModelConfig& config, DType dtype)
      : backend(kernels::make_backend({.threads = 1})),
        stream(backend->make_stream()),
        engine(*backend, *stream, lone.mesh, {.model = config, .dtype = dtype, .seed = 5, .sequence_length = 512}) {
    engine.initialize();
  }
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Stream> stream;
  mesh::LoneRank lone;
  training::Engine engine;
};

model::ModelConfig config_of(model::Topology topology, model::PosType pos) {
  model::ModelConfig c;
  c.d_model = 24;
  c.n_layers = 2;
  c.n_heads = 4;
  c.n_kv_heads = 2;
  c.head_dim = 8;
  c.d_ff = 20;
  c.vocab_size = 31;
  c.block.topology = topology;
  c.pos = {.type = pos, .max_positions = pos == model::PosType::kLearned ? 12 : 0};
  c.rope.dims = pos == model::PosType::kRope ? 8 : 0;
  c.attn.scale = 0.35;
  c.init = {.scheme = model::InitScheme::kNormal, .std = 0.4, .residual_scale = 1};
  return c;
}

std::vector<int32_t> run(training::Engine& engine, GenerateOptions options, bool cache) {
  std::vector<int32_t> ids;
  options.use_cache = cache;
  generate(engine, options, [&](int32_t id) { ids.push_back(id); });
  return ids;
}

TEST(Generate, WithTheCacheEqualsWithout) {
  for (const auto topology : {model::Topology::kSerial, model::Topology::kParallel}) {
    for (const auto pos :
         {model::PosType::kRope, model::PosType::kLearned, model::PosType::kNone, model::PosType::kT5Bias}) {
      Tiny tiny(config_of(topology, pos), DType::kFloat64);
      // 40 tokens: beyond the 12 learned positions, so the window moves.
      const GenerateOptions options{.prompt = {3, 1, 4}, .new_tokens = 40, .sampling = {.temperature = 1, .seed = 9}};
      const std::vector<int32_t> with = run(tiny.engine, options, true);
      EXPECT_EQ(with.size(), 40u);
      EXPECT_EQ(with, run(tiny.engine, options, false));
    }
  }
}

TEST(Generate, SeedDecides) {
  Tiny tiny(config_of(model::Topology::kSerial, model::PosType::kRope), DType::kFloat32);
  GenerateOptions options{.prompt = {3}, .new_tokens = 30, .sampling = {.temperature = 1, .seed = 1}};
  const auto first = run(tiny.engine, options, true);
  EXPECT_EQ(run(tiny.engine, options, true), first);
  options.sampling.seed = 2;
  EXPECT_NE(run(tiny.engine, options, true), first);
}

// A model whose weights are all zero finds every id equally likely: what is drawn shows the random numbers alone.
TEST(Generate, EveryTokenHasARandomNumberOfItsOwn) {
  const auto backend = kernels::make_backend({.threads = 1});
  const auto stream = backend->make_stream();
  mesh::LoneRank lone;
  model::ModelConfig config = config_of(model::Topology::kSerial, model::PosType::kNone);
  config.n_layers = 1;
  training::Engine engine(*backend, *stream, lone.mesh, {.model = config, .seed = 5, .sequence_length = 512});
  constexpr int64_t kDrawn = 620;
  const auto ids = run(engine, {.prompt = {3}, .new_tokens = kDrawn, .sampling = {.temperature = 1, .seed = 1}}, true);
  std::vector<int> counts(31, 0);
  int64_t repeats = 0;
  for (size_t n = 0; n < ids.size(); ++n) {
    ++counts[ids[n]];
    repeats += n > 0 && ids[n] == ids[n - 1];
  }
  double chi2 = 0;
  for (const int c : counts) chi2 += (c - 20.0) * (c - 20.0) / 20.0;
  EXPECT_LT(chi2, 67);     // 30 degrees of freedom: above it once in 10^4 seeds
  EXPECT_LT(repeats, 42);  // 20 expected, deviation 4.4: five of them
}

// When the learned positions are full, the newest half of the text is kept, and read again from position 0.
TEST(Generate, KeepsTheNewestHalfOfAFullContext) {
  for (const bool cache : {true, false}) {
    Tiny tiny(config_of(model::Topology::kSerial, model::PosType::kLearned), DType::kFloat64);
    const std::vector<int32_t> prompt{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9};  // 15: three more than positions
    const auto got = run(tiny.engine, {.prompt = prompt, .new_tokens = 30, .sampling = {.temperature = 0}}, cache);
    std::vector<int32_t> context(prompt.end() - 12, prompt.end());
    for (size_t n = 0; n < got.size(); ++n) {
      SCOPED_TRACE(n);
      std::vector<double> logits = Decoder(tiny.engine, 12, false).next_logits(context);
      logits.resize(31);
      const auto likeliest = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      ASSERT_EQ(got[n], likeliest);
      context.push_back(likeliest);
      if (context.size() > 12) context.erase(context.begin(), context.end() - 6);
    }
  }
}

TEST(Generate, StopsAtTheStopId) {
  Tiny tiny(config_of(model::Topology::kSerial, model::PosType::kRope), DType::kFloat32);
  GenerateOptions options{.prompt = {3}, .new_tokens = 400, .sampling = {.temperature = 1, .seed = 1}};
  const auto all = run(tiny.engine, options, true);
  options.stop_ids = {all[7]};
  const auto stopped = run(tiny.engine, options, true);
  EXPECT_EQ(stopped.back(), all[7]);
  EXPECT_LE(stopped.size(), 8u);
}

TEST(Generate, StopsAtAnyOfTheStopIds) {
  Tiny tiny(config_of(model::Topology::kSerial, model::PosType::kRope), DType::kFloat32);
  GenerateOptions options{.prompt = {3}, .new_tokens = 400, .sampling = {.temperature = 1, .seed = 1}};
  const auto all = run(tiny.engine, options, true);
  size_t last = 0;
  while (last < all.size() && all[last] != 7 && all[last] != 11) ++last;
  ASSERT_LT(last, all.size());
  options.stop_ids = {11, 7};
  EXPECT_EQ(run(tiny.engine, options, true), std::vector<int32_t>(all.begin(), all.begin() + last + 1));
}

// Rows of the model that no token has are likely here, and are not drawn; greedily neither.
TEST(Generate, IdsWithoutATokenAreNeverDrawn) {
  Tiny tiny(config_of(model::Topology::kSerial, model::PosType::kRope), DType::kFloat32);
  for (const double temperature : {1.0, 0.0}) {
    GenerateOptions options{.prompt = {3}, .new_tokens = 300, .sampling = {.temperature = temperature, .seed = 1}};
    const auto usual = run(tiny.engine, options, true);
    const auto drawn = [](const std::vector<int32_t>& ids, int32_t id) {
      return std::find(ids.begin(), ids.end(), id) != ids.end();
    };
    options.never = {usual[0], usual[5], usual[9]};
    const auto ids = run(tiny.engine, options, true);
    EXPECT_EQ(ids.size(), 300u);
    for (const int32_t id : options.never) EXPECT_FALSE(drawn(ids, id)) << id;
  }
}

TEST(Sampling, TemperatureTopKTopP) {
  const std::vector<double> logits{std::log(0.5), std::log(0.25), std::log(0.15), std::log(0.1),
                                   100.0};  // the last is padding
  const auto near = [](const std::vector<double>& p, std::vector<double> expected) {
    ASSERT_EQ(p.size(), expected.size());
    for (size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(p[i], expected[i], 1e-12) << i;
  };
  near(sampling_distribution(logits, 4, {}), {0.5, 0.25, 0.15, 0.1});
  near(sampling_distribution(logits, 4, {.temperature = 0}), {1, 0, 0, 0});
  near(sampling_distribution(logits, 4, {.top_k = 2}), {2.0 / 3, 1.0 / 3, 0, 0});
  near(sampling_distribution(logits, 4, {.top_p = 0.7}), {2.0 / 3, 1.0 / 3, 0, 0});
  near(sampling_distribution(logits, 4, {.top_p = 0.01}), {1, 0, 0, 0});
  const double a = 0.25, b = 0.0625, c = 0.0225, d = 0.01, sum = a + b + c + d;
  near(sampling_distribution(logits, 4, {.temperature = 0.5}), {a / sum, b / sum, c / sum, d / sum});
}

TEST(Sampling, DrawInverts) {
  const std::vector<double> p{0.5, 0, 0.25, 0.25};
  EXPECT_EQ(draw(p, 0.0), 0);
  EXPECT_EQ(draw(p, 0.49), 0);
  EXPECT_EQ(draw(p, 0.5), 2);
  EXPECT_EQ(draw(p, 0.76), 3);
  EXPECT_EQ(draw(p, 1.0), 3);
  // Rounding may leave the sum below the number: what has no probability is not drawn then either.
  EXPECT_EQ(draw(std::vector<double>{0.5, 0.4999, 0}, 0.99999), 1);
  EXPECT_EQ(draw(std::vector<double>{0, 1}, 0.0), 1);
}

}  // namespace
}  // namespace ashlar::inference
