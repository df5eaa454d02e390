// What can be told of the speed of the CUDA kernels without a GPU: its bounds, and a page of all figures.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <iterator>
#include <sstream>

#include "parallel/model/flops.h"
#include "tests/evidence/block_work.h"
#include "tests/evidence/expert_roofline.h"
#include "tests/evidence/kernel_traffic.h"
#include "tests/evidence/occupancy.h"
#include "tests/evidence/roofline.h"

namespace ashlar::evidence {
namespace {

constexpr int64_t kTokens = 128;  // of the narrow models' step

std::string number(double value, int digits) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(digits) << value;
  return out.str();
}

/// Measured once for all tests.
struct Evidence {
  std::vector<KernelRow> kernels = measure_row_kernels();
  std::map<std::string, BlockKernel> gpt2 = work_of_a_block(narrow_gpt2(), kTokens);
  std::map<std::string, BlockKernel> serial = work_of_a_block(narrow_qwen(model::Topology::kSerial), kTokens);
  std::map<std::string, BlockKernel> parallel = work_of_a_block(narrow_qwen(model::Topology::kParallel), kTokens);
  std::map<std::string, BlockKernel> experts = work_of_a_block(narrow_experts(), kTokens);

  Evidence() {
    for (KernelRow& row : measure_attention()) kernels.push_back(std::move(row));
    for (KernelRow& row : measure_routers()) kernels.push_back(std::move(row));
    for (KernelRow& row : measure_experts()) kernels.push_back(std::move(row));
  }
  static const Evidence& get() {
    static const Evidence evidence;
    return evidence;
  }
};

/// Of a row's kernel on a multiprocessor.
struct Residency {
  int registers = 0, warps = 0;
  int64_t shared_bytes = 0;
};
Residency residency_of(const KernelRow& row) {
  static const std::map<std::string, CompiledKernel> compiled = compiled_kernels();
  const auto found = compiled.find(row.measured.instance);
  if (found == compiled.end()) {
    ADD_FAILURE() << "tests/ptx/resources.txt has no kernel \"" << row.measured.instance << "\"";
    return {};
  }
  const int64_t shared = found->second.shared_bytes + row.measured.shared_bytes;
  return {.registers = found->second.registers,
          .warps = resident_warps({found->second.registers, row.measured.threads, shared}),
          .shared_bytes = shared};
}

std::string table_of_bytes() {
  std::ostringstream out;
  out << "| kernel | problem | reads; writes | read | written | of the formula | sectors | conflicts |\n"
         "|---|---|---|---|---|---|---|---|\n";
  for (const KernelRow& row : Evidence::get().kernels) {
    const emulator::Traffic& t = row.measured.traffic;
    out << "| `" << row.kernel << "` | " << row.problem << " | " << row.formula << " | " << row.read << " | "
        << row.written << " | " << number(row.read_ratio(), 3) << ", " << number(row.write_ratio(), 3) << " | "
        << number(t.sector_ratio(), 3) << " | " << t.bank_conflicts() << " |\n";
  }
  return out.str();
}

std::string table_of_occupancy() {
  std::ostringstream out;
  out << "| kernel | problem | threads a block | registers | shared bytes | warps of 64 |\n|---|---|---|---|---|---|\n";
  for (const KernelRow& row : Evidence::get().kernels) {
    const Residency r = residency_of(row);
    out << "| `" << row.measured.instance << "` | " << row.problem << " | " << row.measured.threads << " | "
        << r.registers << " | " << r.shared_bytes << " | " << r.warps << " |\n";
  }
  return out.str();
}

std::string table_of_launches() {
  const Evidence& e = Evidence::get();
  std::map<std::string, int64_t> names;
  for (const auto* block : {&e.gpt2, &e.serial, &e.parallel, &e.experts})
    for (const auto& [kernel, work] : *block) names[kernel] += work.launches;
  std::ostringstream out;
  const auto cell = [&](const std::map<std::string, BlockKernel>& block, const std::string& kernel) {
    const auto found = block.find(kernel);
    out << " | " << (found == block.end() ? 0 : found->second.launches);
  };
  out << "| kernel | GPT-2 | Qwen2.5, serial | its widths, parallel | Qwen3, experts |\n|---|---|---|---|---|\n";
  for (const auto& [kernel, count] : names) {
    out << "| `" << kernel << "`";
    for (const auto* block : {&e.gpt2, &e.serial, &e.parallel, &e.experts}) cell(*block, kernel);
    out << " |\n";
  }
  out << "| **all** | **" << launches_of(e.gpt2) << "** | **" << launches_of(e.serial) << "** | **"
      << launches_of(e.parallel) << "** | **" << launches_of(e.experts) << "** |\n";
  return out.str();
}

int64_t launches_for(const Shape& shape) {
  return launches_of(shape.model.ffn.gated ? Evidence::get().serial : Evidence::get().gpt2);
}

/// The share of a step that each line loses, a column for each prediction.
std::string table_of_losses(const std::vector<Prediction>& predictions) {
  std::map<std::string, std::map<size_t, double>> losses;
  std::vector<std::string> names;
  for (size_t i = 0; i < predictions.size(); ++i) {
    for (const Line& line : predictions[i].lines) {
      if (std::find(names.begin(), names.end(), line.what) == names.end()) names.push_back(line.what);
      losses[line.what][i] = 100 * (line.seconds - line.ideal) / predictions[i].seconds;
    }
  }
  std::ostringstream out;
  for (const std::string& what : names) {
    out << "| " << what << " |";
    for (size_t i = 0; i < predictions.size(); ++i)
      out << " " << (losses[what].contains(i) ? number(losses[what][i], 1) : std::string()) << " |";
    out << "\n";
  }
  return out.str();
}

std::string thousands(double tokens_per_second) { return number(tokens_per_second / 1e3, 1) + "K"; }

std::string table_of_back_test() {
  std::ostringstream out;
  out << "| | micro-batch | chunks of the head | predicted | LLM.Q, measured | error |\n|---|---|---|---|---|---|\n";
  for (const Shape& shape : rival_shapes()) {
    const double tokens = predict(shape, cudnn_attention(), launches_for(shape)).tokens_per_second;
    out << "| " << shape.name << " | " << shape.micro_batch << " | " << shape.head_chunks << " | " << thousands(tokens)
        << " | " << thousands(shape.rival) << " | " << number(100 * (tokens / shape.rival - 1), 1) << "% |\n";
  }
  return out.str();
}

std::string tables_of_steps() {
  std::ostringstream out;
  const std::vector<Shape> all = shapes();
  out << "| | on | micro-batch | GB | with cuDNN's attention | of peak | own attention | of peak | LLM.Q, measured |\n"
         "|---|---|---|---|---|---|---|---|---|\n";
  for (const Shape& shape : all) {
    out << "| " << shape.name << " | " << shape.card.name << " | " << shape.micro_batch << " | "
        << number(memory_of(shape) / 1e9, 1);
    if (!fits(shape)) {
      out << " | does not fit | | does not fit | | " << thousands(shape.rival) << " |\n";
      continue;
    }
    for (const Rates& rates : {cudnn_attention(), own_attention()}) {
      const Prediction p = predict(shape, rates, launches_for(shape));
      const Interval range = interval(shape, rates, launches_for(shape));
      out << " | " << thousands(p.tokens_per_second) << " [" << thousands(range.low) << " to " << thousands(range.high)
          << "] | " << number(100 * p.share_of_peak, 1) << "%";
    }
    out << " | " << (shape.rival > 0 ? thousands(shape.rival) : std::string()) << " |\n";
  }
  out << "\nShare of the step that each line loses, cuDNN's attention; what is left is the share of the peak:\n\n| |";
  std::vector<Prediction> predictions;
  for (const Shape& shape : all) {
    if (!fits(shape)) continue;
    out << " " << shape.name << " |";
    predictions.push_back(predict(shape, cudnn_attention(), launches_for(shape)));
  }
  out << "\n|---|---|---|---|---|\n" << table_of_losses(predictions);
  return out.str();
}

Prediction predict_experts(const ExpertRun& run, const ExpertRates& rates, double load = 1) {
  return predict(run, rates, launches_of(Evidence::get().experts), load);
}

std::string tables_of_experts() {
  std::ostringstream out;
  const std::vector<ExpertRun> runs = expert_runs();
  out << "| | tokens/s a GPU | of peak | load 1.1 | load 1.3 | vendors' kernels |\n|---|---|---|---|---|---|\n";
  const auto rate = [](const Prediction& p) { return thousands(p.tokens_per_second); };
  const auto range = [](const ExpertRun& run, const ExpertRates& rates) {
    const Interval i = interval(run, rates, launches_of(Evidence::get().experts));
    return " [" + thousands(i.low) + " to " + thousands(i.high) + "]";
  };
  for (const ExpertRun& run : runs) {
    const Prediction p = predict_experts(run, own_kernels()), fast = predict_experts(run, vendors_kernels());
    out << "| " << run.name << " | " << rate(p) << range(run, own_kernels()) << " | "
        << number(100 * p.share_of_peak, 1) << "% | " << rate(predict_experts(run, own_kernels(), 1.1)) << " | "
        << rate(predict_experts(run, own_kernels(), 1.3)) << " | " << rate(fast) << range(run, vendors_kernels())
        << ", " << number(100 * fast.share_of_peak, 1) << "% |\n";
  }
  out << "\nGB of a rank:\n\n| | weights | gradients | optimizer | blocks | working | all | load 1.3 | all tokens to "
         "one rank "
         "|\n|---|---|---|---|---|---|---|---|---|\n";
  for (const ExpertRun& run : runs) {
    const RankMemory m = memory_of_a_rank(run, 1);
    const double one_rank = memory_of_a_rank(run, static_cast<double>(run.ranks())).total();
    out << "| " << run.name;
    for (const double bytes : {m.weights, m.gradients, m.optimizer, m.blocks, m.working, m.total(),
                               memory_of_a_rank(run, 1.3).total(), one_rank})
      out << " | " << number(bytes / 1e9, 1);
    out << " |\n";
  }
  out << "\nShare of the step that each line loses at balance, own kernels; what is left is the share of the "
         "peak:\n\n| |";
  std::vector<Prediction> predictions;
  for (const ExpertRun& run : runs) {
    out << " " << run.name << " |";
    predictions.push_back(predict_experts(run, own_kernels()));
  }
  out << "\n|---|---|---|---|\n" << table_of_losses(predictions);
  return out.str();
}

std::string table_of_published_experts() {
  std::ostringstream out;
  out << "| | GPUs | tokens/s | TFLOP/s | what differs | nearest | predicted | error |\n"
         "|---|---|---|---|---|---|---|---|\n";
  for (const PublishedExperts& row : published_experts()) {
    const double tokens = predict_experts(row.nearest, others_kernels()).tokens_per_second;
    out << "| " << row.who << " | " << row.gpus << " H100 | " << number(row.tokens_per_second, 0) << " | "
        << number(row.tflops, 0) << " | " << row.differs << " | " << row.nearest.name << " | " << thousands(tokens)
        << " | " << (tokens > row.tokens_per_second ? "+" : "") << number(100 * (tokens / row.tokens_per_second - 1), 0)
        << "% |\n";
  }
  return out.str();
}

std::string text_of_experts() {
  const ExpertRates rates;
  const ExpertRun run = expert_runs()[0];
  std::ostringstream out;
  out << R"(
## Experts on eight GPUs

Qwen3-30B-A3B (`configs/start`), predicted as above for a node of eight H100 SXM (80 GB, NVLink): bf16, T 4096, 512
sequences a step in micro-batches of one, fp32 main gradients, master and moments. Tensor ranks hold whole experts
(`moe.tensor = "experts"`). `load` is the rows of the rank with the most over the mean: all wait for it.

Beside the rates above: attention at T 4096 (FlashAttention-2 forward 319 TFLOP/s, both ways 294; cuDNN forward 518). A
GPU sends 330 GB/s of NVLink's 450 (p2pBandwidthLatencyTest reads 380 on an H100, NVIDIA/nccl#1264). **Assumed, measured
by nobody here**: own grouped products reach )"
      << rates.grouped / 1e12 << R"( TFLOP/s over long sums (mma.sync, which cannot issue as fast as
wgmma), of k terms k / (k + 128) of it; products in fp32 )"
      << rates.wide / 1e12 << R"( of 67; an exchange begins after )" << rates.exchange * 1e6 << R"( us; the device
idles )"
      << rates.host_wait * 1e6
      << R"( us where the host reads counts. "Vendors' kernels": cuDNN's attention, and grouped products as fast as others.

One pass of a micro-batch's rows sends )"
      << number(crossing_bytes(run) / 1e6, 0)
      << R"( MB from each GPU of eight: k rows of C numbers a token, 7/8 of them. A layer makes
four passes, six with recomputation. `tests/layouts/expert_exchange_test.cpp` holds that a row that crosses sends C
numbers and no more, that the host waits once for a layer and micro-batch in forward and never in backward or
recomputation, and what an exchange overlaps with: in forward the shared expert, which this model has not, in backward
the weight gradient of gate and up. `deferred_test.cpp` there holds that without an expert axis the host never waits.

)" << tables_of_experts()
      << R"(
An H100 has 85.5e9 bytes, of which CUDA, NCCL and cublasLt take some two: with `train.recompute = "block"` both layouts
fit at a load of 1.3, the first with four GB to spare. Without it 8 H200 are needed (141 GB; rates here are an H100's).

What others have measured with this model, tokens/s a GPU (TFLOP/s by the same count of flops), beside the nearest run
that can be predicted here: vendors' kernels without equal bits, at balance, with an exchange that stays in one node:

)" << table_of_published_experts()
      << R"(
The first is nearest: T 4096, 512 sequences, expert 8, blocks recomputed (its recipe `qwen3_moe_30b_te_deepep.yaml`). It
is not the same work: its router is told to balance, so its load is 1; FSDP cuts dense weights and gradients over ranks
too, with room for micro-batches four times as long; DeepEP sends a token once to a rank, however many of its experts are
there (5.3 rows of 8 if choices are random); Transformer Engine computes attention. We know of no rate of this model from
torchtitan. What ours is predicted to lose to it, by the table: attention and grouped products by mma.sync, rows that
cross more than once, and an exchange that nothing hides in forward.
)";
  return out.str();
}

std::string speed_md() {
  const Rates rates;
  std::ostringstream out;
  out << R"(# Speed, as far as it can be told without a GPU

Written by `ASHLAR_SPEED_MD=kernels/cuda/SPEED.md build/tests/test_evidence` (`tests/evidence`). No GPU has run any of
this: bytes, sectors and launches are counted by the emulator (`tests/gpu_emulator`), registers come from ptxas, rates
from what others have published.

## Bytes

bf16, aligned rows, one launch. Bytes by the formula; what was moved (sectors of 32 bytes) as a share of it, read and
written, at most 1.05; sectors as a share of the fewest that hold the bytes asked for, at most 1.1; bank conflicts. The
last two have no bound where choices decide which single numbers are asked for.

)" << table_of_bytes()
      << R"(
## Warps

That a multiprocessor of compute capability 9.0 holds at a time, by threads, registers (sm_90a, `tests/ptx/resources.txt`)
and shared memory of a block.

)" << table_of_occupancy()
      << R"(
## Launches

Of one block in a training step, forward and backward: a step of two blocks less a step of one, both really made on the
emulated device. `gemm` are the products, of cublasLt on a GPU.

)" << table_of_launches()
      << R"(
## Steps

Predicted by roofline for one H100 SXM, bf16, T 1024, 512 sequences a step, fp32 master, moments and main gradients, no
recomputation, in the largest micro-batches up to 16 that fit beside them ("GB": of a dry run, as `ashlar plan` makes,
with 1.5 for CUDA; an H100 has 85.5e9 bytes, an H200 141e9: 18 bytes a parameter of 7B leave no room there either). Share
of 989.4 TFLOP/s by model flops with causal attention (`parallel/model/flops.h`).

What others have measured: copies 3.0 TB/s (90% of 3.35, QuACK's norms); attention of cuDNN forward 288 and 410 TFLOP/s
with heads of 64 and 128 at T 1024, backward 263 and 326; FlashAttention-2 forward 229 and 260, backward 180 and 208.
cuDNN's deterministic backward on Hopper writes the gradients of all scores to a workspace and reads them. Our own
attention makes 7 products backward where FlashAttention-2 has 5, and is estimated to reach 0.78 of its rates (0.65 to 1),
by the instructions that it issues for each tensor core product. Bytes are the formulas of `roofline.cpp`, which the test
holds within 5% of what a narrow block moves. Logits come in chunks of 1 GiB, and each adds to the head's gradient.

**Back-test.** LLM.Q's four steps on one H100 (benchmarks/H100x1.md, b77d969), in its own configuration: gradients,
master and moments in bf16, logits read once, cuDNN's attention. `back_test.cpp` holds that each comes out within 3%, and
that some does not with another rate of products or copies, or without the gradients of scores. The rate of products is
the one number chosen by these four rows, so the test is not blind; it freezes the rates for all that follows.

)" << table_of_back_test()
      << R"(
By the back-test a product over an inner dimension of k reaches k / (k + )"
      << rates.products_half_k << R"() of )" << rates.products / 1e12 << R"( TFLOP/s; at k 768 others
saw 500 to 650. )"
      << rates.launch_gap * 1e6
      << R"( us pass for each launch. In brackets: what may come out if each rate is varied alone within what
is known of it, and the back-test's 3%, added as independent errors. Predictions of dense models on 8 to 6144 GPUs
beside what Megatron-LM and nanotron have published, with their errors: `launch/plan/RESULTS.md`.

)" << tables_of_steps()
      << text_of_experts();
  return out.str();
}

TEST(Speed, BytesSectorsAndBankConflictsOfEachKernel) {
  for (const KernelRow& row : Evidence::get().kernels) {
    SCOPED_TRACE(row.kernel + ", " + row.problem);
    EXPECT_LE(row.read_ratio(), 1.05);
    EXPECT_LE(row.write_ratio(), 1.05);
    // A formula far above the truth would hide what a kernel wastes.
    EXPECT_GE(row.read_ratio() * static_cast<double>(row.read) + row.write_ratio() * static_cast<double>(row.written),
              0.8 * static_cast<double>(row.read + row.written));
    if (!row.scattered) {
      EXPECT_LE(row.measured.traffic.sector_ratio(), 1.1);
      EXPECT_EQ(row.measured.traffic.bank_conflicts(), 0);
    }
    // Tensor cores take the registers of attention and of grouped products.
    const bool tensor_cores = row.kernel.starts_with("attention") || row.kernel.starts_with("grouped_linear");
    EXPECT_GE(residency_of(row).warps, tensor_cores ? 8 : 16);
  }
}

/// The formulas behind the predicted steps, against what a block really moves.
TEST(Speed, APredictedBlockMovesTheBytesOfARealOne) {
  const auto compare = [](const model::ModelConfig& config, const std::map<std::string, BlockKernel>& measured) {
    const std::map<std::string, double> formula = block_bytes_of_a_token(config);
    double bytes = 0;
    for (const auto& [kernel, of_a_token] : formula) {
      ASSERT_TRUE(measured.contains(kernel)) << kernel;
      bytes += of_a_token * kTokens;
    }
    // A step's rows share the gains that a group of threads holds; so few rows have a group each.
    const bool layer_norm = config.norm.variant.type == NormType::kLayerNorm;
    const int64_t norms = config.block.topology == model::Topology::kSerial ? 2 : 1;
    bytes += static_cast<double>(norms * (layer_norm ? 3 : 2) * config.d_model * 2 * kTokens);
    double moved = 0, unnamed = 0;
    for (const auto& [kernel, work] : measured) {
      // Their time is that of their products.
      if (kernel == "gemm" || kernel == "attention_forward" || kernel.starts_with("attention_backward") ||
          kernel.starts_with("grouped_linear"))
        continue;
      (formula.contains(kernel) ? moved : unnamed) += static_cast<double>(work.bytes);
    }
    EXPECT_NEAR(moved / bytes, 1, 0.05);
    EXPECT_LE(unnamed / bytes, 0.05) << "kernels that the formulas do not name";
  };
  {
    SCOPED_TRACE("GPT-2");
    compare(narrow_gpt2(), Evidence::get().gpt2);
  }
  {
    SCOPED_TRACE("serial");
    compare(narrow_qwen(model::Topology::kSerial), Evidence::get().serial);
  }
  {
    SCOPED_TRACE("parallel");
    compare(narrow_qwen(model::Topology::kParallel), Evidence::get().parallel);
  }
  {
    SCOPED_TRACE("experts");
    compare(narrow_experts(), Evidence::get().experts);
  }
}

/// Each line takes its ideal time or more, and what the lines lose is what the step lacks to the peak.
void expect_lines_add_up(const Prediction& p, const std::string& name) {
  double lost = 0;
  for (const Line& line : p.lines) {
    EXPECT_GE(line.seconds, line.ideal) << name << ": " << line.what;
    lost += (line.seconds - line.ideal) / p.seconds;
  }
  EXPECT_NEAR(lost + p.share_of_peak, 1, 1e-9) << name;
}

TEST(Speed, LinesOfAPredictionAddUp) {
  for (const Shape& shape : shapes()) expect_lines_add_up(predict(shape, own_attention(), 30), shape.name);
}

TEST(Speed, LinesOfAPredictionWithExpertsAddUp) {
  for (const ExpertRun& run : expert_runs())
    for (const ExpertRates& rates : {own_kernels(), vendors_kernels()})
      expect_lines_add_up(predict(run, rates, 60, 1.2), run.name);
}

// NVIDIA's tokens and flops per second of Qwen3-30B-A3B: its count of flops is ours with causal attention.
TEST(Speed, FlopsOfExpertsAreCountedAsNvidiaCountsThem) {
  const double flops = model::flops_per_token(qwen3_30b_a3b(), 4096).total_causal();
  for (const PublishedExperts& row : published_experts())
    EXPECT_NEAR(row.tokens_per_second * flops / (row.tflops * 1e12), 1, 0.01) << row.who;
}

// The sizes behind the page's words on memory: what the published model's 30,532,122,624 parameters cost a rank.
TEST(Speed, Qwen3FitsOnEightGpusIfBlocksAreRecomputed) {
  constexpr double kUsable = 85.5e9 - 2e9, kH200 = 141e9;
  const std::vector<ExpertRun> runs = expert_runs();
  for (size_t i : {0, 1}) EXPECT_LE(memory_of_a_rank(runs[i], 1.3).total(), kUsable) << runs[i].name;
  EXPECT_GT(memory_of_a_rank(runs[2], 1).total(), kUsable);
  EXPECT_LE(memory_of_a_rank(runs[2], 1.3).total(), kH200 - 2e9);
  EXPECT_GT(memory_of_a_rank(runs[0], 8).total(), kUsable) << "all tokens to one rank";
  EXPECT_LE(memory_of_a_rank(runs[1], 8).total(), kUsable);
  const RankMemory m = memory_of_a_rank(runs[0], 1);
  EXPECT_NEAR(m.weights + m.gradients, 6 * (28991029248.0 / 8 + 1541093376), 1e3);
  EXPECT_NEAR(m.optimizer, 12 * 30532122624.0 / 8, 1e3);
}

// Rivals' published shares, from their published rates: our count of flops is theirs.
TEST(Speed, FlopsAreCountedAsTheRivalCountsThem) {
  const std::vector<Shape> all = shapes();
  const double published[] = {0, 0.468, 0.566, 0.593, 0.603};
  for (size_t i = 1; i < all.size(); ++i) {
    EXPECT_NEAR(all[i].rival * model::flops_per_token(all[i].model, all[i].T).total_causal() / 989.4e12, published[i],
                0.004)
        << all[i].name;
  }
}

TEST(Speed, OccupancyIsThatOfTheProgrammingGuide) {
  EXPECT_EQ(resident_warps({.registers = 32, .threads = 256, .shared_bytes = 0}), 64);
  EXPECT_EQ(resident_warps({.registers = 64, .threads = 256, .shared_bytes = 0}), 32);
  EXPECT_EQ(resident_warps({.registers = 255, .threads = 128, .shared_bytes = 0}), 8);
  EXPECT_EQ(resident_warps({.registers = 33, .threads = 256, .shared_bytes = 0}), 48);  // 40 a thread are given
  EXPECT_EQ(resident_warps({.registers = 32, .threads = 32, .shared_bytes = 0}), 32);   // 32 blocks
  EXPECT_EQ(resident_warps({.registers = 32, .threads = 128, .shared_bytes = 99 * 1024}), 8);
  EXPECT_EQ(resident_warps({.registers = 32, .threads = 128, .shared_bytes = 100 * 1024 + 1}), 8);
  EXPECT_EQ(resident_warps({.registers = 32, .threads = 128, .shared_bytes = 113 * 1024 + 1}), 4);
}

TEST(Speed, ABlockTakesFewLaunches) {
  EXPECT_LE(launches_of(Evidence::get().gpt2), 31);
  EXPECT_LE(launches_of(Evidence::get().serial), 28);
  EXPECT_LE(launches_of(Evidence::get().parallel), 22);
  EXPECT_LE(launches_of(Evidence::get().experts), 55);
}

TEST(Speed, PredictedStepsReachTheirShareOfThePeak) {
  const std::vector<Shape> all = shapes();
  const double least[] = {0.37, 0.42, 0.505, 0.525, 0};  // the last does not fit
  ASSERT_EQ(all.size(), std::size(least));
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    const double share = predict(all[i], own_attention(), launches_for(all[i])).share_of_peak;
    EXPECT_GE(share, least[i]) << all[i].name;
    EXPECT_LE(share, least[i] + 0.02) << all[i].name << ": a formula that forgot something, or a bound to raise";
    EXPECT_GE(predict(all[i], cudnn_attention(), launches_for(all[i])).share_of_peak, share) << all[i].name;
  }
}

TEST(Speed, PredictedStepsWithExpertsReachTheirShareOfThePeak) {
  const std::vector<ExpertRun> runs = expert_runs();
  const double least[] = {0.165, 0.14, 0.22};
  ASSERT_EQ(runs.size(), std::size(least));
  for (size_t i = 0; i < runs.size(); ++i) {
    const double share = predict_experts(runs[i], own_kernels()).share_of_peak;
    EXPECT_GE(share, least[i]) << runs[i].name;
    EXPECT_LE(share, least[i] + 0.02) << runs[i].name << ": a formula that forgot something, or a bound to raise";
    EXPECT_GE(predict_experts(runs[i], vendors_kernels()).share_of_peak, share) << runs[i].name;
    EXPECT_LT(predict_experts(runs[i], own_kernels(), 1.3).share_of_peak, share) << runs[i].name;
  }
}

// Every table can be made; the file that ASHLAR_SPEED_MD names gets them.
TEST(Speed, ThePageIsWrittenOnRequest) {
  const std::string made = speed_md();
  for (const char* heading :
       {"\n## Bytes\n", "\n## Warps\n", "\n## Launches\n", "\n## Steps\n", "\n## Experts on eight GPUs\n"})
    EXPECT_NE(made.find(heading), std::string::npos) << heading;
  if (const char* const path = std::getenv("ASHLAR_SPEED_MD")) {
    std::ofstream file(path);
    EXPECT_TRUE(file << made << std::flush) << path;
  }
}

}  // namespace
}  // namespace ashlar::evidence
