// Keys of config.json that several classes with experts share.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

using model::ModelConfig;

Row experts(const Keys& keys, int64_t fallback) {
  // Limits the list of tensors that an import makes before it reads the weights.
  constexpr int64_t kMost = 4096;
  return {.read =
              [=](JsonReader& r, HfConfig& c) {
                c.model.moe.experts = r.size(keys, fallback);
                if (c.model.moe.experts <= kMost) return;
                r.refuse(keys[0], "expected at most ", kMost, " experts; correct this key");
                c.model.moe.experts = 1;
              },
          .write = [=](Json& j, const HfConfig& c) { j[keys[0]] = c.model.moe.experts; }};
}

Row expert_width() {
  return {.read = [](JsonReader&, HfConfig& c) { c.model.moe.d_ff = c.model.d_ff; },
          .write = [](Json& j, const HfConfig& c) { j["intermediate_size"] = c.model.moe.d_ff; }};
}

Row renormalized(bool fallback) { return flag("norm_topk_prob", {FIELD(moe.rule.renormalize)}, fallback); }

Row router_losses() {
  return {.read = [](JsonReader& r, HfConfig& c) {
    r.ignore({"router_aux_loss_coef"});
    if (r.boolean({"output_router_logits"}, false))
      r.add_note(str_cat("output_router_logits = true: the balance loss of ", c.family->class_name,
                         " depends on the size of the micro-batch and is left out; set moe.balance = \"sequence\" and "
                         "moe.balance_coef to train with one that does not"));
  }};
}

Row router_noise() {
  return always_zero("router_jitter_noise",
                     "expected 0: noise on the input of the router is not supported; set it to 0, which changes no "
                     "logit");
}

void set_expert_layers(ModelConfig& m, const std::vector<int64_t>& layers) {
  model::MoeConfig& moe = m.moe;
  const auto matches = [&] {
    for (int64_t layer = 0; layer < m.n_layers; ++layer)
      if (m.has_experts(layer) != std::ranges::binary_search(layers, layer)) return false;
    return true;
  };
  moe.dense_layers.clear();
  moe.first_layer = 0;
  for (moe.every = 1; moe.every <= std::min<int64_t>(m.n_layers, 16); ++moe.every)
    if (matches()) return;
  moe.every = 1;
  for (int64_t layer = 0; layer < m.n_layers; ++layer)
    if (!std::ranges::binary_search(layers, layer)) moe.dense_layers.push_back(layer);
}

std::optional<std::vector<int64_t>> layer_list(JsonReader& r, const char* key, int64_t n_layers) {
  const nlohmann::json* list = r.raw(key);
  if (list == nullptr) return std::nullopt;
  std::vector<int64_t> layers;
  const auto is_layer = [](const nlohmann::json& layer) { return layer.is_number_integer(); };
  const bool good = list->is_array() && std::all_of(list->begin(), list->end(), is_layer);
  if (!good) {
    r.refuse(key, "expected a list of layers such as [0, 5]; correct the list");
    return std::nullopt;
  }
  for (const nlohmann::json& layer : *list) {
    // The class compares layers with the list, so other numbers have no effect.
    const auto number = layer.get<int64_t>();
    if (number >= 0 && number < n_layers) layers.push_back(number);
  }
  std::ranges::sort(layers);
  layers.erase(std::ranges::unique(layers).begin(), layers.end());
  return layers;
}

namespace {

/// Reads a number of `what`, 0 or more.
int64_t number_of(const char* what, JsonReader& r, const char* key, int64_t fallback) {
  const double given = r.number({key}, static_cast<double>(fallback));
  const auto count = static_cast<int64_t>(given >= 0 && given <= 1e9 ? given : 0);
  if (static_cast<double>(count) != given)
    r.refuse(key, "expected a number of ", what, ", 0 or more; correct this key");
  return count;
}

}  // namespace

model::MoeConfig sigmoid_with_selection_bias() {
  return {.rule = {.score = RouterScore::kSigmoid, .sum_eps = 1e-20},
          .selection_bias = true,
          .balance = model::Balance::kNone};
}

Row shared_experts(const char* key, int64_t fallback, bool required) {
  return {
      .read =
          [=](JsonReader& r, HfConfig& c) {
            const int64_t count = required ? r.size({key}, fallback) : number_of("experts", r, key, fallback);
            c.model.moe.shared_d_ff = count * c.model.moe.d_ff;
          },
      .write = [=](Json& j,
                   const HfConfig& c) { j[key] = c.model.moe.shared_d_ff / std::max<int64_t>(c.model.moe.d_ff, 1); }};
}

std::string has_shared_experts(const ModelConfig& m) {
  return m.moe.shared_d_ff > 0 ? "" : "moe.shared_d_ff = 0: the class has shared experts";
}

Row first_layers(int64_t fallback) {
  constexpr const char* kKey = "first_k_dense_replace";
  return {.read = [=](JsonReader& r, HfConfig& c) { c.model.moe.first_layer = number_of("layers", r, kKey, fallback); },
          .write = [](Json& j, const HfConfig& c) { j[kKey] = c.model.moe.first_layer; }};
}

Row groups_of_experts(int64_t groups, int64_t top_groups) {
  constexpr const char *kGroups = "n_group", *kTop = "topk_group";
  const auto read = [=](JsonReader& r, HfConfig& c) {
    c.model.moe.rule.groups = r.size({kGroups}, groups);
    c.model.moe.rule.top_groups = r.size({kTop}, top_groups);
  };
  const auto write = [](Json& j, const HfConfig& c) {
    j[kGroups] = c.model.moe.rule.groups;
    j[kTop] = c.model.moe.rule.groups > 1 ? c.model.moe.rule.top_groups : 1;
  };
  return {.read = read, .write = write};
}

Row further_layers() {
  constexpr const char* kKey = "num_nextn_predict_layers";
  return {.read = [](JsonReader& r, HfConfig& c) { c.further_layers = number_of("layers", r, kKey, 1); },
          .write = [](Json& j, const HfConfig&) { j[kKey] = 0; }};
}

Row sparse_layers() {
  constexpr const char *kStep = "decoder_sparse_step", *kDense = "mlp_only_layers";
  const auto read = [=](JsonReader& r, HfConfig& c) {
    c.model.moe.every = r.optional_size({kStep}).value_or(1);
    c.model.moe.dense_layers = layer_list(r, kDense, c.model.n_layers).value_or(std::vector<int64_t>{});
  };
  const auto write = [=](Json& j, const HfConfig& c) {
    std::vector<int64_t> dense = c.model.moe.dense_layers;
    for (int64_t layer = 0; layer < std::min(c.model.moe.first_layer, c.model.n_layers); ++layer)
      dense.push_back(layer);
    std::ranges::sort(dense);
    dense.erase(std::ranges::unique(dense).begin(), dense.end());
    j[kStep] = c.model.moe.every;
    j[kDense] = dense;
  };
  return {.read = read, .write = write};
}

}  // namespace ashlar::hf
