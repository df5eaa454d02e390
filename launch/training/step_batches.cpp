#include "launch/training/step_batches.h"

#include <utility>

#include "launch/training/evaluation.h"

namespace ashlar::training {

int64_t num_micro_batches(const config::RunConfig& config) {
  return config.train.global_batch / (config.train.micro_batch * config.mesh.data);
}

StepBatches::StepBatches(Engine& engine, data::Prefetcher& reader, size_t micro_batches)
    : engine_(engine), reader_(reader), current_(micro_batches), next_(micro_batches) {}

void StepBatches::read() {
  if (read_) return;
  if (error_ != nullptr) std::rethrow_exception(error_);
  reader_.take_data_wait_ms();
  try {
    for (DeviceBatch& batch : next_) batch.upload(engine_.ctx(), *reader_.next(), engine_.options().model.masked_ids);
  } catch (...) {
    error_ = std::current_exception();  // a batch is lost, so every later read throws this error too
    throw;
  }
  next_wait_ms_ = reader_.take_data_wait_ms();
  next_counts_ = engine_.own_counts(micro_batches(next_));
  read_ = true;
}

void StepBatches::prefetch() {
  try {
    read();
  } catch (const Error&) {
    failed_ = true;  // rethrown when the step that needs the batch begins
  }
}

void StepBatches::advance() {
  read();
  std::swap(current_, next_);
  next_counts_ = {};
  next_wait_ms_ = 0;
  read_ = false;
}

std::vector<pipeline::MicroBatch> StepBatches::current() const { return micro_batches(current_); }

void StepBatches::write_to(StepMessage& mine) const {
  mine.next = next_counts_;
  mine.next_data_wait_ms = next_wait_ms_;
  mine.unread = failed_ ? 1 : 0;
}

}  // namespace ashlar::training
