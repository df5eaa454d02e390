#include "launch/gguf/rope_scaling.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/strings.h"
#include "parallel/model/rope_frequencies.h"

namespace ashlar::gguf {

using nlohmann::json;

std::vector<Entry> scaling_metadata(const json& config, const std::string& architecture,
                                    std::span<const std::string_view> types) {
  const json scaling = config.value("rope_scaling", json());
  if (scaling.is_null()) return {};
  const std::string type = scaling.at("rope_type").get<std::string>(), prefix = architecture + ".rope.scaling.";
  if (std::ranges::find(types, type) == types.end())
    throw input_error("gguf", "the model has rope_scaling of the type ", type, ": llama.cpp's ", architecture,
                      " expects ", comma_list(types), " or none; export to Hugging Face's format instead");
  if (type == "linear") return {{prefix + "type", type}, {prefix + "factor", scaling.at("factor").get<float>()}};
  return {};
}

std::vector<float> frequency_divisors(const model::ModelConfig& m) {
  if (m.rope.scaling != model::RopeScaling::kLlama3) return {};
  model::ModelConfig plain = m;
  plain.rope.scaling = model::RopeScaling::kNone;
  const model::LayerRope layer = model::rope_of(m, 0), unscaled = model::rope_of(plain, 0);
  const int64_t positions = m.rope.original_positions;
  const std::vector<double> scaled = model::rope_frequencies(m, layer, positions),
                            usual = model::rope_frequencies(plain, unscaled, positions);
  std::vector<float> divisors;
  for (size_t i = 0; i < usual.size(); ++i) divisors.push_back(static_cast<float>(usual[i] / scaled[i]));
  return divisors;
}

}  // namespace ashlar::gguf
