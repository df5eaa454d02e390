#pragma once

#include <map>
#include <string>

#include "parallel/model/model_config.h"

namespace ashlar::plan {

inline constexpr double kSectorBytes = 32;  ///< that a single number of a row costs

/// Bytes that a training step moves for each token in one block, beside products and attention, by kernel (launch
/// names): rows of C, H*D, G*D or F numbers of `element` bytes (bf16: 2), and one sector for a single number of a row.
std::map<std::string, double> block_bytes_of_a_token(const model::ModelConfig& config, double element = 2);
/// The part of it that experts on one rank have beside their activation: the router, rows to experts and back.
std::map<std::string, double> expert_bytes_of_a_token(const model::ModelConfig& config, double element = 2);

}  // namespace ashlar::plan
