#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "launch/new_config/family.h"
#include "parallel/model/model_config.h"

namespace ashlar::new_config {

struct ShapeRequest {
  const Family& family;
  int64_t parameters = 0;  ///< the wanted count
  int64_t vocab_size = 0;
  int64_t sequence_length = 0;  ///< rows of a learned table of positions
};

/// Sizes of a model, with what decided them.
struct Shape {
  model::ModelConfig model;  ///< count_parameters() of it is within kTolerance of the wanted count
  int64_t parameters = 0;
  int64_t active = 0;          ///< parameters that a token meets
  int64_t in_layers = 0;       ///< parameters that a token meets, without the tables of tokens and positions
  double tables = 0;           ///< share of the embedding and the head in `parameters`
  double aspect = 0;           ///< d_model / n_layers that was aimed at
  bool published = false;      ///< the aim is the family's own, since its model is of nearly this size
  bool tied_for_size = false;  ///< tied, though the family's model is not
};

inline constexpr double kTolerance = 0.03;
/// Sizes of the family's model hold for sizes within this factor.
inline constexpr double kNear = 2;

/// The aspect ratio d_model / n_layers for a model with so many parameters in its layers: 128 from 6.4 billion, and
/// below it falls with the sixth root, which gives 62 at 85 million. Table 2.1 of GPT-3 (arXiv 2005.14165) has 64
/// there, 43 to 85 in between, and 128 above. The loss depends little on it (Kaplan et al. 2020, figure 5).
double aspect_ratio(double parameters_in_layers);

/// Chooses width, depth, heads, KV heads and d_ff, in the family's proportions, for the wanted count. The vocabulary is
/// padded so that tensor ranks divide it, and heads that 2, 4 and 8 ranks divide are preferred, whatever the ranks: the
/// model does not depend on them. If no shape has the wanted count, throws an input error that says the least or the
/// nearest count for this vocabulary.
Shape choose_shape(const ShapeRequest& request);

}  // namespace ashlar::new_config
