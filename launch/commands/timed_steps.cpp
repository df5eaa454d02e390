#include "launch/commands/timed_steps.h"

#include <algorithm>
#include <cstdio>

#include "core/base/philox.h"
#include "core/tuning/joined_tuners.h"
#include "launch/commands/timing.h"
#include "launch/training/engine_options.h"
#include "launch/training/evaluation.h"
#include "launch/training/peak_flops.h"
#include "launch/training/run_identity.h"
#include "launch/training/tuning.h"
#include "parallel/model/flops.h"

namespace ashlar::launch {

namespace {

data::Batch random_batch(int64_t B, int64_t T, int64_t vocab, uint64_t index) {
  data::Batch batch;
  data::resize_batch(batch, B, T, {});
  std::vector<int32_t> row(T + 1);
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t t = 0; t <= T; ++t) row[t] = static_cast<int32_t>(Philox::block(1, index, b * (T + 1) + t)[0] % vocab);
    data::fill_row(batch, b, row, -1, {});
  }
  batch.first_sample = static_cast<int64_t>(index) * B;
  std::vector<int32_t> counts;
  data::fill_order(batch, static_cast<int32_t>(vocab), counts);
  return batch;
}

double median(std::vector<double> v) {
  std::ranges::sort(v);
  return v.size() % 2 == 1 ? v[v.size() / 2] : 0.5 * (v[v.size() / 2 - 1] + v[v.size() / 2]);
}

int64_t bytes_of(const comm::OperationInfo& info) {
  return info.size * size_of(info.dtype) + info.recv_size * size_of(info.recv_dtype);
}

}  // namespace

config::RunConfig config_of_steps(std::string_view command, const std::string& file,
                                  const std::vector<std::string>& overrides, const Session& session, int64_t ranks) {
  comm::Bootstrap& bootstrap = session.bootstrap;
  config::RawConfig raw = config::read_config(file, overrides);
  training::apply_start_model(raw);
  config::Facts facts{.ranks = ranks > 0 ? ranks : bootstrap.world().size(),
                      .local_ranks = bootstrap.local_size(),
                      .hardware_threads = session.cores.machine,
                      .purpose = config::Purpose::kStep};
  // Without vocab.size the vocabulary is that of the bytes tokenizer, since no dataset is opened.
  if (!raw.given("vocab.size")) facts.dataset_vocab_size = 257;
  config::RunConfig config = config::resolve(raw, facts).config;
  complete_step(command, file, config);
  return config;
}

void complete_step(std::string_view command, const std::string& file, config::RunConfig& config) {
  if (config.train.sequence_length <= 0 || config.train.micro_batch + config.train.global_batch <= 0)
    throw input_error(command, "train.sequence_length and train.micro_batch are needed; set both in ", file,
                      " or as overrides");
  config.train.micro_batch = std::max<int64_t>(config.train.micro_batch, 1);
}

namespace {

Log log_to_stderr() {
  return Log([](std::string_view line) { std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data()); });
}

/// Connects the devices of all ranks and returns their communicator.
comm::Communicator& connected(training::RunDevice& device) {
  device.connect();
  return device.ranks();
}

}  // namespace

TimedSteps::TimedSteps(const config::RunConfig& config, comm::Bootstrap& bootstrap)
    : config_(config),
      bootstrap_(bootstrap),
      global_batch_(std::max(config.train.global_batch, config.train.micro_batch * config.mesh.data)),
      log_(log_to_stderr()),
      device_({.bootstrap = bootstrap,
               .run = config.run,
               .attention = config.train.attention,
               .log = log_,
               .make_backend = {}}),
      mesh_(connected(device_), training::shape_of(config.mesh)),
      engine_(device_.backend(), device_.stream(), mesh_, training::engine_options(config)),
      slots_(global_batch_ / (config.train.micro_batch * config.mesh.data)) {
  engine_.initialize();
  for (size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].upload(engine_.ctx(),
                     random_batch(config.train.micro_batch, config.train.sequence_length, config.model.vocab_size,
                                  i * config.mesh.data + mesh_.index(kSampleAxes)));
  }
  auto* const tunable = dynamic_cast<Tunable*>(&device_.backend());
  Tuner* const tuner = tunable != nullptr ? tunable->tuner() : nullptr;
  if (tuner == nullptr) return;
  // Algorithms are chosen as in training, but the choices are not saved.
  training::Tuning tuning(*tuner, bootstrap.control(), log_, {});
  const std::vector<pipeline::MicroBatch> batches = training::micro_batches(slots_);
  do {
    engine_.forward_backward(batches, steps_);
    device_.stream().synchronize();
  } while (tuning.complete());
  auto* const preparing = dynamic_cast<PreparingTuner*>(tuner);
  if (preparing == nullptr || bootstrap.world().rank() != 0) return;
  for (const std::string& line : preparing->details()) log_.info(line);
}

int64_t TimedSteps::allocator_calls() {
  int64_t n = 0;
  for (int i = 0; i < kNumMemoryKinds; ++i)
    n += device_.backend().allocator(static_cast<MemoryKind>(i)).num_system_calls();
  return n;
}

void TimedSteps::step(bool timed) {
  const std::vector<pipeline::MicroBatch> batches = training::micro_batches(slots_);
  const int64_t gemms = device_.backend().num_gemms(), allocations = allocator_calls();
  comm::Communicator& ranks = bootstrap_.world();
  comm::ProgressEngine::Observer before;
  if (timed) {
    before = ranks.engine()->observe(nullptr);
    ranks.engine()->observe([&](const comm::OperationInfo& info, std::string_view communicator) {
      if (before) before(info, communicator);
      Traffic& traffic = traffic_[std::string(communicator)];
      ++traffic.operations;
      traffic.bytes += bytes_of(info);
    });
  }
  const double begin = now_ms();
  training::StepResult result = engine_.forward_backward(batches, steps_);
  const double middle = now_ms();
  engine_.check_finite(result, steps_);
  engine_.update(steps_, 1e-4);
  engine_.wait_param_sync();
  device_.stream().synchronize();
  const double end = now_ms();
  if (timed) ranks.engine()->observe(std::move(before));
  ++steps_;
  if (!timed) return;
  ++timed_;
  model_ms_.push_back(middle - begin);
  total_ms_.push_back(end - begin);
  gemms_ += device_.backend().num_gemms() - gemms;
  allocator_calls_ += allocator_calls() - allocations;
  // The peak is measured right after each step, while the cores still have the clock frequency that they had during the
  // step. Cores that have rested reach a higher peak, which no step can sustain.
  const double seconds = std::clamp(1e-4 * total_ms_.back(), 0.005, 0.05);
  peaks_.push_back(training::peak_flops(bootstrap_, device_.backend(), config_.run.dtype,
                                        static_cast<int>(config_.run.threads), seconds));
}

TimedSteps::Result TimedSteps::result() const {
  Result r{.step_ms = median(total_ms_),
           .step_ms_min = *std::ranges::min_element(total_ms_),
           .step_ms_max = *std::ranges::max_element(total_ms_),
           .forward_backward_ms = median(model_ms_),
           .peak_flops = median(peaks_),
           .gemms = gemms_ / timed_,
           .traffic = traffic_,
           .allocator_calls = allocator_calls_};
  const int64_t T = config_.train.sequence_length;
  r.tokens_per_sec = static_cast<double>(global_batch_ * T) / r.step_ms * 1e3;
  const model::FlopsPerToken flops = model::flops_per_token(config_.model, T);
  r.share = r.tokens_per_sec * flops.total_full() / r.peak_flops;
  r.share_causal = r.tokens_per_sec * flops.total_causal() / r.peak_flops;
  for (auto& [name, traffic] : r.traffic) {
    traffic.operations /= timed_;
    traffic.bytes /= timed_;
  }
  return r;
}

}  // namespace ashlar::launch
