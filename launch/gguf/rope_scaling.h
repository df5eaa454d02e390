#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/gguf/gguf_file.h"
#include "parallel/model/model_config.h"

// How llama.cpp stretches rotary positions: by keys of the metadata, or by a tensor of divisors.
namespace ashlar::gguf {

/// Name of the tensor with a divisor for the frequency of each pair.
inline constexpr std::string_view kDivisors = "rope_freqs.weight";

/// Returns the metadata of a model's scaling from its config.json; empty without scaling, or if divisors express it.
/// `types`: those of the architecture. Throws an input error that names a setting which llama.cpp lacks.
std::vector<Entry> scaling_metadata(const nlohmann::json& config, const std::string& architecture,
                                    std::span<const std::string_view> types);

/// Returns the values of kDivisors for a model, as many as pairs; empty if it needs none.
std::vector<float> frequency_divisors(const model::ModelConfig& model);

}  // namespace ashlar::gguf
