#pragma once

#include <cstdint>
#include <vector>

#include "launch/config/run_config.h"
#include "parallel/model/stage.h"

namespace ashlar::plan {

/// A product of a token: x [k] times a matrix [m, k]. A token of a layer with experts enters `rows` of them.
struct Product {
  double k = 0, m = 0, rows = 1;
  double rows_of_matrix = 1;  ///< share of the rows of all experts here that one matrix multiplies
};

/// What one rank computes of a layer, for each token of a micro-batch. Experts are taken as evenly loaded.
struct LayerWork {
  std::vector<Product> products;
  double attention_flops = 0;  ///< causal, forward: two products of queries and keys
  int64_t head_dim = 0;
  double forward_bytes = 0, backward_bytes = 0;  ///< of kernels beside products and attention
  double recomputed_bytes = 0;                   ///< that selective recomputation runs again
  double parameters = 0, expert_parameters = 0;  ///< of this rank, in matrices
  double tensor_exchanges = 0;                   ///< sums of rows over the tensor ranks, in forward
  double expert_rows = 0;                        ///< rows that travel to other ranks' experts, and back
};

/// Work of one rank: `model` divided over mesh.tensor and mesh.expert ranks, samples of train.sequence_length tokens.
LayerWork layer_work(const config::RunConfig& run, int64_t layer);

/// Embedding, or final norm, head and loss, of one rank and one token.
struct EndWork {
  std::vector<Product> products;
  double forward_bytes = 0, backward_bytes = 0;
  double parameters = 0;
};
EndWork embedding_work(const config::RunConfig& run);
EndWork head_work(const config::RunConfig& run);

}  // namespace ashlar::plan
