#include "parallel/model/init.h"

#include <cmath>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/strings.h"

namespace ashlar::model {

namespace {

double inverse_root(double x) { return 1.0 / std::sqrt(x); }

nn::InitRule normal(const ModelConfig& config, double std, std::string rule) {
  nn::InitRule init{.kind = nn::InitRule::Kind::kNormal, .value = std, .rule = std::move(rule)};
  if (config.init.trunc_sigma) {
    init.trunc_sigma = *config.init.trunc_sigma;
    init.rule += str_cat(", truncated at ", init.trunc_sigma, " sigma");
  }
  return init;
}

/// Returns the standard deviation before init.residual_scale, and its formula.
std::pair<double, std::string> matrix_std(const ModelConfig& config, const MatrixPlace& place) {
  const auto C = static_cast<double>(config.d_model), L = static_cast<double>(config.n_layers);
  const auto in = static_cast<double>(place.in), out = static_cast<double>(place.out);
  switch (config.init.scheme) {
    case InitScheme::kNormal: return {config.init.std, str_cat("normal ", config.init.std)};
    case InitScheme::kGpt2: return {config.init.std, str_cat("gpt2 ", config.init.std)};
    case InitScheme::kSmallWang:
      if (place.residual_of_layer)
        return {2.0 / (L * std::sqrt(C)), str_cat("wang 2/(", config.n_layers, " sqrt(", config.d_model, "))")};
      return {std::sqrt(2.0 / (5.0 * C)), str_cat("small sqrt(2/(5*", config.d_model, "))")};
    case InitScheme::kFanIn: return {inverse_root(in), str_cat("fan_in 1/sqrt(", place.in, ")")};
    case InitScheme::kMitchell: {
      if (!place.residual_of_layer) return {inverse_root(in), str_cat("mitchell 1/sqrt(", place.in, ")")};
      const int64_t layers = *place.residual_of_layer + 1;
      return {inverse_root(2.0 * in * static_cast<double>(layers)),
              str_cat("mitchell 1/sqrt(2*", place.in, "*", layers, ")")};
    }
    case InitScheme::kT5:
      if (place.query_head_dim == 0) return {inverse_root(in), str_cat("t5 1/sqrt(", place.in, ")")};
      return {inverse_root(in * static_cast<double>(place.query_head_dim)),
              str_cat("t5 1/sqrt(", place.in, "*", place.query_head_dim, ")")};
    case InitScheme::kXavier:
      return {std::sqrt(2.0 / (in + out)), str_cat("xavier sqrt(2/(", place.in, "+", place.out, "))")};
    case InitScheme::kKaiming: return {std::sqrt(2.0 / in), str_cat("kaiming sqrt(2/", place.in, ")")};
  }
  throw Bug("[init] unknown scheme");
}

}  // namespace

nn::InitRule matrix_init(const ModelConfig& config, const MatrixPlace& place) {
  auto [std, rule] = matrix_std(config, place);
  const double scale = config.init.residual_scale;
  if (place.residual_of_layer && scale != 1) {
    std *= scale;
    rule += str_cat(" x ", scale, " (residual output)");
  }
  return normal(config, std, std::move(rule));
}

nn::InitRule xielu_init(double value) {
  return {.value = std::log(std::expm1(value)), .rule = str_cat("log(exp(", value, ") - 1)")};
}

nn::InitRule gain_init(const ModelConfig& config) {
  return config.norm.variant.unit_offset ? nn::InitRule{.rule = "0"} : nn::InitRule{.value = 1, .rule = "1"};
}

nn::InitRule table_init(const ModelConfig& config) {
  return normal(config, config.init.std, str_cat("normal ", config.init.std));
}

nn::InitRule t5_bias_init(const ModelConfig& config) {
  if (config.init.scheme != InitScheme::kT5) return table_init(config);
  return normal(config, inverse_root(static_cast<double>(config.d_model)), str_cat("t5 1/sqrt(", config.d_model, ")"));
}

double default_table_std(const ModelConfig& config, std::string& rule) {
  const auto C = static_cast<double>(config.d_model);
  switch (config.init.scheme) {
    case InitScheme::kSmallWang: rule = "sqrt(2/(5 d_model))"; return std::sqrt(2.0 / (5.0 * C));
    case InitScheme::kMitchell: rule = "1/sqrt(d_model)"; return inverse_root(C);
    case InitScheme::kFanIn:
    case InitScheme::kT5: rule = str_cat("tables with init.scheme ", name_of(config.init.scheme)); return 1;
    case InitScheme::kNormal:
    case InitScheme::kGpt2:
    case InitScheme::kXavier:
    case InitScheme::kKaiming: rule = "usual"; return 0.02;
  }
  throw Bug("[init] unknown scheme");
}

}  // namespace ashlar::model
