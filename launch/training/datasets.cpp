#include "launch/training/datasets.h"

#include "data/token_dataset.h"
#include "parallel/comm/together.h"

namespace ashlar::training {

void check_shards(comm::ControlPlane& ranks, const std::vector<data::WeightedDataset>& datasets) {
  comm::together(ranks, [&] {
    int64_t first = ranks.rank();  // of this dataset: the ranks go round over all datasets
    for (const data::WeightedDataset& d : datasets) {
      const int64_t shards = d.dataset->num_shards();
      for (; first < shards; first += ranks.size()) d.dataset->check_shard(first);
      first -= shards;
    }
  });
}

}  // namespace ashlar::training
