// What grows with the ranks: of all that is counted, each rank has at most log p times as much where there are p ranks,
// gradients and weights left out, of which a rank sends no more than the exchange of least bytes asks for. Four and
// eight ranks; the long form goes to 64, mesh 4 x 4 x 4 among them, loses a rank and continues on 16.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <regex>
#include <thread>

#include "core/base/strings.h"
#include "tests/launch/run_fixture.h"
#include "tests/support/long_form.h"
#include "tests/support/sanitizers.h"

namespace ashlar::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// Files opened by one rank, or the most that any rank has opened (tests/support/preload/opens.cpp).
struct Opens {
  int64_t of_mpi = 0, others = 0;
};

/// Of the rank that has most: a step, unless it says otherwise.
struct Counted {
  double messages = 0, bytes = 0, host_messages = 0, host_bytes = 0;
  double staging = 0, descriptors = 0;  ///< in all
  Opens start;                          ///< until the third step
  Opens steady;                         ///< of all ranks together, while the run went on
  double steady_seconds = 0, first_step_seconds = 0;
};

Counted counted(const std::string& log) {
  static const std::regex kLine(R"(at most ([0-9.]+) messages with ([0-9]+) bytes of tensors and )"
                                R"(([0-9.]+) messages with ([0-9]+) bytes of host values; )"
                                R"(staging ([0-9]+) bytes, descriptors ([0-9]+))");
  std::smatch found;
  if (!std::regex_search(log, found, kLine)) throw std::runtime_error("no line of traffic in " + log);
  return {.messages = std::stod(found[1]),
          .bytes = std::stod(found[2]),
          .host_messages = std::stod(found[3]),
          .host_bytes = std::stod(found[4]),
          .staging = std::stod(found[5]),
          .descriptors = std::stod(found[6])};
}

int depth_of(int ranks) { return std::bit_width(static_cast<unsigned>(ranks - 1)); }

struct Mesh {
  int data = 1, tensor = 1, pipeline = 1;
  int ranks() const { return data * tensor * pipeline; }
  std::string words() const {
    return str_cat("mesh.data=", data, " mesh.tensor=", tensor, " mesh.pipeline=", pipeline);
  }
};

constexpr int kLayers = 4;
constexpr double kRowBytes = 16 * 16 * 4;  // of a micro-batch: 16 tokens of width 16
constexpr double kWeightBytes = 70656;     // of the model, vocabulary padded to 260
constexpr double kNormBytes = 3072;        // sums of squares that the ranks add up

/// A replica's tensor ranks and stages exchange rows for each micro-batch, so there are fewer of them.
int global_batch(const Mesh& mesh) { return mesh.data == mesh.ranks() ? 64 : 16; }

/// What a step must send at most for its tensors: gradients and weights in a part for each replica; for each
/// micro-batch rows to the other tensor ranks, four times a layer and five at the end of the model, and to the next
/// stages; small vectors for the norm.
struct Exchange {
  explicit Exchange(const Mesh& m) {
    const double micro_batches = static_cast<double>(global_batch(m)) / m.data, depth = depth_of(m.ranks());
    const double rows = micro_batches * ((4.0 * kLayers / m.pipeline + 5) * (m.tensor - 1) + (m.pipeline > 1 ? 2 : 0));
    messages = rows + 2 * (m.data - 1) + 2 * depth;
    bytes = rows * kRowBytes + 2 * kWeightBytes / m.tensor * (m.data - 1) / m.data + 2 * kNormBytes * (1 + depth / 2);
  }
  double messages, bytes;
};

class Growth : public ::testing::Test {
 protected:
  static std::string words(const Mesh& mesh, const std::string& more) {
    return str_cat("launch -np ", mesh.ranks(),
                   " train tiny.toml run.threads=1 vocab.pad_to=4 model.n_layers=", kLayers,
                   " model.n_heads=4 train.micro_batch=1 train.eval_every=0 checkpoint.every=0 train.global_batch=",
                   global_batch(mesh), " ", mesh.words(), " ", more);
  }

  /// Waits until the run has written so many steps, five minutes at most: how long that takes depends on the machine.
  void wait_for_steps(const std::string& run, size_t steps) const {
    const auto start = Clock::now();
    while (!fs::exists(run_.dir() / run / "metrics.jsonl") || run_.metric(run, "loss").size() < steps) {
      if (seconds_since(start) > 300) throw std::runtime_error("no step " + str_cat(steps, " of ", run));
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  std::vector<Opens> opens(const std::string& folder) const {
    std::vector<Opens> all;
    for (const auto& rank : fs::directory_iterator(run_.dir() / folder)) {
      std::array<char, sizeof(Opens)> bytes{};
      std::ifstream(rank.path(), std::ios::binary).read(bytes.data(), bytes.size());
      std::memcpy(&all.emplace_back(), bytes.data(), sizeof(Opens));
    }
    return all;
  }
  static Opens most(const std::vector<Opens>& ranks) {
    Opens most;
    for (const Opens& o : ranks)
      most = {.of_mpi = std::max(most.of_mpi, o.of_mpi), .others = std::max(most.others, o.others)};
    return most;
  }
  static Opens sum(const std::vector<Opens>& ranks) {
    Opens sum;
    for (const Opens& o : ranks) sum = {.of_mpi = sum.of_mpi + o.of_mpi, .others = sum.others + o.others};
    return sum;
  }

  Counted run(const Mesh& mesh) const {
    const std::string name = str_cat("run-", mesh.data, "-", mesh.tensor, "-", mesh.pipeline), log = name + ".log",
                      folder = name + "-opens";
    fs::create_directory(run_.dir() / folder);
    // The address sanitizer wants to be loaded first.
    const std::string preload =
        testing::under_address_sanitizer() ? "" : str_cat(preloading(ASHLAR_OPENS_LIBRARY), " OPENS_IN=", folder);
    const auto start = Clock::now();
    const pid_t pid =
        run_.start(words(mesh, str_cat("train.steps=40961 log.every=40961 run.dir=", name)), log, preload);
    wait_for_steps(name, 3);
    const double first_step_seconds = seconds_since(start);
    // What watches the ranks looks once a second, and keeps open what it has opened.
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    const std::vector<Opens> before = opens(folder);
    const auto steady = Clock::now();
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    wait_for_steps(name, 8);
    const std::vector<Opens> after = opens(folder);
    const double steady_seconds = seconds_since(steady);
    kill(pid, SIGUSR1);
    EXPECT_EQ(RunFixture::wait_for(pid), 75) << run_.read(log);
    Counted c = counted(run_.read(log));
    EXPECT_EQ(before.size(), preload.empty() ? 0 : mesh.ranks()) << "ranks that count what they open";
    c.start = most(before);
    c.steady = {.of_mpi = sum(after).of_mpi - sum(before).of_mpi, .others = sum(after).others - sum(before).others};
    c.steady_seconds = steady_seconds;
    c.first_step_seconds = first_step_seconds;
    std::cout << mesh.words() << ": tensors " << c.messages << " messages " << c.bytes << " bytes; host values "
              << c.host_messages << " messages " << c.host_bytes << " bytes; staging " << c.staging << "; descriptors "
              << c.descriptors << "; opened at start " << c.start.of_mpi << " by MPI " << c.start.others
              << " by others, in " << c.steady_seconds << " s of steps " << c.steady.of_mpi << " and "
              << c.steady.others << " by all ranks; third step after " << c.first_step_seconds << " s" << std::endl;
    return c;
  }

  /// What holds on any mesh, where few ranks have `base`.
  static void expect_logarithmic(const Counted& c, const Counted& base, const Mesh& mesh, const Mesh& base_mesh) {
    const double growth = static_cast<double>(depth_of(mesh.ranks())) / depth_of(base_mesh.ranks());
    EXPECT_LE(c.host_messages, base.host_messages * growth);
    EXPECT_LE(c.host_bytes, base.host_bytes * growth);
    EXPECT_LE(c.staging, base.staging * growth);
    EXPECT_LE(c.descriptors, base.descriptors * growth);
    EXPECT_LE(c.start.others, static_cast<double>(base.start.others) * growth);
    // A step opens nothing, and what watches the ranks neither.
    EXPECT_EQ(c.steady.of_mpi, 0);
    EXPECT_EQ(c.steady.others, 0);
  }

  RunFixture run_;
};

TEST_F(Growth, OfWhatRanksSendAndOpenIsLogarithmicSlow) {
  std::vector<Mesh> meshes = {{.data = 8}, {.data = 2, .tensor = 2, .pipeline = 2}};
  if (long_form()) {
    for (const int ranks : {16, 32, 64}) meshes.push_back({.data = ranks});
    meshes.insert(meshes.end(), {{.data = 4, .tensor = 2, .pipeline = 2},
                                 {.data = 4, .tensor = 4, .pipeline = 2},
                                 {.data = 4, .tensor = 4, .pipeline = 4}});
  }
  const Mesh four{.data = 4};
  const Counted base = run(four);
  for (const Mesh& mesh : meshes) {
    SCOPED_TRACE(mesh.words());
    const Counted c = run(mesh);
    expect_logarithmic(c, base, mesh, four);
    const Exchange least(mesh);
    EXPECT_LE(c.messages, least.messages);
    EXPECT_LE(c.bytes, least.bytes);
  }
}

// Eight ranks lose one and go on with four; the long form: 64 with 16.
TEST_F(Growth, SlowRanksLoseOneAndFewerGoOnWithTheSameLosses) {
  const Mesh many =
      long_form() ? Mesh{.data = 4, .tensor = 4, .pipeline = 4} : Mesh{.data = 2, .tensor = 2, .pipeline = 2};
  const Mesh few = long_form() ? Mesh{.data = 4, .tensor = 2, .pipeline = 2} : Mesh{.data = 2, .tensor = 2};
  const std::string common = "run.dtype=fp64 schedule.decay_steps=1000 log.every=1 ";
  ASSERT_EQ(run_.ashlar(words(many, common + "run.dir=whole train.steps=12")).code, 0);
  const pid_t pid = run_.start(words(many, common + "run.dir=run checkpoint.every=5 train.steps=40961"), "killed.log");
  wait_for_steps("run", 5);
  for (int i = 0; i < 6000 && !fs::exists(run_.dir() / "run/checkpoints/step-00000005"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_EQ(kill(run_.rank_process(many.ranks() / 2 + 1), SIGKILL), 0);
  EXPECT_NE(RunFixture::wait_for(pid), 0) << run_.read("killed.log");
  EXPECT_THAT(run_.read("killed.log"), HasSubstr(str_cat("rank ", many.ranks() / 2 + 1, " of ", many.ranks())));
  const ShellResult r = run_.ashlar(words(few, common + "run.dir=run train.steps=12"));
  ASSERT_EQ(r.code, 0) << r.err;
  const size_t from = r.out.find("continuing from");
  ASSERT_NE(from, std::string::npos) << r.out;
  std::cout << r.out.substr(from, r.out.find('\n', from) - from) << std::endl;
  run_.expect_same_metrics("run", "whole", 1e-9);
}

}  // namespace
}  // namespace ashlar::testing
