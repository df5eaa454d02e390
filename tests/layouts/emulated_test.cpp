// Training on the emulated CUDA device computes, within the bounds of fp32 and fp64, what one rank on the CPU does. The
// short form takes the layouts of emulated_layouts.txt, in which every two choices meet; the long form every mesh of
// these ranks with every model of axes.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <tuple>

#include "core/base/strings.h"
#include "tests/layouts/axes.h"
#include "tests/layouts/meshes.h"
#include "tests/layouts/one_rank.h"
#include "tests/layouts/pairwise.h"
#include "tests/support/long_form.h"
#include "tests/support/ranks/ranks.h"

namespace ashlar::testing {
namespace {

constexpr size_t kMostLayouts = 24;
constexpr const char* kTable = ASHLAR_SOURCE_DIR "/tests/layouts/emulated_layouts.txt";

std::vector<Row> generated() {
  std::vector<int> sizes;
  for (const EmulatedAxis& axis : emulated_axes()) sizes.push_back(static_cast<int>(axis.values.size()));
  return pairwise_rows(sizes, emulated_row_allowed);
}

std::string text_of(const std::vector<Row>& rows) {
  std::string text =
      "# Layouts of the emulated device: every two values of two axes meet. Made by emulated_test.cpp.\n";
  const auto line = [&](const auto& word_of) {
    for (size_t axis = 0; axis < emulated_axes().size(); ++axis) {
      std::string word(word_of(axis));
      if (axis + 1 < emulated_axes().size()) {
        size_t width = emulated_axes()[axis].name.size();
        for (const std::string_view value : emulated_axes()[axis].values) width = std::max(width, value.size());
        word.resize(width + 2, ' ');
      }
      text += word;
    }
    text += "\n";
  };
  line([](size_t axis) { return emulated_axes()[axis].name; });
  for (const Row& row : rows)
    line([&](size_t axis) { return emulated_axes()[axis].values[static_cast<size_t>(row[axis])]; });
  return text;
}

/// The rows of the table in the tree.
std::vector<Row> committed() {
  std::ifstream file(kTable);
  std::vector<Row> rows;
  int lines = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#") || lines++ == 0) continue;  // the names of the axes
    std::istringstream words(line);
    Row row;
    for (const EmulatedAxis& axis : emulated_axes()) {
      std::string word;
      words >> word;
      const auto at = std::find(axis.values.begin(), axis.values.end(), word);
      EXPECT_NE(at, axis.values.end()) << axis.name << " = " << word;
      row.push_back(static_cast<int>(at - axis.values.begin()));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

model::FfnConfig act_of(std::string_view act, bool gated) {
  if (act == "limited" && gated) return {.act = Activation::kQuickGelu, .clamp = kClamp, .linear_offset = 1};
  if (act == "xielu" && gated) return {.act = Activation::kIdentity};  // xIELU's scalars are of ungated layers
  return {.act = act == "silu"    ? Activation::kSilu
                 : act == "relu2" ? Activation::kRelu2
                 : act == "xielu" ? Activation::kXielu
                                  : Activation::kQuickGelu};
}

LayoutCase case_of(const Row& row) {
  const auto is = [&](std::string_view axis, std::string_view value) { return value_of(row, axis) == value; };
  const auto count = [&](std::string_view axis) { return int64_t{std::atoi(value_of(row, axis).data())}; };
  using enum model::NormPlacement;
  const std::string_view norms = value_of(row, "norms");
  const model::NormPlacement placement = norms == "post"            ? kPost
                                         : norms == "sandwich+head" ? kSandwich
                                         : norms == "output+full"   ? kOutput
                                                                    : kPre;
  model::QkNormConfig qk_norm;
  if (norms == "sandwich+head") qk_norm.kind = model::QkNorm::kHead;
  if (norms == "output+full") qk_norm.kind = model::QkNorm::kFull;
  if (norms == "pre+head_per") {
    qk_norm = {.kind = model::QkNorm::kHeadPer, .type = NormType::kLayerNorm, .order = model::QkNormOrder::kAfterRope};
  }
  const bool latents = is("kinds", "latents");
  const Axes axes{
      .name = "row",
      .topology = is("block", "serial") ? model::Topology::kSerial : model::Topology::kParallel,
      .parallel_norms = is("block", "parallel2") ? 2 : 1,
      .n_kv_heads = count("kv_heads"),
      .tied = is("tied", "yes"),
      .pos = is("positions", "rope")      ? model::PosType::kRope
             : is("positions", "learned") ? model::PosType::kLearned
             : is("positions", "t5_bias") ? model::PosType::kT5Bias
                                          : model::PosType::kSinusoidal,
      .dropout = is("dropout", "yes"),
      .biases = is("biases", "yes"),
      .gated = is("gated", "yes"),
      .norm = is("norm", "rmsnorm") ? NormType::kRmsNorm : NormType::kLayerNorm,
      .factors = is("factors", "yes"),
      .placement = placement,
      .embed_norm = placement == kPost,
      .residual_multiplier = placement == kSandwich ? 0.5 : 1,
      .qk_norm = qk_norm,
      // The axes inside attention go with two of the table: windows and a soft cap, sinks and clipping.
      .windows = is("positions", "learned"),
      .sinks = is("factors", "yes") && !latents,
      .ffn = act_of(value_of(row, "act"), is("gated", "yes")),
      .head = is("ends", "head"),
      .table_width = is("ends", "tables") ? 20 : 24,
      .offset = is("ends", "tables") && (is("positions", "learned") || is("positions", "sinusoidal")) ? 2 : 0,
      .v_head_dim = latents && is("gated", "yes") ? 3 : 0,
      .latent = latents ? 10 : 0,
      .q_latent = latents && is("biases", "no") ? 7 : 0,
      .bias_by_layer = is("biases", "yes"),
      // As many ranks to a KV head in both kinds of layers, or all apart in one of them.
      .full_kv_heads = !is("kinds", "two")   ? 0
                       : is("kv_heads", "8") ? 2
                                             : 4};
  LayoutCase c{
      .config = config_of(axes),
      .documents = is("documents", "yes"),
      .dtype = is("dtype", "fp64") ? DType::kFloat64 : DType::kFloat32,
      .mesh = {{Axis::kPipeline, count("stages")}, {Axis::kReplica, count("data")}, {Axis::kTensor, count("tensor")}},
      .sequence_parallel = is("sequence", "yes"),
      .micro_batches = std::max<int64_t>(2, count("stages")),
      .device = "emulated"};
  for (const auto& [kind, name] : names_of(pipeline::PipelineSchedule{}))
    if (is("schedule", name)) c.schedule = kind;
  for (const auto& [recompute, name] : names_of(Recompute{}))
    if (is("recompute", name)) c.recompute = recompute;
  c.virtual_stages = c.schedule == pipeline::PipelineSchedule::kInterleaved ? 2 : 1;
  c.config.n_layers = std::max(c.config.n_layers, c.mesh[Axis::kPipeline] * c.virtual_stages);
  return c;
}

TEST(Emulated, TheTableOfLayoutsIsTheGenerators) {
  if (bootstrap().world().size() != 1) GTEST_SKIP() << "on one rank";
  const std::string made = text_of(generated()), copy = ASHLAR_BINARY "_emulated_layouts.txt";
  std::ofstream(copy) << made;
  std::ifstream file(kTable);
  const std::string written{std::istreambuf_iterator<char>(file), {}};
  EXPECT_TRUE(made == written) << "if the change is meant: cp " << copy << " " << kTable;
}

/// Not by the generator's own account: each row is allowed, and what no row has, none could have.
TEST(Emulated, EveryTwoChoicesMeetInTheTable) {
  if (bootstrap().world().size() != 1) GTEST_SKIP() << "on one rank";
  const std::vector<Row> rows = committed();
  EXPECT_LE(rows.size(), kMostLayouts);
  using Choices = std::tuple<std::string, std::string, std::string, std::string>;
  std::set<Choices> met;
  for (const Row& row : rows) {
    EXPECT_TRUE(emulated_row_allowed(row));
    for (const EmulatedAxis& a : emulated_axes())
      for (const EmulatedAxis& b : emulated_axes())
        met.emplace(a.name, value_of(row, a.name), b.name, value_of(row, b.name));
  }
  // The rules in words, as pairs that cannot meet.
  const auto apart = [](const std::string& a, const std::string& x, const std::string& b, const std::string& y) {
    const auto is = [&](const char* name, const char* value) {
      return (a == name && x == value) || (b == name && y == value);
    };
    const auto ranks = [](const std::string& axis, const std::string& value) {
      return axis == "stages" || axis == "data" || axis == "tensor" ? std::atoi(value.c_str()) : 1;
    };
    if (ranks(a, x) * ranks(b, y) > 8) return true;
    if ((is("block", "parallel") || is("block", "parallel2")) &&
        (is("norms", "post") || is("norms", "sandwich+head") || is("norms", "output+full")))
      return true;
    if (is("kinds", "latents") &&
        (is("positions", "learned") || is("positions", "sinusoidal") || is("positions", "t5_bias") ||
         is("kv_heads", "2") || is("kv_heads", "1") || is("norms", "sandwich+head") || is("norms", "output+full") ||
         is("norms", "pre+head_per")))
      return true;
    if (is("sequence", "yes") && (is("tensor", "1") || is("stages", "8"))) return true;
    return is("schedule", "interleaved") && (is("stages", "1") || is("stages", "8") || is("data", "8"));
  };
  for (const EmulatedAxis& a : emulated_axes()) {
    for (const EmulatedAxis& b : emulated_axes()) {
      if (a.name == b.name) continue;
      for (const std::string_view x : a.values) {
        for (const std::string_view y : b.values) {
          const std::string names[] = {std::string(a.name), std::string(x), std::string(b.name), std::string(y)};
          if (apart(names[0], names[1], names[2], names[3])) continue;
          EXPECT_TRUE(met.contains({names[0], names[1], names[2], names[3]}))
              << names[0] << " " << names[1] << " with " << names[2] << " " << names[3];
        }
      }
    }
  }
}

/// Those of the table's rows that these ranks make, with stages of a range.
void expect_rows_of_the_table(int64_t fewest_stages, int64_t most_stages) {
  comm::Communicator& world = bootstrap().world();
  int taken = 0;
  for (const Row& row : committed()) {
    const LayoutCase c = case_of(row);
    if (c.mesh.ranks() != world.size() || c.mesh[Axis::kPipeline] < fewest_stages ||
        c.mesh[Axis::kPipeline] > most_stages)
      continue;
    ++taken;
    SCOPED_TRACE(text_of({row}));
    expect_numbers_of_one_rank(world, c);
    if (::testing::Test::HasFailure()) return;
  }
  // Which meshes the table has changes with its axes.
  if (taken == 0) GTEST_SKIP() << "no layout of the table is for " << world.size() << " ranks";
}

TEST(Emulated, SlowLayoutsOfTheTableHaveTheGradientsOfTheCpu) { expect_rows_of_the_table(1, 2); }
TEST(Emulated, SlowFourStagesOfTheTableHaveTheGradientsOfTheCpu) {
  if (bootstrap().world().size() < 4) GTEST_SKIP() << "on four ranks and more";
  expect_rows_of_the_table(4, 4);
}
TEST(Emulated, SlowEightStagesOfTheTableHaveTheGradientsOfTheCpu) {
  if (bootstrap().world().size() < 8) GTEST_SKIP() << "on eight ranks";
  expect_rows_of_the_table(8, 8);
}

void expect_gradients_of_the_cpu(int64_t stages) {
  comm::Communicator& world = bootstrap().world();
  uint64_t turn = static_cast<uint64_t>(stages);
  for (const mesh::MeshShape& shape : meshes(world.size())) {
    if (shape.ranks() != world.size() || shape[Axis::kPipeline] != stages) continue;
    for (const bool sequence_parallel : {false, true}) {
      if (sequence_parallel && shape[Axis::kTensor] == 1) continue;
      for (const Axes& axes : kAxes) {
        ++turn;
        LayoutCase c{.config = config_of(axes),
                     .recompute = axes.recompute,
                     .documents = axes.documents,
                     .dtype = turn % 2 == 0 ? DType::kFloat64 : DType::kFloat32,
                     .mesh = shape,
                     .sequence_parallel = sequence_parallel,
                     .micro_batches = std::max<int64_t>(2, shape[Axis::kPipeline]),
                     .device = "emulated"};
        c.config.n_layers = std::max(c.config.n_layers, shape[Axis::kPipeline]);
        SCOPED_TRACE(str_cat(axes.name, " ", name_of(c.dtype), " on ", name_of(shape),
                             sequence_parallel ? ", sequence parallel" : ""));
        expect_numbers_of_one_rank(world, c);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

class EmulatedStages : public ::testing::TestWithParam<int64_t> {};
TEST_P(EmulatedStages, SlowEveryModelHasTheGradientsOfTheCpu) {
  if (!long_form()) GTEST_SKIP() << "in the long form";
  expect_gradients_of_the_cpu(GetParam());
}
INSTANTIATE_TEST_SUITE_P(Of, EmulatedStages, ::testing::Values(1, 2, 4, 8), ::testing::PrintToStringParamName());

}  // namespace
}  // namespace ashlar::testing
