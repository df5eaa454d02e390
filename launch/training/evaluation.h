#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "data/read/batch_stream.h"
#include "launch/training/engine.h"

namespace ashlar::training {

/// Returns the micro-batches for the engine, which are views of the uploaded batches.
std::vector<pipeline::MicroBatch> micro_batches(std::span<const DeviceBatch> slots);

/// Returns the loss statistics of the remaining batches of `stream`, reduced over all replicas. Called by all ranks,
/// each with its replica's stream. `stop` is called before each round of micro-batches and may be empty: if it returns
/// non-zero on any rank, all ranks stop and return nothing. A read error of one rank is thrown on all ranks.
std::optional<LossStats> evaluate(Engine& engine, data::BatchSource& stream,
                                  const std::function<int64_t()>& stop = nullptr);

}  // namespace ashlar::training
