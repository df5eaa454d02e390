#pragma once

#include <vector>

#include "data/batch_stream.h"
#include "parallel/comm/control_plane.h"

namespace ashlar::training {

/// Opens every shard of the datasets once, without its chunks, and compares it with its manifest; the ranks share the
/// work: rank r of p takes shards r, r + p, ... Called by all ranks; a shard that is missing, cut short or another one
/// than it should be is one error of all (exit code 3), that of the lowest rank that found one.
void check_shards(comm::ControlPlane& ranks, const std::vector<data::WeightedDataset>& datasets);

}  // namespace ashlar::training
