#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "data/read/batch_stream.h"
#include "launch/training/engine.h"

namespace ashlar::training {

/// Returns the micro-batches for the engine, which are views of the uploaded batches.
std::vector<pipeline::MicroBatch> micro_batches(std::span<const DeviceBatch> slots);

struct Evaluation {
  LossStats losses;
  int64_t text_bytes = 0;  ///< bytes of text that the valid targets stand for
};

/// Returns the losses of the remaining batches of `stream`, reduced over all replicas. Called by all ranks, each with
/// its replica's stream. `bytes` is the table of the stream's tokenizer; needed on the ranks where counts_text() is
/// true. `stop` is called before each round of micro-batches and may be empty: if it returns
/// non-zero on any rank, all ranks stop and return nothing. A read error of one rank is thrown on all ranks.
std::optional<Evaluation> evaluate(Engine& engine, data::BatchSource& stream, const data::TokenBytes* bytes,
                                   const std::function<int64_t()>& stop = nullptr);

/// Number of micro-batches of a round on this mesh.
int64_t batches_per_round(const mesh::Mesh& mesh);

/// True on one rank of each replica, which counts the bytes of the replica's targets.
bool counts_text(const mesh::Mesh& mesh);

}  // namespace ashlar::training
