#pragma once

#include <cstdint>
#include <vector>

#include "core/base/philox.h"
#include "data/read/batch.h"
#include "launch/training/engine.h"
#include "launch/training/evaluation.h"
#include "tests/layouts/axes.h"
#include "tests/layouts/masked_ids.h"

namespace ashlar::testing {

inline constexpr int64_t kMicroBatches = 8;

/// One sample of random tokens, the same for its number on any mesh.
inline data::Batch sample(int64_t number, int64_t vocab) {
  data::Batch batch;
  data::resize_batch(batch, 1, kT, {});
  std::vector<int32_t> row;
  for (int64_t t = 0; t <= kT; ++t) row.push_back(static_cast<int32_t>(Philox::block(5, number, t)[0] % vocab));
  data::fill_row(batch, 0, row, -1, {});
  ignore_masked_targets(batch);
  batch.first_sample = number;
  std::vector<int32_t> counts;
  data::fill_order(batch, static_cast<int32_t>(vocab), counts);
  return batch;
}

/// Losses of steps [from, to), each on kMicroBatches micro-batches of the whole run.
inline std::vector<double> train(training::Engine& engine, int64_t from, int64_t to) {
  const mesh::Mesh& mesh = engine.mesh();
  const int64_t share = kMicroBatches / mesh.size(kSampleAxes);
  std::vector<training::DeviceBatch> slots(share);
  std::vector<double> losses;
  for (int64_t step = from; step < to; ++step) {
    for (int64_t m = 0; m < share; ++m) {
      const int64_t number = step * kMicroBatches + mesh.index(kSampleAxes) * share + m;
      slots[m].upload(engine.ctx(), sample(number, engine.options().model.vocab_size));
    }
    training::StepResult result = engine.forward_backward(training::micro_batches(slots), step);
    engine.update(step, 1e-3);
    losses.push_back(result.loss);
  }
  return losses;
}

}  // namespace ashlar::testing
