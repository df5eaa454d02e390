#include "launch/hf/shared/rows.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace ashlar::hf {
namespace {

using model::ModelConfig;
using model::PosType;

constexpr std::pair<const char*, Activation> kActivations[] = {
    // An activation with several names is written with the first.
    {"relu", Activation::kRelu},
    {"relu2", Activation::kRelu2},
    {"gelu", Activation::kGeluErf},
    {"gelu_python", Activation::kGeluErf},
    {"gelu_new", Activation::kGeluTanh},
    {"gelu_fast", Activation::kGeluTanh},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"gelu_python_tanh", Activation::kGeluTanh},
    {"gelu_accurate", Activation::kGeluTanh},
    {"quick_gelu", Activation::kQuickGelu},
    {"silu", Activation::kSilu},
    {"swish", Activation::kSilu},
    {"sigmoid", Activation::kSigmoid},
    {"linear", Activation::kIdentity},
    {"xielu", Activation::kXielu},
};

template <typename T>
T value_of(T& (*field)(ModelConfig&), const HfConfig& c) {
  ModelConfig m = c.model;
  return field(m);
}

int64_t derived_head_dim(JsonReader& r, const ModelConfig& m) {
  if (m.d_model % m.n_heads != 0) {
    r.add_error(str_cat("hidden size ", m.d_model, ": expected a multiple of the number of heads, ", m.n_heads,
                        "; correct one of the two numbers"));
  }
  return std::max<int64_t>(m.d_model / m.n_heads, 1);
}

/// Largest accepted number of layers. It limits the size of lists with one entry per layer, which are made before the
/// number is compared with the weights.
constexpr int64_t kMostLayers = 65536;

}  // namespace

Row size(const Keys& keys, const std::vector<SizeField>& fields, int64_t fallback) {
  return {.read =
              [=](JsonReader& r, HfConfig& c) {
                const int64_t value = r.size(keys, fallback);
                for (const SizeField field : fields) {
                  if (&field(c.model) == &c.model.n_layers && value > kMostLayers)
                    return r.refuse(keys[0], "expected at most ", kMostLayers, " layers; correct this key");
                  field(c.model) = value;
                }
              },
          .write = [=](Json& j, const HfConfig& c) { j[keys[0]] = value_of(fields[0], c); }};
}

Row size_or(const Keys& keys, SizeField field, SizeRule rule) {
  return {.read = [=](JsonReader& r, HfConfig& c) { field(c.model) = r.optional_size(keys).value_or(rule(c.model)); },
          .write = [=](Json& j, const HfConfig& c) { j[keys[0]] = value_of(field, c); }};
}

Row positions(const Keys& keys, int64_t fallback) {
  return {.read =
              [=](JsonReader& r, HfConfig& c) {
                c.extras.max_positions = r.size(keys, fallback);
                if (c.model.pos.type == PosType::kLearned) c.model.pos.max_positions = c.extras.max_positions;
              },
          .write =
              [=](Json& j, const HfConfig& c) {
                const bool learned = c.model.pos.type == PosType::kLearned;
                j[keys[0]] = learned ? c.model.pos.max_positions : c.extras.max_positions;
              }};
}

Row number(const char* key, const std::vector<NumberField>& fields, double fallback) {
  return {.read =
              [=](JsonReader& r, HfConfig& c) {
                const double value = r.number({key}, fallback);
                for (const NumberField field : fields) field(c.model) = value;
              },
          .write = [=](Json& j, const HfConfig& c) { j[key] = value_of(fields[0], c); }};
}

Row flag(const char* key, const std::vector<FlagField>& fields, bool fallback) {
  return {.read =
              [=](JsonReader& r, HfConfig& c) {
                const bool value = r.boolean({key}, fallback);
                for (const FlagField field : fields) field(c.model) = value;
              },
          .write =
              [=](Json& j, const HfConfig& c) {
                j[key] = std::ranges::any_of(fields, [&](FlagField field) { return value_of(field, c); });
              }};
}

Row flag(const char* key, bool fallback, void (*set)(ModelConfig&, bool), bool (*get)(const ModelConfig&)) {
  return {.read = [=](JsonReader& r, HfConfig& c) { set(c.model, r.boolean({key}, fallback)); },
          .write = [=](Json& j, const HfConfig& c) { j[key] = get(c.model); }};
}

Row derived(void (*set)(ModelConfig&)) {
  return {.read = [=](JsonReader&, HfConfig& c) { set(c.model); }};
}

Row demand(std::function<std::string(const ModelConfig&)> limit) { return {.limit = std::move(limit)}; }

Row activation(const char* key, const char* fallback) {
  const auto read = [=](JsonReader& r, HfConfig& c) {
    const std::string name = r.text({key}, fallback);
    const auto* row = std::ranges::find_if(kActivations, [&](const auto& spelling) { return spelling.first == name; });
    // xIELU has learned parameters, so only a family with xIELU as its default accepts it.
    const bool learned = row != std::end(kActivations) && row->second == Activation::kXielu;
    if (row != std::end(kActivations) && (!learned || name == fallback)) {
      c.model.ffn.act = row->second;
    } else {
      c.model.ffn.act = Activation::kSilu;
      r.refuse(key,
               "expected relu, relu2, gelu (erf), gelu_new or another name of gelu's tanh form, quick_gelu, silu, ",
               "sigmoid or linear; use a model with one of these");
    }
  };
  return {.read = read, .write = [=](Json& j, const HfConfig& c) {
            for (const auto& [spelling, act] : kActivations) {
              if (act != c.model.ffn.act) continue;
              j[key] = spelling;
              return;
            }
          }};
}

Row parallel_block(const char* key, int norms, bool fallback) {
  return {.read =
              [=](JsonReader& r, HfConfig& c) {
                if (!r.boolean({key}, fallback)) return;
                c.model.block = {.topology = model::Topology::kParallel, .parallel_norms = norms};
              },
          .write = [=](Json& j, const HfConfig& c) { j[key] = c.model.block.topology == model::Topology::kParallel; }};
}

Row kv_heads(std::optional<int64_t> absent) {
  constexpr const char* kKey = "num_key_value_heads";
  const auto read = [=](JsonReader& r, HfConfig& c) {
    if (!r.has(kKey) && absent) {
      c.model.n_kv_heads = *absent;
      r.add_note(str_cat(kKey, " is absent: using ", *absent, ", the default of the class"));
    } else {
      c.model.n_kv_heads = r.optional_size({kKey}).value_or(c.model.n_heads);
    }
  };
  return {.read = read, .write = [=](Json& j, const HfConfig& c) { j[kKey] = c.model.n_kv_heads; }};
}

Row head_dim(HeadDim kind, std::optional<int64_t> absent) {
  constexpr const char* kKey = "head_dim";
  if (kind == HeadDim::kDerived) {
    return {.read = [=](JsonReader& r, HfConfig& c) {
      c.model.head_dim = derived_head_dim(r, c.model);
      const auto given = r.optional_size({kKey});
      if (given && *given != c.model.head_dim) {
        r.refuse(kKey, "expected hidden size / number of heads = ", c.model.head_dim, " in ", c.family->class_name,
                 "; remove head_dim or change the sizes");
      }
    }};
  }
  return {.read =
              [=](JsonReader& r, HfConfig& c) {
                const bool here = r.has(kKey);
                const auto given = r.optional_size({kKey});
                if (!here && absent)
                  r.add_note(str_cat(kKey, " is absent: using ", *absent, ", the default of the class"));
                c.model.head_dim = given ? *given : (!here && absent ? *absent : derived_head_dim(r, c.model));
              },
          .write =
              [=](Json& j, const HfConfig& c) {
                const bool needed = c.model.head_dim * c.model.n_heads != c.model.d_model;
                if (kind == HeadDim::kWritten || needed) j[kKey] = c.model.head_dim;
              }};
}

Row init_std(const char* key) {
  return {.read =
              [=](JsonReader& r, HfConfig& c) {
                c.model.init.std = r.number({key}, 0.02);
                // transformers allows a standard deviation of 0, the init schemes here do not. Imported weights are not
                // affected.
                if (c.model.init.std == 0) c.model.init.std = 0.02;
              },
          .write = [=](Json& j, const HfConfig& c) { j[key] = c.model.init.std; }};
}

Row always_false(const char* key, const char* why, bool written) {
  Row row = {.read = [=](JsonReader& r, HfConfig&) {
    if (r.boolean({key}, false)) r.refuse(key, why);
  }};
  if (written) row.write = [=](Json& j, const HfConfig&) { j[key] = false; };
  return row;
}

Row always_zero(const char* key, const char* why) {
  return {.read =
              [=](JsonReader& r, HfConfig&) {
                if (r.number({key}, 0.0) != 0) r.refuse(key, why);
              },
          .write = [=](Json& j, const HfConfig&) { j[key] = 0.0; }};
}

void read_layer_types(JsonReader& r, ModelConfig& m, std::optional<int64_t> window,
                      const std::function<bool(int64_t)>& slides) {
  const nlohmann::json* types = r.raw("layer_types");
  if (types != nullptr && (!types->is_array() || static_cast<int64_t>(types->size()) != m.n_layers)) {
    r.refuse("layer_types", "expected a list of ", m.n_layers, " strings, one for each layer; correct the list");
    return;
  }
  std::vector<int64_t> layers;
  for (int64_t i = 0; i < m.n_layers; ++i) {
    const bool named = types != nullptr && (*types)[static_cast<size_t>(i)] == "sliding_attention";
    if (types != nullptr && !named && (*types)[static_cast<size_t>(i)] != "full_attention") {
      r.refuse("layer_types", "expected \"sliding_attention\" or \"full_attention\" for layer ", i, ", got ",
               (*types)[static_cast<size_t>(i)].dump(-1, ' ', true).substr(0, 60), "; correct layer_types");
      return;
    }
    if (named && !window) {
      r.refuse("layer_types", "layer ", i, " has sliding attention, but sliding_window is not set; set sliding_window");
      return;
    }
    layers.push_back((types == nullptr ? window && slides(i) : named) ? *window : -1);
  }
  m.attn.window_cycle = model::shortest_cycle(layers);
}

Json layer_types_of(const std::vector<int64_t>& windows) {
  Json types = Json::array();
  for (const int64_t window : windows) types.push_back(window > 0 ? "sliding_attention" : "full_attention");
  return types;
}

std::string sliding_alone(const ModelConfig& m) {
  const auto layers = model::layer_windows(m);
  const bool any = std::ranges::any_of(layers, [](int64_t w) { return w > 0; });
  if (!any || m.attn.window_kind == model::WindowKind::kSliding) return {};
  return "attn.window_kind = chunked: the class has only sliding windows";
}

Row windows(const WindowKeys& keys) {
  constexpr const char* kKey = "sliding_window";
  const auto read = [=](JsonReader& r, HfConfig& c) {
    const std::optional<int64_t> window = r.has(kKey) ? r.optional_size({kKey}) : keys.absent;
    if (!r.has(kKey) && keys.absent)
      r.add_note(str_cat(kKey, " is absent: using ", *window, ", the default of the class"));
    int64_t every = keys.full_every;
    const nlohmann::json* pattern = keys.every_key == nullptr ? nullptr : r.raw(keys.every_key);
    if (!window) pattern = nullptr;  // the key has no effect without a window; EXAONE's files have 0
    const bool number = pattern != nullptr && !pattern->is_string();
    if (number) every = r.size({keys.every_key}, every);
    const auto slides = [&](int64_t layer) {
      return every == 0 || (keys.first_is_full ? layer : layer + 1) % every != 0;
    };
    const size_t errors = r.num_errors();
    read_layer_types(r, c.model, window, slides);
    const bool types = r.raw("layer_types") != nullptr;
    // EXAONE's files may have a string here, in addition to layer_types.
    if (pattern != nullptr && !number && !types)
      r.refuse(keys.every_key, "expected a number, since layer_types is not given; give a number, or layer_types");
    if (number && types && window && r.num_errors() == errors) {
      const std::vector<int64_t> layers = model::layer_windows(c.model);
      for (int64_t layer = 0; layer < std::ssize(layers); ++layer) {
        if (slides(layer) == (layers[layer] > 0)) continue;
        r.refuse(keys.every_key, "expected the windows that layer_types gives, got another kind at layer ", layer,
                 "; remove ", keys.every_key, " or layer_types");
        break;
      }
    }
    // A class that does not read layer_types gives all layers the same window, or none. layer_types is accepted only if
    // it describes these layers.
    if (!keys.types && c.model.attn.window_cycle != std::vector<int64_t>{window.value_or(-1)}) {
      r.refuse("layer_types", c.family->class_name, " does not read this key; remove layer_types");
    }
  };
  const auto write = [=](Json& j, const HfConfig& c) {
    const std::vector<int64_t> layers = model::layer_windows(c.model);
    const auto slides = std::ranges::find_if(layers, [](int64_t w) { return w > 0; });
    j[kKey] = slides == layers.end() ? Json(nullptr) : Json(*slides);
    if (keys.types) j["layer_types"] = layer_types_of(layers);
  };
  return {.read = read, .write = write, .limit = sliding_alone};
}

Row ignored(const Keys& keys) {
  return {.read = [=](JsonReader& r, HfConfig&) { r.ignore(keys); }};
}

Row ignored(const char* key, int64_t (*value)(const HfConfig&)) {
  return {.read = [=](JsonReader& r, HfConfig&) { r.ignore({key}); },
          .write = [=](Json& j, const HfConfig& c) { j[key] = value(c); }};
}

Row without_effect(const char* key) {
  return {.read = [=](JsonReader& r, HfConfig& c) {
    if (r.number({key}, 0.0) != 0) r.add_note(str_cat(r.shown(key), " has no effect in ", c.family->class_name));
  }};
}

}  // namespace ashlar::hf
