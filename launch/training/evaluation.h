#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "data/read/batch_stream.h"
#include "launch/training/engine.h"

namespace ashlar::training {

/// What a step computes, as the engine takes them.
std::vector<pipeline::MicroBatch> micro_batches(std::span<const DeviceBatch> slots);

/// The loss over the rest of a stream, of all replicas together. Called by all ranks, each with its replica's stream.
/// `stop` is asked before each round of batches: when it returns other than 0 on any rank, all leave together and
/// nothing is returned; it may be empty. What a rank cannot read is one error of all.
std::optional<LossStats> evaluate(Engine& engine, data::BatchSource& stream,
                                  const std::function<int64_t()>& stop = nullptr);

}  // namespace ashlar::training
