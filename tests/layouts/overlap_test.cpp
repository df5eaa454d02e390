// What a training step exchanges lies beside work that can hide it, told from the trace of the emulated device's
// streams: an exchange begins where its event was recorded and ends where the stream waits for it; what is queued
// between the two runs beside it on a device.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/strings.h"
#include "launch/training/engine.h"
#include "parallel/comm/staged_comm.h"
#include "tests/gpu_emulator/backend/emulated_backend.h"
#include "tests/layouts/axes.h"
#include "tests/support/ranks/ranks.h"

namespace ashlar::testing {
namespace {

constexpr int64_t kLayers = 4;

/// An operation of a group of ranks.
struct Exchange {
  std::string what;
  std::vector<std::string> behind;  ///< calls queued on the stream of the model before it waits for the end
  bool waited_for = false;

  int64_t hides(std::string_view call) const { return std::count(behind.begin(), behind.end(), call); }
};

data::Batch batch_of(int64_t vocabulary, int64_t sample) {
  data::Batch batch;
  data::resize_batch(batch, kB, kT, {});
  for (size_t n = 0; n < batch.ids.size(); ++n) {
    batch.ids[n] = static_cast<int32_t>((static_cast<int64_t>(n) * 5 + sample) % vocabulary);
    batch.targets[n] = static_cast<int32_t>((static_cast<int64_t>(n) * 5 + 5 + sample) % vocabulary);
    batch.positions[n] = static_cast<int32_t>(static_cast<int64_t>(n) % kT);
  }
  batch.first_sample = sample;
  batch.valid_targets = kB * kT;
  std::vector<int32_t> counts;
  data::fill_order(batch, static_cast<int32_t>(vocabulary), counts);
  return batch;
}

/// The exchanges of the second step's forward and backward along one axis, in order of issue. The stream waits for
/// them in that order.
std::vector<Exchange> exchanges_of_a_step(const mesh::MeshShape& shape, bool sequence_parallel) {
  emulated::EmulatedBackend device(emulated::DeviceOptions{.seed = 11});
  const std::unique_ptr<Stream> stream = device.make_stream();  // the first: number 0
  const std::unique_ptr<comm::Communicator> all = comm::make_device_comm(bootstrap().world(), device);
  model::ModelConfig config = config_of(kAxes[0]);
  config.n_layers = kLayers;
  mesh::Mesh mesh(*all, shape);
  training::Engine engine(device, *stream, mesh,
                          {.model = config,
                           .dtype = DType::kFloat32,
                           .optimizer = optim::OptimizerOptions{},
                           .seed = 3,
                           .sequence_length = kT,
                           .sequence_parallel = sequence_parallel,
                           .bucket_elems = 2000});
  engine.initialize();
  std::vector<training::DeviceBatch> batches(2);
  std::vector<pipeline::MicroBatch> views;
  for (size_t i = 0; i < batches.size(); ++i) {
    batches[i].upload(engine.ctx(),
                      batch_of(config.vocab_size, (mesh.index(kSampleAxes) * 2 + static_cast<int64_t>(i)) * kB));
    views.push_back(batches[i].micro_batch());
  }
  const training::StepCounts counts{.tokens = shape[Axis::kReplica] * 2 * kB * kT,
                                    .valid_targets = shape[Axis::kReplica] * 2 * kB * kT};

  comm::Communicator& group = shape[Axis::kReplica] > 1 ? mesh.group(kReplicaAxes) : mesh.group(Axis::kTensor);
  std::vector<Exchange> trace;
  size_t waits = 0;
  std::string last;
  for (int64_t step = 0; step < 2; ++step) {
    engine.wait_param_sync();
    last = group.last_operation();
    if (step == 1) {
      device.device().state().gpu.queues().observe([&](int number, std::string_view call) {
        if (group.last_operation() != last) {
          last = group.last_operation();
          trace.push_back({.what = last, .behind = {}});
        }
        if (number != 0) return;
        if (call == "wait") {
          ASSERT_LT(waits, trace.size());
          trace[waits++].waited_for = true;
        }
        for (size_t i = waits; i < trace.size(); ++i) trace[i].behind.emplace_back(call);
      });
    }
    engine.backward(views, step, counts);
    device.device().state().gpu.queues().observe({});
    engine.reduce_norm();
    engine.update(step, 1e-3);
    engine.take_report();
  }
  engine.wait_param_sync();
  stream->synchronize();
  for (const Exchange& exchange : trace) EXPECT_TRUE(exchange.waited_for) << exchange.what;
  return trace;
}

/// A bucket leaves when the last of its gradients is made, while blocks are still to be walked back: later ones have
/// fewer of them to hide behind. Only what the first layer and the embedding make last has no product left.
TEST(Overlap, EachBucketIsReducedBesideTheBackwardOfEarlierLayers) {
  if (bootstrap().world().size() != 2) GTEST_SKIP() << "on two ranks";
  const std::vector<Exchange> buckets = exchanges_of_a_step({{Axis::kReplica, 2}}, false);
  ASSERT_GE(buckets.size(), size_t{2 * kLayers});
  int64_t before = kLayers;
  for (size_t i = 0; i < buckets.size(); ++i) {
    EXPECT_TRUE(buckets[i].what.starts_with("reduce_scatter")) << buckets[i].what;
    const int64_t blocks = buckets[i].hides("attention_backward");
    EXPECT_LE(blocks, before) << "bucket " << i;
    before = blocks;
    if (i + 3 < buckets.size()) {
      EXPECT_GE(buckets[i].hides("linear_backward_weight"), 1) << "bucket " << i << ", " << buckets[i].what;
    }
  }
  EXPECT_GE(buckets.front().hides("attention_backward"), kLayers - 1);
}

/// The sum of a product's input gradients runs beside the product of its weight gradient: two a block.
TEST(Overlap, TensorRanksSumInputGradientsBesideWeightGradients) {
  if (bootstrap().world().size() != 2) GTEST_SKIP() << "on two ranks";
  int64_t hidden = 0;
  for (const Exchange& exchange : exchanges_of_a_step({{Axis::kTensor, 2}}, false)) {
    EXPECT_LE(exchange.hides("linear_backward_weight"), 1) << exchange.what;
    hidden += exchange.hides("linear_backward_weight");
  }
  EXPECT_EQ(hidden, 2 * 2 * kLayers) << "two micro-batches, two exchanges a block";
}

/// With sequence parallel the input comes in again beside the product of its gradient, and the sum goes out beside that
/// of the weight's.
TEST(Overlap, SequenceRanksBringInputsAndSumGradientsBesideProducts) {
  if (bootstrap().world().size() != 2) GTEST_SKIP() << "on two ranks";
  int64_t inputs = 0, sums = 0;
  for (const Exchange& exchange : exchanges_of_a_step({{Axis::kTensor, 2}}, true)) {
    if (exchange.what.starts_with("all_gather")) inputs += exchange.hides("linear_backward_input") > 0;
    if (exchange.what.starts_with("reduce_scatter")) sums += exchange.hides("linear_backward_weight") > 0;
  }
  EXPECT_EQ(inputs, 2 * 2 * kLayers);
  EXPECT_EQ(sums, 2 * 2 * kLayers);
}

}  // namespace
}  // namespace ashlar::testing
