#pragma once

#include "data/batch_stream.h"
#include "launch/training/engine.h"

namespace ashlar::training {

/// What a step computes, as the engine takes them.
std::vector<pipeline::MicroBatch> micro_batches(std::span<const DeviceBatch> slots);

/// The loss over the rest of a stream, of all replicas together. Called by all ranks, each with its replica's stream.
LossStats evaluate(Engine& engine, data::BatchSource& stream);

}  // namespace ashlar::training
