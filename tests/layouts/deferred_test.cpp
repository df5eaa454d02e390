// Training behind streams that are really asynchronous has the bits of training on the CPU: every wait that a device
// needs is there. The backend finds a missing one whatever the order in which calls happen to run.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/strings.h"
#include "kernels/make_backend.h"
#include "launch/training/engine.h"
#include "parallel/checkpoint/background_save.h"
#include "parallel/checkpoint/snapshot.h"
#include "parallel/comm/staged_comm.h"
#include "tests/gpu_emulator/backend/emulated_backend.h"
#include "tests/layouts/axes.h"
#include "tests/layouts/masked_ids.h"
#include "tests/layouts/meshes.h"
#include "tests/support/deferred/deferred_backend.h"
#include "tests/support/long_form.h"
#include "tests/support/ranks/ranks.h"
#include "tests/support/ranks/shared_dir.h"

namespace ashlar::testing {
namespace {

constexpr int64_t kSteps = 4;

struct Layout {
  mesh::MeshShape mesh;
  const Axes* axes = nullptr;
  bool sequence_parallel = false;
  pipeline::PipelineSchedule schedule = pipeline::PipelineSchedule::k1F1B;
  int64_t virtual_stages = 1;
  DType dtype = DType::kBFloat16;
};

data::Batch random_batch(int64_t vocab, int64_t step, int64_t sample) {
  std::mt19937_64 random(static_cast<uint64_t>(step * 1000 + sample));
  data::Batch batch;
  data::resize_batch(batch, kB, kT, {});
  for (int64_t n = 0; n < kB * kT; ++n) {
    batch.ids[n] = static_cast<int32_t>(random() % static_cast<uint64_t>(vocab));
    batch.targets[n] = n % 7 == 3 ? -1 : static_cast<int32_t>(random() % static_cast<uint64_t>(vocab));
    batch.positions[n] = static_cast<int32_t>(n % kT);
    batch.valid_targets += batch.targets[n] >= 0 ? 1 : 0;
  }
  ignore_masked_targets(batch);
  batch.first_sample = sample;
  std::vector<int32_t> counts;
  data::fill_order(batch, static_cast<int32_t>(vocab), counts);
  return batch;
}

/// What a training comes to on this rank, as bits.
using Bits = std::vector<uint64_t>;

void append(Bits& bits, double value) { bits.push_back(std::bit_cast<uint64_t>(value)); }

void append(Bits& bits, const Ctx& ctx, const Tensor& t) {
  std::vector<unsigned char> bytes(static_cast<size_t>(t.size() * size_of(t.dtype())));
  ctx.backend.read(t.view(), bytes.data(), ctx.stream);
  bits.insert(bits.end(), bytes.begin(), bytes.end());
}

/// What a device saw of the host. Scratch memory grows in an emulated device's first step, and the host waits for it.
struct Watched {
  emulator::VirtualGpu* gpu = nullptr;  ///< null on the CPU
  int64_t first_step = 0;               ///< from which on the host may not wait
};

/// Some steps with reports read one step late, then an evaluation.
Bits train_layout(Backend& backend, comm::Communicator& ranks, const Layout& layout, const Watched& watched) {
  const std::unique_ptr<Stream> stream = backend.make_stream();
  const std::unique_ptr<comm::Communicator> over_device = comm::make_device_comm(ranks, backend);
  comm::Communicator& all = over_device ? *over_device : ranks;
  model::ModelConfig config = config_of(*layout.axes);
  config.n_layers = std::max(config.n_layers, layout.mesh[Axis::kPipeline] * layout.virtual_stages);
  mesh::Mesh mesh(all, layout.mesh);
  training::Engine engine(backend, *stream, mesh,
                          {.model = config,
                           .dtype = layout.dtype,
                           .optimizer = optim::OptimizerOptions{},
                           .clip = 0.5,
                           .recompute = layout.axes->recompute,
                           .seed = 3,
                           .sequence_length = kT,
                           .sequence_parallel = layout.sequence_parallel,
                           .schedule = layout.schedule,
                           .virtual_stages = layout.virtual_stages,
                           .bucket_elems = 700});
  engine.initialize();

  Bits bits;
  const int64_t micro_batches =
      layout.mesh[Axis::kPipeline] == 1 ? 2 : std::max<int64_t>(4, layout.mesh[Axis::kPipeline]);
  std::vector<training::DeviceBatch> slots[2];
  const auto upload = [&](int64_t step) {
    std::vector<training::DeviceBatch>& batches = slots[step % 2];
    batches.resize(static_cast<size_t>(micro_batches));
    for (int64_t i = 0; i < micro_batches; ++i) {
      const int64_t sample = (mesh.index(kSampleAxes) * micro_batches + i) * kB;
      batches[static_cast<size_t>(i)].upload(engine.ctx(), random_batch(config.vocab_size, step, sample));
    }
    std::vector<pipeline::MicroBatch> views;
    for (const auto& batch : batches) views.push_back(batch.micro_batch());
    return views;
  };
  const auto take = [&] {
    const training::StepReport report = engine.take_report();
    append(bits, report.losses.loss);
    append(bits, report.losses.max_logit);
    append(bits, report.clip.norm);
    append(bits, report.clip.clip_scale);
    EXPECT_EQ(report.clip.skip, 0);
  };
  std::vector<uint64_t> addresses;
  for (int64_t step = 0; step < kSteps; ++step) {
    const std::vector<pipeline::MicroBatch> batches = upload(step);
    if (watched.gpu != nullptr) watched.gpu->queues().forget_host_waits();
    const training::StepCounts counts{.tokens = layout.mesh[Axis::kReplica] * micro_batches * kB * kT,
                                      .valid_targets = layout.mesh[Axis::kReplica] * micro_batches * 14};
    engine.backward(batches, step, counts);
    engine.reduce_norm();
    engine.update(step, 1e-2);
    if (watched.gpu != nullptr) {
      const std::vector<std::string>& waits = watched.gpu->queues().host_waits();
      EXPECT_TRUE(waits.empty() || step < watched.first_step) << "the host waits for " << waits.front();
      addresses.push_back(watched.gpu->memory().take_hash());
    }
    if (step > 0) take();  // of the step before
  }
  take();
  if (watched.gpu != nullptr) {
    EXPECT_EQ(addresses[2], addresses[3]) << "a step allocates at other addresses than the one before";
  }

  LossStats loss;
  engine.evaluate(upload(kSteps), loss);
  append(bits, loss.loss);
  engine.wait_param_sync();
  append(bits, engine.ctx(), engine.store().values());
  append(bits, engine.ctx(), engine.optimizer()->master().data);
  for (const auto& [name, tensor] : engine.optimizer()->state()) append(bits, engine.ctx(), tensor.data);
  return bits;
}

void expect_bits_of_the_cpu(const Layout& layout, uint64_t seed) {
  SCOPED_TRACE(str_cat(layout.axes->name, " on ", name_of(layout.mesh), layout.sequence_parallel ? ", sequence" : "",
                       ", seed ", seed));
  comm::Communicator& ranks = bootstrap().world();
  const std::unique_ptr<Backend> cpu = kernels::make_backend({.threads = 1});
  const Bits expected = train_layout(*cpu, ranks, layout, {});
  DeferredBackend device(kernels::make_backend({.threads = 1}), seed);
  const Bits got = train_layout(device, ranks, layout, {.gpu = &device.gpu()});
  EXPECT_EQ(got.size(), expected.size());
  const auto [at, other] = std::mismatch(got.begin(), got.end(), expected.begin(), expected.end());
  EXPECT_EQ(at, got.end()) << "first at number " << at - got.begin() << " of " << got.size();
}

/// A model on each mesh, another one on the next; in the long form every model on each, on longer pipelines too.
TEST(Deferred, EveryMeshHasTheBitsOfTheCpu) {
  uint64_t seed = 1;
  for (const mesh::MeshShape& shape : meshes(bootstrap().world().size())) {
    if (shape.ranks() != bootstrap().world().size() || (shape[Axis::kPipeline] > 2 && !long_form())) continue;
    for (const bool sequence_parallel : {false, true}) {
      if (sequence_parallel && shape[Axis::kTensor] == 1) continue;
      for (size_t turn = 0; turn < (long_form() ? std::size(kAxes) : 1); ++turn) {
        using enum pipeline::PipelineSchedule;
        Layout layout{.mesh = shape,
                      .axes = &kAxes[seed % std::size(kAxes)],
                      .sequence_parallel = sequence_parallel,
                      .schedule = seed % 3 == 0 ? kZbH1 : k1F1B};
        if (long_form()) {
          if (seed % 5 == 0) layout.dtype = DType::kFloat32;
          if (seed % 4 == 1 && shape[Axis::kPipeline] > 1) {
            layout.schedule = kInterleaved;
            layout.virtual_stages = 2;
          }
        }
        expect_bits_of_the_cpu(layout, seed);
        ++seed;
      }
    }
  }
}

/// Nor does the host wait, or memory move, in a step of the CUDA backend, with experts too unless ranks divide them.
TEST(Deferred, ASlowStepOfTheEmulatedDeviceWaitsForNothing) {
  if (bootstrap().world().size() > 4 && !long_form()) GTEST_SKIP() << "on more than four ranks in the long form";
  for (const mesh::MeshShape& shape : meshes(bootstrap().world().size())) {
    if (shape.ranks() != bootstrap().world().size() || shape[Axis::kPipeline] > 2) continue;
    for (const char* name : {"GroupedTied", "Experts", "ExpertsBySelectionBias"}) {
      if (shape.ranks() > 1 && std::string_view(name) != "GroupedTied") continue;
      SCOPED_TRACE(str_cat(name, ", ", name_of(shape)));
      const Axes* const axes = std::ranges::find(kAxes, std::string_view(name), &Axes::name);
      ASSERT_NE(axes, std::end(kAxes));
      emulated::EmulatedBackend device(emulated::DeviceOptions{.seed = 6});
      const Bits bits = train_layout(device, bootstrap().world(), {.mesh = shape, .axes = axes},
                                     {.gpu = &device.device().state().gpu, .first_step = 1});
      EXPECT_GT(bits.size(), 16u);
    }
  }
}

/// The files of a save that begins behind an update which nobody has waited for, while the next step is queued.
std::map<std::string, std::string> saved_beside_a_step(Backend& backend) {
  comm::Communicator& ranks = bootstrap().world();
  const SharedDir dir(bootstrap().control());
  const std::unique_ptr<Stream> stream = backend.make_stream();
  const std::unique_ptr<comm::Communicator> over_device = comm::make_device_comm(ranks, backend);
  const model::ModelConfig config = config_of(kAxes[0]);
  mesh::Mesh mesh(over_device ? *over_device : ranks, {{Axis::kReplica, ranks.size()}});
  training::Engine engine(
      backend, *stream, mesh,
      {.model = config, .dtype = DType::kFloat32, .optimizer = optim::OptimizerOptions{}, .sequence_length = kT});
  engine.initialize();
  training::DeviceBatch batches[2];
  const auto step = [&](int64_t at) {
    batches[at].upload(engine.ctx(), random_batch(config.vocab_size, at, mesh.index(kSampleAxes) * kB));
    const pipeline::MicroBatch batch = batches[at].micro_batch();
    engine.backward({&batch, 1}, at, {.tokens = ranks.size() * kB * kT, .valid_targets = ranks.size() * 14});
    engine.reduce_norm();
    engine.update(at, 1e-2);
  };
  checkpoint::BackgroundSave saving(bootstrap().control());
  step(0);
  engine.update_after(saving.begin(engine.ctx(),
                                   {.ranks = bootstrap().control(),
                                    .run_dir = dir.path(),
                                    .store = engine.store(),
                                    .optimizer = engine.optimizer(),
                                    .state = {.step = 1},
                                    .config_toml = "",
                                    .tokenizer_json = ""},
                                   checkpoint::BackgroundSave::From::kCopy));
  step(1);
  while (!saving.idle()) {
    if (ranks.size() > 1) {
      saving.wait_phase();
    } else {
      saving.advance(saving.state());  // asks, as the trainer does between its steps
    }
  }
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir.path())) {
    std::ifstream in(entry.path());
    if (entry.is_regular_file()) files[entry.path().filename()] = {std::istreambuf_iterator<char>(in), {}};
  }
  return files;
}

TEST(Deferred, ASaveBesideTheNextStepHasTheBytesOfTheCpu) {
  if (bootstrap().world().size() > 2) GTEST_SKIP() << "on one and two ranks";
  const std::unique_ptr<Backend> cpu = kernels::make_backend({.threads = 1});
  const std::map<std::string, std::string> expected = saved_beside_a_step(*cpu);
  DeferredBackend device(kernels::make_backend({.threads = 1}), 4);
  const std::map<std::string, std::string> got = saved_beside_a_step(device);
  EXPECT_EQ(expected.size(), 2u * static_cast<size_t>(bootstrap().world().size()) + 1);
  EXPECT_EQ(got.size(), expected.size());
  for (const auto& [name, bytes] : got) EXPECT_TRUE(expected.at(name) == bytes) << name;
}

// Behind much that nobody has waited for: who asks to wait finds it in memory.
TEST(Deferred, ASnapshotIsThereForWhoeverWaitsForIt) {
  if (bootstrap().world().size() > 1) GTEST_SKIP() << "on one rank";
  DeferredBackend device(kernels::make_backend({.threads = 1}), 5);
  const std::unique_ptr<Stream> stream = device.make_stream();
  mesh::Mesh mesh(bootstrap().world(), {});
  training::Engine engine(device, *stream, mesh,
                          {.model = config_of(kAxes[0]), .dtype = DType::kFloat32, .sequence_length = kT});
  engine.initialize();
  const Tensor busy = engine.ctx().empty(DType::kFloat32, {8});
  for (int i = 0; i < 1000; ++i) device.fill({.dst = busy.mut_view(), .value = 1}, *stream);
  checkpoint::Snapshot snapshot;
  snapshot.copy({.ctx = engine.ctx(), .store = engine.store()});
  EXPECT_FALSE(snapshot.ready());
  snapshot.wait();
  EXPECT_TRUE(snapshot.ready());
}

/// Its pinned memory is written again when the copy before has been made, however late that is.
TEST(Deferred, ABatchWaitsForTheCopyBefore) {
  DeferredBackend device(kernels::make_backend({.threads = 1}), 2);
  const std::unique_ptr<Stream> stream = device.make_stream();
  const Ctx ctx{.backend = device, .stream = *stream};
  training::DeviceBatch batch;
  data::Batch last;
  for (int64_t step = 0; step < 3; ++step) batch.upload(ctx, last = random_batch(37, step, 0));
  std::vector<int32_t> ids(last.ids.size());
  device.read(batch.view().ids, ids.data(), *stream);
  EXPECT_EQ(ids, last.ids);
}

}  // namespace
}  // namespace ashlar::testing
