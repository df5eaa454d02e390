#include "launch/training/evaluation.h"

namespace ashlar::training {

std::vector<pipeline::MicroBatch> micro_batches(std::span<const DeviceBatch> slots) {
  std::vector<pipeline::MicroBatch> batches;
  for (const DeviceBatch& slot : slots) batches.push_back(slot.micro_batch());
  return batches;
}

LossStats evaluate(Engine& engine, data::BatchSource& stream) {
  // Some at a time, so that every stage of a pipeline has work.
  std::vector<DeviceBatch> slots(4 * engine.mesh().shape().pipeline - 3);
  data::Batch batch;
  LossStats own;
  for (bool more = true; more;) {
    size_t n = 0;
    while (n < slots.size() && (more = stream.next(batch))) slots[n++].upload(engine.ctx(), batch);
    engine.evaluate(micro_batches(std::span(slots).first(n)), own);
  }
  return engine.total(own);
}

}  // namespace ashlar::training
