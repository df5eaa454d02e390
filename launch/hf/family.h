#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/model/model_config.h"

namespace ashlar::hf {

using Json = nlohmann::ordered_json;
class JsonReader;  // json_reader.h
struct HfConfig;   // hf_config.h

/// One row of a family's table: some keys of config.json and the settings of a model that they stand for, in both
/// directions. Rows are read and written from top to bottom, so a row may use settings that rows above it have read.
/// The kinds of rows are in shared/rows.h.
struct Row {
  std::function<void(JsonReader&, HfConfig&)> read = nullptr;   ///< null: nothing to read
  std::function<void(Json&, const HfConfig&)> write = nullptr;  ///< null: the keys are never written
  /// Checks a requirement of the family that no key expresses. Returns why the family cannot have the model, or "".
  std::function<std::string(const model::ModelConfig&)> limit = nullptr;
};
using Rows = std::vector<Row>;

/// The names of a family's tensors, without ".weight" and ".bias". The defaults are Llama's: a family gives those that
/// differ. A name that no model of the family needs may stay as it is.
struct TensorNames {
  const char* prefix = "model.";  ///< of all names but the head's; absent in files without a head
  const char* tokens = "embed_tokens";
  const char* positions = "";  ///< learned table
  const char* norm_embed = "";
  const char* project_in = "";
  const char* project_out = "";
  const char* norm_final = "norm";
  const char* head = "lm_head";
  const char* head_alias = "";  ///< another name of the head: read, never written

  // Names in a block, after prefix + layers + number + ".":
  const char* layers = "layers.";
  const char* norm1 = "input_layernorm";
  const char* norm2 = "post_attention_layernorm";
  const char* norm1_of_two = "";  ///< norm1 in a parallel block with two norms, where the name differs
  const char* norm2_of_two = "";
  const char* norm1_out = "";  ///< the norm behind attention
  const char* norm2_out = "";  ///< the norm behind the FFN
  const char* q = "self_attn.q_proj";
  const char* k = "self_attn.k_proj";
  const char* v = "self_attn.v_proj";
  const char* qkv = "";  ///< one tensor instead of q, k and v
  const char* q_norm = "self_attn.q_norm";
  const char* k_norm = "self_attn.k_norm";
  const char* sinks = "self_attn.sinks";
  const char* attn_out = "self_attn.o_proj";
  const char* gate = "mlp.gate_proj";
  const char* up = "mlp.up_proj";
  const char* gate_up = "";  ///< one tensor instead of gate and up, the gate first
  const char* down = "mlp.down_proj";
  const char* out_scalar = "layer_scalar";

  /// The rows of `qkv`: so many groups, each with its queries, then its keys, then its values. 0: one for each KV head.
  int64_t qkv_groups = 1;
  bool qkv_values_first = false;  ///< the values of a group come before the keys
  bool transposed = false;        ///< matrices are stored [in, out] (Conv1D)

  /// Suffixes of the names of buffers (causal masks, rotary frequencies) in old files. Buffers are left out.
  std::vector<std::string_view> buffers = {"rotary_emb.inv_freq"};
  /// Prefix of the names of tensors outside the text model, which are left out. "": there are none.
  std::string_view other_part = "";
};

/// A family of Hugging Face models: all that import and export know about one class of transformers. A function in
/// families/NAME.cpp makes it, and families.cpp lists that function. README.md describes how to add a family.
struct Family {
  std::string_view class_name;                         ///< "GPT2LMHeadModel", as in config.json `architectures`
  std::string_view model_type;                         ///< "gpt2", as in config.json `model_type`
  std::vector<std::string_view> old_class_names = {};  ///< in older files: read, never written
  model::ModelConfig base = {};                        ///< settings of all its models that no key gives
  Rows rows = {};                                      ///< config.json
  bool tied_by_default = false;                        ///< used if config.json does not give it
  const char* init_std_key = "initializer_range";
  model::InitScheme init_scheme = model::InitScheme::kNormal;
  TensorNames tensors = {};
};

/// All families, in the order in which an export without --class tries them.
const std::vector<Family>& families();

/// Null when there is none.
const Family* family_from_class(std::string_view class_name);
const Family* family_from_model_type(std::string_view model_type);

}  // namespace ashlar::hf
