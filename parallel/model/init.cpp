#include "parallel/model/init.h"

#include <cmath>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/strings.h"

namespace ashlar::model {

nn::InitRule matrix_init(const ModelConfig& config, int64_t out, int64_t in, bool to_residual) {
  const auto normal = [](double std, std::string rule) {
    return nn::InitRule{.kind = nn::InitRule::Kind::kNormal, .value = std, .rule = std::move(rule)};
  };
  const InitConfig& init = config.init;
  switch (init.scheme) {
    case InitScheme::kNormal: return normal(init.std, str_cat("normal ", init.std));
    case InitScheme::kGpt2:
      if (!to_residual) return normal(init.std, str_cat("gpt2 ", init.std));
      return normal(init.std * init.residual_scale,
                    str_cat("gpt2 ", init.std, " x ", init.residual_scale, " (residual output)"));
    case InitScheme::kXavier:
      return normal(std::sqrt(2.0 / static_cast<double>(in + out)), str_cat("xavier sqrt(2/(", in, "+", out, "))"));
    case InitScheme::kKaiming:
      return normal(std::sqrt(2.0 / static_cast<double>(in)), str_cat("kaiming sqrt(2/", in, ")"));
  }
  throw Bug("[init] unknown scheme");
}

nn::InitRule gain_init(const ModelConfig& config) {
  return config.norm.variant.unit_offset ? nn::InitRule{.rule = "0"} : nn::InitRule{.value = 1, .rule = "1"};
}

nn::InitRule table_init(const ModelConfig& config) {
  return {.kind = nn::InitRule::Kind::kNormal, .value = config.init.std, .rule = str_cat("normal ", config.init.std)};
}

}  // namespace ashlar::model
