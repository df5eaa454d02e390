#pragma once

#include <string>
#include <vector>

#include "parallel/model/model_config.h"

namespace ashlar::layout_check {

/// Sorts names of tensors as backward meets them: the head first, blocks from the last one, each from its end, and the
/// embeddings. Tensors that backward meets at once are in order of their names, the last one first.
void sort_as_backward_meets(std::vector<std::string>& names, model::NormPlacement placement);

}  // namespace ashlar::layout_check
