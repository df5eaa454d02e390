#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "data/read/batch_stream.h"
#include "launch/training/engine.h"

namespace ashlar::training {

/// The uploaded batches as the engine's micro-batches.
std::vector<pipeline::MicroBatch> micro_batches(std::span<const DeviceBatch> slots);

/// The loss over the rest of a stream, summed over all replicas. Called by all ranks, each with its replica's stream.
/// `stop` is called before each round of batches: when it returns non-zero on any rank, all ranks stop and nothing is
/// returned. It may be empty. A read error of one rank is an error on all.
std::optional<LossStats> evaluate(Engine& engine, data::BatchSource& stream,
                                  const std::function<int64_t()>& stop = nullptr);

}  // namespace ashlar::training
