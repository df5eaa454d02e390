#include "launch/layout_check/step_numbers.h"

#include <algorithm>

#include "core/base/philox.h"
#include "launch/training/engine_options.h"
#include "launch/training/evaluation.h"

namespace ashlar::layout_check {

namespace {

/// Samples [number * B, (number + 1) * B) of random tokens: the same on any mesh.
data::Batch random_micro_batch(const config::RunConfig& c, int64_t number) {
  const int64_t B = c.train.micro_batch, T = c.train.sequence_length, vocab = c.model.vocab_size;
  const data::DocumentRule rule{.mask = c.data.document_mask, .restart_positions = c.data.restart_positions};
  const auto eod = static_cast<int32_t>(vocab - 1);
  data::Batch batch;
  data::resize_batch(batch, B, T, rule);
  std::vector<int32_t> row(T + 1);
  for (int64_t b = 0; b < B; ++b) {
    const int64_t sample = number * B + b;
    for (int64_t t = 0; t <= T; ++t) {
      const auto random = Philox::block(3, sample, t);
      // With document masks, about every twelfth token ends a document.
      row[t] = rule.mask && random[1] % 12 == 0 ? eod : static_cast<int32_t>(random[0] % vocab);
    }
    data::fill_row(batch, b, row, eod, rule);
    const int64_t counted = std::max<int64_t>(T * (1 + sample % 4) / 4, 1);
    for (int64_t t = 0; t < T; ++t) {
      int32_t& target = batch.targets[b * T + t];
      if (target == data::kIgnoreIndex) continue;
      if (t < counted && !std::ranges::binary_search(c.model.masked_ids, int64_t{target})) continue;
      target = data::kIgnoreIndex;
      --batch.valid_targets;
    }
  }
  batch.first_sample = number * B;
  std::vector<int32_t> counts;
  data::fill_order(batch, static_cast<int32_t>(vocab), counts);
  return batch;
}

}  // namespace

std::vector<double> host_values(const Ctx& ctx, const Tensor& tensor) {
  std::vector<double> values(tensor.size());
  if (tensor.dtype() == DType::kFloat64) {
    ctx.backend.read(tensor.view(), values.data(), ctx.stream);
    return values;
  }
  ASHLAR_CHECK(tensor.dtype() == DType::kFloat32, tensor.dtype());
  std::vector<float> narrow(tensor.size());
  ctx.backend.read(tensor.view(), narrow.data(), ctx.stream);
  return {narrow.begin(), narrow.end()};
}

CheckedStep::CheckedStep(const config::RunConfig& config, training::RunDevice& device, comm::Communicator& ranks,
                         int64_t num_micro_batches)
    : lr_(config.optimizer.lr),
      mesh_(ranks, training::shape_of(config.mesh)),
      engine_(device.backend(), device.stream(), mesh_, training::engine_options(config)),
      batches_(num_micro_batches / config.mesh.data) {
  engine_.initialize();
  for (int64_t m = 0, number = mesh_.index(kSampleAxes) * std::ssize(batches_); m < std::ssize(batches_); ++m)
    batches_[m].upload(engine_.ctx(), random_micro_batch(config, number + m), config.model.masked_ids);
}

void CheckedStep::gradients() { result_ = engine_.forward_backward(training::micro_batches(batches_), 0); }

void CheckedStep::update() {
  engine_.update(0, lr_);
  engine_.wait_param_sync();
}

Reference reference_numbers(const config::RunConfig& config, training::RunDevice& device, comm::Communicator& ranks,
                            int64_t num_micro_batches) {
  CheckedStep step(config, device, ranks, num_micro_batches);
  const training::Engine& engine = step.engine();
  Reference reference;
  step.gradients();
  for (const auto& ref : engine.store().sharded_tensors())
    reference.tensors[ref.tensor->name] = {
        .gradient = host_values(engine.ctx(), nn::ParameterStore::of(engine.store().grads(), ref)),
        .weights = {},
        .lr_scale = optim::lr_scale_of(ref.tensor->role, config.optimizer.rule)};
  step.update();
  for (const auto& ref : engine.store().sharded_tensors())
    reference.tensors[ref.tensor->name].weights =
        host_values(engine.ctx(), nn::ParameterStore::of(engine.store().values(), ref));
  reference.result = step.result();
  return reference;
}

}  // namespace ashlar::layout_check
