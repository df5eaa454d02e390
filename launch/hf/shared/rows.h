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

// The kinds of rows. A field of the model is given by the function that finds it: FIELD(norm.variant.eps). A row of
// several fields writes the first number, or whether any of the flags is set. A model in which they differ reads back
// as another one, so an export to the family is refused.

using Keys = JsonReader::Keys;  ///< several are names of one value; the first is the one that is written
using SizeField = int64_t& (*)(model::ModelConfig&);
using NumberField = double& (*)(model::ModelConfig&);
using FlagField = bool& (*)(model::ModelConfig&);
using SizeRule = int64_t (*)(const model::ModelConfig&);
#define FIELD(path) \
  [](::ashlar::model::ModelConfig & m) -> auto& { return m.path; }

/// Absent: `fallback`, the default of the class, which becomes a note.
Row size(const Keys& keys, const std::vector<SizeField>& fields, int64_t fallback);
/// Absent or null: what the rule says.
Row size_or(const Keys& keys, SizeField field, SizeRule rule);
/// The longest context: rows of the learned table where the class has one, else of the extras.
Row positions(const Keys& keys, int64_t fallback);
Row number(const char* key, const std::vector<NumberField>& fields, double fallback);
Row flag(const char* key, const std::vector<FlagField>& fields, bool fallback);
/// A flag that stands for something else than flags: `set` is called with its value, `get` says what is written.
Row flag(const char* key, bool fallback, void (*set)(model::ModelConfig&, bool),
         bool (*get)(const model::ModelConfig&));
/// No key: what the rows above imply.
Row derived(void (*set)(model::ModelConfig&));
/// No key: what the family demands of a model.
Row demand(std::function<std::string(const model::ModelConfig&)> limit);
Row activation(const char* key, const char* fallback);
/// true: a parallel block with so many norms.
Row parallel_block(const char* key, int norms, bool fallback);
/// num_key_value_heads: null means one a head; absent the same, or the default of the class.
Row kv_heads(std::optional<int64_t> absent = std::nullopt);

enum class HeadDim : uint8_t {
  kDerived,          ///< width / heads always; a head_dim that says otherwise is refused
  kWritten,          ///< of its own
  kWrittenIfNeeded,  ///< of its own, written where it is not width / heads
};
/// Absent: width / heads, or the default of the class.
Row head_dim(HeadDim kind, std::optional<int64_t> absent = std::nullopt);

struct Rotary {
  const char* base_key = "rope_theta";
  const char* fraction_key = "partial_rotary_factor";
  double base = 10000.0;     ///< when the file says none
  double fraction = 1.0;     ///< when the file says none
  bool whole_heads = false;  ///< the class rotates them whatever the file says
  bool temperature = false;  ///< that of the queries stands beside them, and YaRN is the class default
};
/// The rotary keys of transformers 4 (top level, rope_scaling) and 5 (rope_parameters); both are written.
Row rope(const Rotary& keys);
/// Of a class whose layers with and without a window rotate in their own way, always whole heads.
struct RotaryKinds {
  double base = 0, local_base = 0;  ///< when the file says none
  /// The base of layers with a window in files of transformers 4; null: no word for it.
  const char* local_key = nullptr;
  /// The class knows proportional scaling on layers with full attention: of this fraction when the file has no
  /// rope_parameters. Read behind the heads of both kinds.
  std::optional<double> proportional = std::nullopt;
};
/// The rotary keys of transformers 4 (top level, rope_scaling for layers with full attention) and 5 (rope_parameters,
/// an object for each kind); both are written.
Row rope_by_kind(const RotaryKinds& keys);
/// Rotary names that this class does not read, though its neighbours do: they must say what it does.
Row unread_rope_keys(const char* base_key, const char* fraction_key);

/// initializer_range, or what else the class calls it.
Row init_std(const char* key = "initializer_range");

/// A flag that no axis covers: only false is read. `written` as false where the class default may be another.
Row always_false(const char* key, const char* why, bool written = false);
/// A number that no axis covers: only 0 is read.
Row always_zero(const char* key, const char* why);
/// The windows of a class.
struct WindowKeys {
  std::optional<int64_t> absent = std::nullopt;  ///< sliding_window where the file has no such key; null is none
  bool types = true;                             ///< layer_types says which layers slide; else all do
  /// Without layer_types the last of so many layers is full, or the first of them; 0: none is.
  int64_t full_every = 0;
  bool first_is_full = false;
  const char* every_key = nullptr;  ///< says full_every
};
Row windows(const WindowKeys& keys);
/// attn.window_cycle from layer_types ("sliding_attention" or "full_attention", one a layer), or where there is none
/// from `slides`, which layers do. Without a window all layers are full.
void read_layer_types(JsonReader& r, model::ModelConfig& m, std::optional<int64_t> window,
                      const std::function<bool(int64_t)>& slides);
Json layer_types_of(const std::vector<int64_t>& windows);
/// A limit: windows that slide.
std::string sliding_alone(const model::ModelConfig& m);
/// Keys that change nothing in this class.
Row ignored(const Keys& keys);
/// An ignored key that is written with this value.
Row ignored(const char* key, int64_t (*value)(const HfConfig&));
/// A number without effect in this class: a note when it is not 0.
Row without_effect(const char* key);

}  // namespace ashlar::hf
