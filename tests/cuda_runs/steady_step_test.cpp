// A steady step on a GPU: nothing is allocated or made, the host waits for nothing, and what is queued has the
// addresses of the step before last, whose slots of batches and reports it takes. It could be a graph.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/base/strings.h"
#include "kernels/make_backend.h"
#include "launch/training/engine.h"
#include "parallel/comm/self_comm.h"
#include "parallel/comm/staged_comm.h"
#include "tests/layouts/axes.h"
#include "tests/stand_ins/cudart/enqueue.h"

namespace ashlar::testing {
namespace {

constexpr int64_t kT = 8, kSteps = 6, kMicroBatches = 2;

data::Batch random_batch(int64_t vocab, int64_t step, int64_t sample) {
  std::mt19937_64 random(static_cast<uint64_t>(step * 1000 + sample));
  data::Batch batch;
  data::resize_batch(batch, 1, kT, {});
  for (int64_t n = 0; n < kT; ++n) {
    batch.ids[n] = static_cast<int32_t>(random() % static_cast<uint64_t>(vocab));
    batch.targets[n] = static_cast<int32_t>(random() % static_cast<uint64_t>(vocab));
    batch.positions[n] = static_cast<int32_t>(n);
  }
  batch.valid_targets = kT;
  batch.first_sample = sample;
  std::vector<int32_t> counts;
  data::fill_order(batch, static_cast<int32_t>(vocab), counts);
  return batch;
}

/// Calls that allocate, make or free something, and those that let the host wait.
std::map<std::string, long> costly_calls() {
  std::map<std::string, long> calls;
  for (const char* name :
       {"cudaMalloc", "cudaFree", "cudaMallocHost", "cudaFreeHost", "cudaStreamCreateWithFlags", "cudaStreamDestroy",
        "cudaEventCreateWithFlags", "cudaEventDestroy", "cudaStreamSynchronize", "cudaEventSynchronize",
        "cudaDeviceSynchronize", "cudaMemGetInfo", "cudaGetDeviceProperties"})
    calls[name] = ashlar_stand_in_calls(name);
  return calls;
}

class SteadyStep : public ::testing::TestWithParam<size_t> {};

TEST_P(SteadyStep, AllocatesNothingWaitsForNothingAndKeepsItsAddresses) {
  setenv("ASHLAR_CUBLASLT", ASHLAR_STAND_IN_CUBLASLT, 1);
  ashlar_stand_in_reset("");
  const Axes& axes = kAxes[GetParam()];
  const model::ModelConfig config = config_of(axes);
  {
    const std::unique_ptr<Backend> backend = kernels::make_backend({.device = "cuda"});
    const std::unique_ptr<Stream> stream = backend->make_stream();
    comm::SelfComm self("world");
    const std::unique_ptr<comm::Communicator> ranks = comm::make_device_comm(self, *backend);
    mesh::Mesh mesh(*ranks, {});
    training::Engine engine(*backend, *stream, mesh,
                            {.model = config,
                             .dtype = DType::kBFloat16,
                             .optimizer = optim::OptimizerOptions{},
                             .clip = 0.5,
                             .recompute = axes.recompute,
                             .seed = 3,
                             .sequence_length = kT});
    engine.initialize();
    std::vector<training::DeviceBatch> slots[2];
    std::vector<unsigned long long> addresses;
    for (int64_t step = 0; step < kSteps; ++step) {
      std::vector<training::DeviceBatch>& batches = slots[step % 2];
      batches.resize(kMicroBatches);
      std::vector<pipeline::MicroBatch> views;
      for (int64_t i = 0; i < kMicroBatches; ++i) {
        training::DeviceBatch& batch = batches[static_cast<size_t>(i)];
        batch.upload(engine.ctx(), random_batch(config.vocab_size, step, i));
        views.push_back(batch.micro_batch());
      }
      const std::map<std::string, long> calls = costly_calls();
      const long waits = ashlar_stand_in_host_waits();
      ashlar_stand_in_take_addresses();
      engine.backward(views, step, {.tokens = kMicroBatches * kT, .valid_targets = kMicroBatches * kT});
      engine.reduce_norm();
      engine.update(step, 1e-2);
      addresses.push_back(ashlar_stand_in_take_addresses());
      if (step > 0) {
        EXPECT_EQ(costly_calls(), calls) << "step " << step;
        EXPECT_EQ(ashlar_stand_in_host_waits(), waits) << "step " << step;
      }
      if (step > 0) {
        EXPECT_EQ(engine.take_report().clip.skip, 0);
      }
    }
    EXPECT_EQ(engine.take_report().clip.skip, 0);
    EXPECT_NE(addresses[0], 0u);
    EXPECT_NE(addresses[3], addresses[2]) << "other slots";
    EXPECT_EQ(addresses[4], addresses[2]);
    EXPECT_EQ(addresses[5], addresses[3]);
  }
  EXPECT_STREQ(ashlar_stand_in_fault(), "");
}
// Serial; grouped heads with tied weights and dropout, recomputed parallel blocks.
std::string name_of_axes(const ::testing::TestParamInfo<size_t>& at) { return kAxes[at.param].name; }
INSTANTIATE_TEST_SUITE_P(Of, SteadyStep, ::testing::Values(0), name_of_axes);
INSTANTIATE_TEST_SUITE_P(SlowOf, SteadyStep, ::testing::Values(3, 7), name_of_axes);

}  // namespace
}  // namespace ashlar::testing
