// The rotary keys of config.json: base, fraction and scaling, as transformers 4 and 5 spell them. The rotary dictionary
// is the object rope_scaling (transformers 4) or rope_parameters (transformers 5).
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "launch/hf/shared/tables.h"
#include "parallel/model/rope_frequencies.h"

namespace ashlar::hf {
namespace {

using model::ModelConfig;
using model::RopeConfig;
using model::RopeScaling;

/// The names of the kinds of layers in config.json.
constexpr const char* kFullKind = "full_attention";
constexpr const char* kLocalKind = "sliding_attention";

/// Returns a fraction for which dims_of(width, fraction) is `dims`. The quotient dims / width may be rounded down, and
/// would then give fewer dimensions.
double fraction_of(int64_t dims, int64_t width, int64_t (*dims_of)(int64_t width, double fraction)) {
  double fraction = static_cast<double>(dims) / static_cast<double>(width);
  while (dims_of(width, fraction) < dims) {
    fraction = std::nextafter(fraction, std::numeric_limits<double>::infinity());
  }
  return fraction;
}

/// Returns a value that may be in rope_scaling or rope_parameters (`inner`), or at the top level of config.json under
/// `key`. If both places have a value, the two must be equal, because transformers 4 reads one and transformers 5 the
/// other.
std::optional<double> agreed(JsonReader& r, std::optional<double> inner, const char* key) {
  const auto outer = r.optional_number({key});
  if (inner && outer && *inner != *outer) {
    r.refuse(key, "expected ", *inner, ", the value in rope_scaling or rope_parameters; remove the wrong value");
  }
  return inner ? inner : outer;
}

std::vector<double> numbers(JsonReader& d, const char* key) {
  std::vector<double> list;
  const nlohmann::json* value = d.raw(key);
  bool good = value != nullptr && value->is_array();
  for (size_t i = 0; good && i < value->size(); ++i) {
    good = (*value)[i].is_number();
    if (good) list.push_back((*value)[i].get<double>());
  }
  if (!good) d.refuse(key, "expected a list of numbers, one for each rotated pair; correct the list");
  return list;
}

double required(JsonReader& d, const char* key) {
  const std::optional<double> value = d.optional_number({key});
  if (!value) d.refuse(key, "expected a number, which rope_type requires; add this key");
  return value.value_or(1.0);
}

/// Returns YaRN's factor on cos and sin, computed from mscale and mscale_all_dim; nothing if one of these is absent or
/// 0.
std::optional<double> factor_of_mscales(JsonReader& d, double factor) {
  const auto one = d.optional_number({"mscale"}), all = d.optional_number({"mscale_all_dim"});
  if (!one || !all || *one == 0 || *all == 0) return std::nullopt;
  const auto grown = [&](double mscale) { return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1; };
  return grown(*one) / grown(*all);
}

/// Reads a scaling other than "default" from `d`, the rope_scaling or rope_parameters of the config `r`.
/// `proportional`: the family supports proportional scaling.
void read_scaling(JsonReader& r, JsonReader& d, const std::string& type, bool proportional, HfConfig& c) {
  RopeConfig& rope = c.model.rope;
  const auto original = [&] {
    std::optional<int64_t> given = d.optional_size({"original_max_position_embeddings"});
    if (!given) given = r.optional_size({"original_max_position_embeddings"});
    return given.value_or(c.extras.max_positions);
  };
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
    rope.factor = required(d, "factor");
    d.ignore({"original_max_position_embeddings"});
  } else if (type == "llama3") {
    rope.scaling = RopeScaling::kLlama3;
    rope.factor = required(d, "factor");
    rope.low_freq_factor = required(d, "low_freq_factor");
    rope.high_freq_factor = required(d, "high_freq_factor");
    rope.original_positions = original();
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    rope.factor = required(d, "factor");
    rope.original_positions = original();
    rope.beta_fast = d.optional_number({"beta_fast"}).value_or(32);
    rope.beta_slow = d.optional_number({"beta_slow"}).value_or(1);
    rope.truncate = d.boolean({"truncate"}, true);
    const std::optional<double> given = d.optional_number({"attention_factor"});
    const std::optional<double> scaled = factor_of_mscales(d, rope.factor);
    rope.attention_factor = given ? *given : scaled.value_or(model::default_attention_factor(rope));
  } else if (type == "longrope" || type == "su") {
    rope.scaling = RopeScaling::kLongrope;
    rope.original_positions = original();
    const auto longest = static_cast<double>(c.extras.max_positions);
    rope.factor =
        d.optional_number({"factor"}).value_or(std::max(1.0, longest / static_cast<double>(rope.original_positions)));
    rope.short_factor = numbers(d, "short_factor");
    rope.long_factor = numbers(d, "long_factor");
    rope.attention_factor = d.optional_number({"attention_factor"}).value_or(model::default_attention_factor(rope));
  } else if (type == "proportional" && proportional) {
    rope.scaling = RopeScaling::kProportional;
    if (d.number({"factor"}, 1.0) != 1.0)
      d.refuse("factor", "expected 1: proportional scaling has no factor; remove this key");
  } else if (type == "dynamic" && d.has_value("alpha")) {
    rope.scaling = RopeScaling::kDynamic;
    rope.alpha = required(d, "alpha");
    // The published files have these keys; the class reads only alpha.
    d.ignore({"factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "original_max_position_embeddings"});
  } else {
    d.refuse(
        d.has("rope_type") ? "rope_type" : "type",
        "expected default, linear, llama3, yarn, longrope, dynamic with an alpha, or (in Gemma 4) proportional; use "
        "another model");
  }
}

/// The base and the fraction in rope_scaling or rope_parameters.
struct RotaryDictionary {
  std::optional<double> base, fraction;
};

/// The rope_parameters that Ministral3ForCausalLM uses by default.
nlohmann::json ministral3_dictionary() {
  return {
      {"rope_type", "yarn"},        {"rope_theta", 1e6}, {"factor", 16.0}, {"original_max_position_embeddings", 16384},
      {"beta_fast", 32.0},          {"beta_slow", 1.0},  {"mscale", 1.0},  {"mscale_all_dim", 1.0},
      {"llama_4_scaling_beta", 0.1}};
}

/// Reads the query temperature, a factor on queries that grows with the position. The temperature and the rotary
/// scaling share the key original_max_position_embeddings.
void read_temperature(JsonReader& d, HfConfig& c) {
  model::AttentionConfig& attn = c.model.attn;
  attn.temperature_beta = required(d, "llama_4_scaling_beta");
  const std::optional<int64_t> positions = d.optional_size({"original_max_position_embeddings"});
  if (!positions)
    d.refuse("original_max_position_embeddings", "expected a size, which llama_4_scaling_beta requires; add this key");
  attn.temperature_positions = attn.temperature_beta == 0 ? 0 : positions.value_or(1);
  d.ignore({"max_position_embeddings"});
}

/// Merges rope_scaling (transformers 4) and rope_parameters (transformers 5) into one dictionary; null if they differ.
/// `type` is an older name of rope_type. A base or fraction that only one dictionary has counts for both.
nlohmann::json one_dictionary(nlohmann::json scaling, nlohmann::json parameters) {
  for (nlohmann::json* dict : {&scaling, &parameters}) {
    if (!dict->contains("type") || dict->contains("rope_type")) continue;
    (*dict)["rope_type"] = (*dict)["type"];
    dict->erase("type");
  }
  for (const char* key : {"rope_theta", "partial_rotary_factor"}) {
    if (!scaling.contains(key) && parameters.contains(key)) scaling[key] = parameters[key];
    if (!parameters.contains(key) && scaling.contains(key)) parameters[key] = scaling[key];
  }
  return scaling == parameters ? parameters : nlohmann::json();
}

/// Settings of rope_scaling and rope_parameters that only some families support.
struct DictionaryKinds {
  bool proportional = false;
  bool temperature = false;  ///< query temperature (llama_4_scaling_beta)
};

/// Reads `d`, the rope_scaling or rope_parameters of the config `r`: sets the scaling in c.model, and returns the base
/// and the fraction.
RotaryDictionary read_dictionary(JsonReader& r, JsonReader d, HfConfig& c, const DictionaryKinds& kinds = {}) {
  const std::string type = d.text({"rope_type", "type"}, "default");
  const RotaryDictionary dictionary = {.base = d.optional_number({"rope_theta"}),
                                       .fraction = d.optional_number({"partial_rotary_factor"})};
  if (kinds.temperature) read_temperature(d, c);
  if (type == "default") {
    d.ignore({"original_max_position_embeddings"});
  } else {
    const size_t errors = d.num_errors();
    read_scaling(r, d, type, kinds.proportional, c);
    if (d.num_errors() > errors) return dictionary;
  }
  for (const std::string& key : d.unread_keys())
    d.refuse(key.c_str(), "rope_type \"", type, "\" does not read this key; remove the key");
  return dictionary;
}

RotaryDictionary read_rotary_dictionary(JsonReader& r, HfConfig& c, bool temperature) {
  const nlohmann::json* scaling = r.object("rope_scaling");
  const nlohmann::json* parameters = r.object("rope_parameters");
  nlohmann::json both;
  if (scaling != nullptr && parameters != nullptr) {
    both = one_dictionary(*scaling, *parameters);
    if (both.is_null())
      r.add_error("rope_scaling and rope_parameters are two names of one value, but differ; remove one of the two");
    if (!both.is_null()) scaling = &both;
  }
  const nlohmann::json usual = temperature ? ministral3_dictionary() : nlohmann::json();
  const nlohmann::json* dict = scaling != nullptr ? scaling : parameters;
  if (dict == nullptr && temperature) {
    r.add_note("rope_parameters is absent: using YaRN with factor 16, the default of the class");
    dict = &usual;
  }
  if (dict == nullptr) return {};
  return read_dictionary(r, r.nested(*dict, scaling != nullptr ? "rope_scaling." : "rope_parameters."), c,
                         {.temperature = temperature});
}

/// Returns the dictionary of one kind of layers in rope_parameters; null if there is none.
const nlohmann::json* dictionary_of_kind(JsonReader& r, const nlohmann::json* parameters, const char* kind) {
  if (parameters == nullptr || !parameters->contains(kind) || (*parameters)[kind].is_null()) return nullptr;
  if ((*parameters)[kind].is_object()) return &(*parameters)[kind];
  r.refuse("rope_parameters", "expected an object for each kind of layers; correct the value for ", kind);
  return nullptr;
}

void refuse_other_kinds(JsonReader& r, const nlohmann::json& parameters, const Family& family) {
  for (const auto& [key, value] : parameters.items()) {
    if (key == kFullKind || key == kLocalKind) continue;
    r.add_error(str_cat("rope_parameters.", key, ": expected only ", kFullKind, " and ", kLocalKind, " in ",
                        family.class_name, "; remove this key"));
  }
}

bool is_part_of(const nlohmann::json& some, const nlohmann::json& all) {
  for (const auto& [key, value] : some.items())
    if (!all.contains(key) || all[key] != value) return false;
  return true;
}

/// The rotary settings of one kind of layers, as if the model had only these layers.
struct KindRope {
  RotaryDictionary dictionary;
  RopeConfig rope;
};

KindRope read_kind(JsonReader& r, const nlohmann::json* dict, const std::string& where, const HfConfig& c,
                   bool proportional) {
  HfConfig one = c;
  KindRope kind;
  if (dict != nullptr)
    kind.dictionary = read_dictionary(r, r.nested(*dict, where), one, {.proportional = proportional});
  kind.rope = one.model.rope;
  return kind;
}

/// Returns the number of dimensions that rotate in a head of `width` dimensions: an even number, since pairs rotate.
int64_t proportional_dims(int64_t width, double fraction) {
  return 2 * static_cast<int64_t>(fraction * static_cast<double>(width) / 2);
}

/// Returns the value of rope_scaling and rope_parameters for a model, without rope_theta.
Json scaling_of(const RopeConfig& rope) {
  switch (rope.scaling) {
    case RopeScaling::kLinear: return {{"rope_type", "linear"}, {"factor", rope.factor}};
    case RopeScaling::kLlama3:
      return {{"rope_type", "llama3"},
              {"factor", rope.factor},
              {"low_freq_factor", rope.low_freq_factor},
              {"high_freq_factor", rope.high_freq_factor},
              {"original_max_position_embeddings", rope.original_positions}};
    case RopeScaling::kYarn:
      return {{"rope_type", "yarn"},
              {"factor", rope.factor},
              {"original_max_position_embeddings", rope.original_positions},
              {"attention_factor", rope.attention_factor},
              {"beta_fast", rope.beta_fast},
              {"beta_slow", rope.beta_slow},
              {"truncate", rope.truncate}};
    case RopeScaling::kLongrope:
      return {{"rope_type", "longrope"},
              {"factor", rope.factor},
              {"original_max_position_embeddings", rope.original_positions},
              {"attention_factor", rope.attention_factor},
              {"short_factor", rope.short_factor},
              {"long_factor", rope.long_factor}};
    case RopeScaling::kDynamic: return {{"rope_type", "dynamic"}, {"alpha", rope.alpha}};
    case RopeScaling::kNone:
    case RopeScaling::kProportional: break;  // rope_by_kind() writes kProportional; other families refuse the export
  }
  return {{"rope_type", "default"}};
}

void read_rope_by_kind(const RotaryKinds& keys, JsonReader& r, HfConfig& c) {
  ModelConfig& m = c.model;
  m.rope.dims = m.head_dim;
  const nlohmann::json* parameters = r.object("rope_parameters");
  const nlohmann::json* scaling = r.object("rope_scaling");
  const nlohmann::json* full_dict = dictionary_of_kind(r, parameters, kFullKind);
  const nlohmann::json* local_dict = dictionary_of_kind(r, parameters, kLocalKind);
  if (parameters != nullptr) refuse_other_kinds(r, *parameters, *c.family);
  // rope_scaling, the key of transformers 4, scales only the layers with full attention. Version 5 reads it in the same
  // way.
  if (scaling != nullptr && full_dict != nullptr && !is_part_of(*scaling, *full_dict))
    r.add_error(str_cat("rope_scaling and rope_parameters.", kFullKind, " differ; remove one of the two"));
  const bool proportional = keys.proportional.has_value();
  KindRope full =
      read_kind(r, full_dict != nullptr ? full_dict : scaling,
                full_dict != nullptr ? str_cat("rope_parameters.", kFullKind, ".") : "rope_scaling.", c, proportional);
  const KindRope local = read_kind(r, local_dict, str_cat("rope_parameters.", kLocalKind, "."), c, false);
  if (proportional && parameters == nullptr && scaling == nullptr) {
    full.rope.scaling = RopeScaling::kProportional;
    full.dictionary.fraction = keys.proportional;
  }
  if (full.rope.scaling == RopeScaling::kProportional) {
    const int64_t width = m.attn.global_head_dim.value_or(m.head_dim);
    full.rope.global_dims = proportional_dims(width, full.dictionary.fraction.value_or(1.0));
    full.dictionary.fraction.reset();
  }
  m.rope = full.rope;
  m.rope.base = agreed(r, full.dictionary.base, "rope_theta").value_or(keys.base);
  std::optional<double> local_base = local.dictionary.base;
  if (keys.local_key != nullptr) local_base = agreed(r, local_base, keys.local_key);
  if (local_base.value_or(keys.local_base) != m.rope.base) m.rope.local_base = local_base.value_or(keys.local_base);
  if (m.rope.scaling != RopeScaling::kNone && local.rope != full.rope)
    m.rope.scaled_layers = model::ScaledLayers::kFull;
  if (local.rope.scaling != RopeScaling::kNone && local.rope != full.rope)
    r.add_error(str_cat("rope_parameters.", kLocalKind, ": expected rope_type \"default\", or the scaling of ",
                        kFullKind, ": layers with a window cannot have a scaling of their own; use another model"));
  for (const std::optional<double>& fraction : {full.dictionary.fraction, local.dictionary.fraction}) {
    if (fraction.value_or(1.0) != 1.0)
      r.add_note(str_cat("partial_rotary_factor = ", *fraction, " has no effect in ", c.family->class_name));
  }
}

void write_rope_by_kind(const RotaryKinds& keys, Json& j, const HfConfig& c) {
  // Writes the settings of the first layer of each kind. If other layers of the kind have different settings,
  // obstacles() finds that the written keys, when read back, give a different model, and the export is refused.
  const std::vector<int64_t> windows = model::layer_windows(c.model);
  const auto of_kind = [&](bool full) {
    const auto layer = std::ranges::find_if(windows, [=](int64_t w) { return (w < 0) == full; });
    model::LayerRope rope = {.base = full ? keys.base : keys.local_base};
    if (layer != windows.end()) rope = model::rope_of(c.model, layer - windows.begin());
    Json dict = rope.scaled ? scaling_of(c.model.rope) : Json{{"rope_type", "default"}};
    if (keys.proportional && rope.scaled && c.model.rope.scaling == RopeScaling::kProportional) {
      dict = {{"rope_type", "proportional"},
              {"partial_rotary_factor", fraction_of(rope.dims, rope.head_dim, proportional_dims)}};
    }
    dict["rope_theta"] = rope.base > 0 ? rope.base : c.model.rope.base;
    return dict;
  };
  const Json full = of_kind(true), local = of_kind(false);
  j["rope_parameters"] = {{kFullKind, full}, {kLocalKind, local}};  // transformers 5
  if (keys.proportional) return;                                    // transformers 4 does not have the class
  j["rope_theta"] = full["rope_theta"];                             // transformers 4
  if (keys.local_key != nullptr) j[keys.local_key] = local["rope_theta"];
  j["rope_scaling"] = full["rope_type"] == "default" ? Json(nullptr) : full;
}

}  // namespace

Row rope(const Rotary& keys) {
  const auto read = [=](JsonReader& r, HfConfig& c) {
    const RotaryDictionary dictionary = read_rotary_dictionary(r, c, keys.temperature);
    ModelConfig& m = c.model;
    m.rope.base = agreed(r, dictionary.base, keys.base_key).value_or(keys.base);
    const double share = agreed(r, dictionary.fraction, keys.fraction_key).value_or(keys.fraction);
    if (keys.whole_heads) {
      m.rope.dims = m.head_dim;
      if (share != 1.0) {
        r.add_note(str_cat(keys.fraction_key, " = ", share, " has no effect in ", c.family->class_name));
      }
      return;
    }
    if (!(share > 0 && share <= 1)) {
      r.add_error(str_cat(keys.fraction_key, " = ", share, ": expected a number above 0, at most 1; correct this key"));
    }
    m.rope.dims = model::rope_dims_of(m.head_dim, std::clamp(share, 0.0, 1.0));
  };
  const auto write = [=](Json& j, const HfConfig& c) {
    const ModelConfig& m = c.model;
    Json parameters = scaling_of(m.rope);
    parameters["rope_theta"] = m.rope.base;
    if (keys.temperature) {
      parameters["llama_4_scaling_beta"] = m.attn.temperature_beta;
      // For some scalings, scaling_of() has written original_max_position_embeddings. If that value differs from
      // `positions`, obstacles() finds that the written keys, when read back, give a different model, and the export is
      // refused.
      const int64_t positions = m.attn.temperature_positions > 0 ? m.attn.temperature_positions
                                                                 : std::max<int64_t>(c.extras.max_positions, 1);
      if (!parameters.contains("original_max_position_embeddings"))
        parameters["original_max_position_embeddings"] = positions;
    }
    if (!keys.whole_heads)
      parameters["partial_rotary_factor"] = fraction_of(m.rope.dims, m.head_dim, model::rope_dims_of);
    const bool scaled = parameters["rope_type"] != "default" || keys.temperature;
    j["rope_parameters"] = parameters;  // transformers 5
    j[keys.base_key] = m.rope.base;     // transformers 4
    if (!keys.whole_heads) j[keys.fraction_key] = parameters["partial_rotary_factor"];
    j["rope_scaling"] = scaled ? parameters : Json(nullptr);
  };
  return {.read = read, .write = write};
}

Row rope_by_kind(const RotaryKinds& keys) {
  return {.read = [=](JsonReader& r, HfConfig& c) { read_rope_by_kind(keys, r, c); },
          .write = [=](Json& j, const HfConfig& c) { write_rope_by_kind(keys, j, c); }};
}

Row unread_rope_keys(const char* base_key, const char* fraction_key) {
  return {.read = [=](JsonReader& r, HfConfig& c) {
    const ModelConfig& m = c.model;
    const auto base = r.optional_number({base_key}), fraction = r.optional_number({fraction_key});
    if (base && *base != m.rope.base) {
      r.refuse(base_key, c.family->class_name, " uses ", m.rope.base, " instead of this key; remove the key");
    }
    if (fraction && (!(*fraction > 0 && *fraction <= 1) || model::rope_dims_of(m.head_dim, *fraction) != m.rope.dims)) {
      r.refuse(fraction_key, c.family->class_name, " rotates ", m.rope.dims,
               " dimensions and ignores this key; remove the key");
    }
  }};
}

Row layers_without_rope(bool empty_list) {
  constexpr const char *kList = "no_rope_layers", *kInterval = "no_rope_layer_interval";
  const auto read = [=](JsonReader& r, HfConfig& c) {
    ModelConfig& m = c.model;
    const nlohmann::json* list = r.raw(kList);
    const int64_t interval = r.optional_size({kInterval}).value_or(4);
    if (empty_list && list != nullptr && list->is_array() && list->empty()) list = nullptr;
    std::vector<double> bases;
    for (int64_t layer = 0; layer < m.n_layers; ++layer) {
      bool turns = (layer + 1) % interval != 0;
      if (list != nullptr) {
        const bool good = list->is_array() && std::ssize(*list) >= m.n_layers && (*list)[layer].is_number_integer();
        if (!good) return r.refuse(kList, "expected a list of 0 and 1, one for each layer; correct the list");
        turns = (*list)[layer].get<int64_t>() != 0;
      }
      bases.push_back(turns ? m.rope.base : 0.0);
    }
    m.rope.base_cycle = model::shortest_cycle(bases);
    if (m.rope.base_cycle == std::vector<double>{m.rope.base}) m.rope.base_cycle.clear();
  };
  const auto write = [=](Json& j, const HfConfig& c) {
    double base = 0;  // of the layers that rotate; rope() has written rope.base, which base_cycle replaces
    j[kList] = Json::array();
    for (int64_t layer = 0; layer < c.model.n_layers; ++layer) {
      const double of_layer = model::rope_of(c.model, layer).base;
      if (base == 0) base = of_layer;
      j[kList].push_back(of_layer > 0 ? 1 : 0);
    }
    if (base == 0) return;
    j["rope_theta"] = j["rope_parameters"]["rope_theta"] = base;
    if (j["rope_scaling"].is_object()) j["rope_scaling"]["rope_theta"] = base;
  };
  return {.read = read, .write = write};
}

}  // namespace ashlar::hf
