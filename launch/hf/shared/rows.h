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

// The kinds of rows. A field of the model is given by the function that finds it: FIELD(norm.variant.eps). A row with
// several fields writes the first number, or whether any of the flags is set. If the fields differ, the model that is
// read back differs from the exported one, so the export is refused.

using Keys = JsonReader::Keys;  ///< several are names of one value; the first is the one that is written
using SizeField = int64_t& (*)(model::ModelConfig&);
using NumberField = double& (*)(model::ModelConfig&);
using FlagField = bool& (*)(model::ModelConfig&);
using SizeRule = int64_t (*)(const model::ModelConfig&);
#define FIELD(path) \
  [](::ashlar::model::ModelConfig & m) -> auto& { return m.path; }

/// Absent: `fallback`, the default of the class, which becomes a note.
Row size(const Keys& keys, const std::vector<SizeField>& fields, int64_t fallback);
/// Absent or null: `rule` of the model read so far.
Row size_or(const Keys& keys, SizeField field, SizeRule rule);
/// The longest context: the rows of a learned table where the family has one, else HfExtras::max_positions.
Row positions(const Keys& keys, int64_t fallback);
Row number(const char* key, const std::vector<NumberField>& fields, double fallback);
Row flag(const char* key, const std::vector<FlagField>& fields, bool fallback);
/// A flag for fields that are not flags: `set` is called with its value, and `get` returns the value to write.
Row flag(const char* key, bool fallback, void (*set)(model::ModelConfig&, bool),
         bool (*get)(const model::ModelConfig&));
/// No key: sets fields that follow from the rows above.
Row derived(void (*set)(model::ModelConfig&));
/// A row without a key: a condition on the models of the family (Row::limit).
Row demand(std::function<std::string(const model::ModelConfig&)> limit);
Row activation(const char* key, const char* fallback);
/// true: a parallel block with `norms` norms.
Row parallel_block(const char* key, int norms, bool fallback);
/// num_key_value_heads. Null: one for each head. Absent: the same, or the default of the class.
Row kv_heads(std::optional<int64_t> absent = std::nullopt);

enum class HeadDim : uint8_t {
  kDerived,          ///< always width / heads; another head_dim is refused
  kWritten,          ///< a key of its own, always written
  kWrittenIfNeeded,  ///< a key of its own, written where it is not width / heads
};
/// Absent: width / heads, or the default of the class.
Row head_dim(HeadDim kind, std::optional<int64_t> absent = std::nullopt);

struct Rotary {
  const char* base_key = "rope_theta";
  const char* fraction_key = "partial_rotary_factor";
  double base = 10000.0;     ///< default of the class
  double fraction = 1.0;     ///< default of the class
  bool whole_heads = false;  ///< the class always rotates whole heads
  bool temperature = false;  ///< reads the query temperature; YaRN is the default of the class
};
/// The rotary keys of transformers 4 (top level, rope_scaling) and 5 (rope_parameters); both are written.
Row rope(const Rotary& keys);
/// For a family whose layers with and without a window have rotary settings of their own. Whole heads rotate.
struct RotaryKinds {
  double base = 0, local_base = 0;  ///< defaults of the class
  /// Key of the base of layers with a window in files of transformers 4; null: there is none.
  const char* local_key = nullptr;
  /// If set, layers with full attention have proportional scaling, and this is the fraction for a file without
  /// rope_parameters. This row must follow the rows of both kinds of heads.
  std::optional<double> proportional = std::nullopt;
};
/// The rotary keys of transformers 4 (top level, rope_scaling for layers with full attention) and 5 (rope_parameters,
/// an object for each kind); both are written.
Row rope_by_kind(const RotaryKinds& keys);
/// Rotary keys that this class does not read, although other classes do. Their values must be those that this class
/// uses.
Row unread_rope_keys(const char* base_key, const char* fraction_key);

/// The standard deviation of the initial weights.
Row init_std(const char* key = "initializer_range");

/// A flag for which the model has no setting: only false is accepted. `written`: the key is written as false, for a
/// class whose default is true.
Row always_false(const char* key, const char* why, bool written = false);
/// A number for which the model has no setting: only 0 is accepted.
Row always_zero(const char* key, const char* why);
/// Keys of the attention windows of a family.
struct WindowKeys {
  std::optional<int64_t> absent = std::nullopt;  ///< if the file has no sliding_window; null: no window
  bool types = true;                             ///< layer_types gives the layers that have a window; else all have one
  /// Without layer_types the last of each `full_every` layers is full, or the first; 0: none is.
  int64_t full_every = 0;
  bool first_is_full = false;
  const char* every_key = nullptr;  ///< key of full_every
};
Row windows(const WindowKeys& keys);
/// Sets attn.window_cycle from layer_types ("sliding_attention" or "full_attention" for each layer). Without that key
/// `slides(layer)` returns true for layers that have the window. Without a window all layers are full.
void read_layer_types(JsonReader& r, model::ModelConfig& m, std::optional<int64_t> window,
                      const std::function<bool(int64_t)>& slides);
Json layer_types_of(const std::vector<int64_t>& windows);
/// A Row::limit: all windows are of kind "sliding".
std::string sliding_alone(const model::ModelConfig& m);
/// Keys that change nothing in this family.
Row ignored(const Keys& keys);
/// An ignored key that is written with this value.
Row ignored(const char* key, int64_t (*value)(const HfConfig&));
/// A number that has no effect in this family. A value other than 0 gives a note.
Row without_effect(const char* key);

}  // namespace ashlar::hf
