#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launch/hf/family.h"
#include "launch/hf/hf_config.h"
#include "launch/hf/json_reader.h"

// Shared by the files of this folder; not part of its interface.
namespace ashlar::hf {

// Functions that make rows. FIELD(norm.variant.eps) makes a function that returns this setting of a model. A row with
// several fields reads one key into all of them. It writes the value of the first field, or for flags, whether any of
// them is true. If the fields differ, obstacles() finds that the written key, when read back, gives a different model,
// and the export is refused.

using Keys = JsonReader::Keys;  ///< alternative names of one value; a row writes only the first
using SizeField = int64_t& (*)(model::ModelConfig&);
using NumberField = double& (*)(model::ModelConfig&);
using FlagField = bool& (*)(model::ModelConfig&);
using SizeRule = int64_t (*)(const model::ModelConfig&);
#define FIELD(path) \
  [](::ashlar::model::ModelConfig & m) -> auto& { return m.path; }

/// Row for an integer. If the key is absent, the value is `fallback`, the default of the class, and a note says so.
Row size(const Keys& keys, const std::vector<SizeField>& fields, int64_t fallback);
/// Row for an integer. If the key is absent or null, the value is rule(m), where m is the model read so far.
Row size_or(const Keys& keys, SizeField field, SizeRule rule);
/// Row for the longest context. It sets HfExtras::max_positions and, for learned positions, the size of their table.
Row positions(const Keys& keys, int64_t fallback);
Row number(const char* key, const std::vector<NumberField>& fields, double fallback);
Row flag(const char* key, const std::vector<FlagField>& fields, bool fallback);
/// Row for a flag that changes settings of other types: reading the key calls `set` with its value, and `get` returns
/// the value to write.
Row flag(const char* key, bool fallback, void (*set)(model::ModelConfig&, bool),
         bool (*get)(const model::ModelConfig&));
/// Row without a key: sets fields that follow from the fields that the rows above have set.
Row derived(void (*set)(model::ModelConfig&));
/// Row without a key that only checks a condition on the models of the family (Row::limit).
Row demand(std::function<std::string(const model::ModelConfig&)> limit);
Row activation(const char* key, const char* fallback);
/// Row for a flag: true means a parallel block with `norms` norms.
Row parallel_block(const char* key, int norms, bool fallback);
/// Row for the key num_key_value_heads. Null means one KV head per query head. If the key is absent, the number is
/// `absent`, the default of the class; without `absent`, an absent key means the same as null.
Row kv_heads(std::optional<int64_t> absent = std::nullopt);

enum class HeadDim : uint8_t {
  kDerived,          ///< always d_model / n_heads; another head_dim is refused
  kWritten,          ///< read from the key head_dim, always written
  kWrittenIfNeeded,  ///< read from the key head_dim, written only if it is not d_model / n_heads
};
/// Row for the head dimension. If the key is absent, the head dimension is `absent`, the default of the class; without
/// `absent`, it is d_model / n_heads.
Row head_dim(HeadDim kind, std::optional<int64_t> absent = std::nullopt);

struct Rotary {
  const char* base_key = "rope_theta";
  const char* fraction_key = "partial_rotary_factor";
  double base = 10000.0;     ///< default of the class
  double fraction = 1.0;     ///< default of the class
  bool whole_heads = false;  ///< the class rotates all dimensions of a head; the fraction has no effect
  bool temperature = false;  ///< the class has a query temperature (llama_4_scaling_beta) and YaRN scaling by default
};
/// Row for the rotary keys of transformers 4 (top level, rope_scaling) and 5 (rope_parameters); both are written.
Row rope(const Rotary& keys);
/// Rotary keys of a family whose layers with a window and with full attention have different rotary settings. All
/// dimensions of a head rotate, except with proportional scaling.
struct RotaryKinds {
  double base = 0, local_base = 0;  ///< default for layers with full attention; default for layers with a window
  /// Key for the base of layers with a window, in files of transformers 4; null: no such key.
  const char* local_key = nullptr;
  /// If set, the class supports proportional scaling in layers with full attention. A file without rope_parameters and
  /// rope_scaling then means proportional scaling with this fraction. This row must follow the rows that set the head
  /// dimensions.
  std::optional<double> proportional = std::nullopt;
};
/// Row for the rotary keys of transformers 4 (top level, rope_scaling for layers with full attention) and 5
/// (rope_parameters, an object for each kind of layer); both are written.
Row rope_by_kind(const RotaryKinds& keys);
/// Row for rotary keys that this class does not read, although other classes do. If a file has these keys, their values
/// must equal the values that this class uses.
Row unread_rope_keys(const char* base_key, const char* fraction_key);

/// Row for the standard deviation of the initial weights, for training from scratch.
Row init_std(const char* key = "initializer_range");

/// Row for a flag for which true is not supported: only false is accepted. `written`: an export writes the key, as
/// false.
Row always_false(const char* key, const char* why, bool written = false);
/// Row for a number for which only 0 is supported: other values are refused.
Row always_zero(const char* key, const char* why);
/// How the config.json of a family describes its attention windows: which keys it has, and the windows if they are
/// absent.
struct WindowKeys {
  std::optional<int64_t> absent = std::nullopt;  ///< window if the key sliding_window is absent; null: no window
  bool types = true;  ///< true: layer_types names the layers with a window; false: all have the same window, or none
  /// Without layer_types, one of every `full_every` layers has full attention: the last, or the first if first_is_full.
  /// 0: no layer has full attention.
  int64_t full_every = 0;
  bool first_is_full = false;
  const char* every_key = nullptr;  ///< key whose value, if given, replaces full_every; null: no such key
};
Row windows(const WindowKeys& keys);
/// Sets attn.window_cycle from layer_types ("sliding_attention" or "full_attention" for each layer). Without that key,
/// the layers for which slides(layer) is true have the window. If `window` is null, all layers have full attention.
void read_layer_types(JsonReader& r, model::ModelConfig& m, std::optional<int64_t> window,
                      const std::function<bool(int64_t)>& slides);
Json layer_types_of(const std::vector<int64_t>& windows);
/// A Row::limit that accepts only windows of kind "sliding".
std::string sliding_alone(const model::ModelConfig& m);
/// Row for keys that have no effect in this family. They are never written.
Row ignored(const Keys& keys);
/// Row for a key that has no effect in this family and is written with value(config).
Row ignored(const char* key, int64_t (*value)(const HfConfig&));
/// Row for a number that has no effect in this family. A value other than 0 adds a note.
Row without_effect(const char* key);

}  // namespace ashlar::hf
