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

/// One row of a family's table: it converts some keys of config.json to settings of the model, and back. Rows are read
/// and written from top to bottom, so a row may use settings that rows above it have read. The kinds of rows are in
/// shared/rows.h.
struct Row {
  std::function<void(JsonReader&, HfConfig&)> read = nullptr;   ///< null: nothing to read
  std::function<void(Json&, const HfConfig&)> write = nullptr;  ///< null: the keys are never written
  /// Checks a requirement of the family that no key expresses. Returns why the family cannot represent the model, or
  /// "".
  std::function<std::string(const model::ModelConfig&)> limit = nullptr;
};
using Rows = std::vector<Row>;

/// A form in which files store the experts of a layer, by names after prefix + layers + number + "." (TensorNames).
struct ExpertForm {
  const char* experts = "mlp.experts.";  ///< prefix of the names below
  /// false: a tensor [rows, cols] for each matrix of each expert, named experts + number + "." + gate, up or down, with
  /// ".weight" and ".bias".
  /// true: one tensor for all experts, of whole names: experts + gate_up, gate and up of each expert, [experts, 2 rows,
  /// cols], and experts + down; their biases have these names and "_bias".
  bool fused = false;
  const char* gate = "gate_proj";
  const char* up = "up_proj";
  const char* down = "down_proj";
  const char* gate_up = "gate_up_proj";
  bool transposed = false;   ///< fused: each matrix is stored as [in, out]
  bool interleaved = false;  ///< fused: rows of gate and up alternate; else the gate's rows come first
};

/// The names of a family's tensors in its files, without ".weight" and ".bias". The defaults are Llama's names, and
/// OLMo 2's for norms on outputs; a family sets only the names that differ. A name that no model of the family uses may
/// keep its default.
struct TensorNames {
  const char* prefix = "model.";  ///< prefix of all names except the head's; absent in files without a head
  const char* tokens = "embed_tokens";
  const char* positions = "";  ///< table of learned positions
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
  const char* norm1_of_two = "";  ///< other name of norm1 in a parallel block with two norms; "": no other name
  const char* norm2_of_two = "";
  const char* norm1_out = "post_attention_layernorm";    ///< the norm on the output of attention
  const char* norm2_out = "post_feedforward_layernorm";  ///< the norm on the output of the FFN
  const char* q = "self_attn.q_proj";
  const char* k = "self_attn.k_proj";
  const char* v = "self_attn.v_proj";
  const char* qkv = "";  ///< fused tensor of q, k and v; "": three tensors
  const char* q_norm = "self_attn.q_norm";
  const char* k_norm = "self_attn.k_norm";
  const char* sinks = "self_attn.sinks";
  const char* attn_out = "self_attn.o_proj";
  const char* gate = "mlp.gate_proj";
  const char* up = "mlp.up_proj";
  const char* gate_up = "";  ///< fused tensor of gate and up, the gate's rows first; "": two tensors
  const char* down = "mlp.down_proj";
  const char* out_scalar = "layer_scalar";
  const char* router = "mlp.gate";
  const char* router_scale = "router.scale";  ///< the whole name, like the next one
  const char* expert_scale = "router.per_expert_scale";
  const char* ffn_norm_out = "post_feedforward_layernorm_1";  ///< with moe.beside_ffn
  const char* experts_norm_in = "pre_feedforward_layernorm_2";
  const char* experts_norm_out = "post_feedforward_layernorm_2";
  const char* router_alias = "";                                    ///< another name of the router: read, never written
  const char* selection_bias = "mlp.gate.e_score_correction_bias";  ///< the whole name
  bool selection_bias_row = false;                                  ///< the selection bias is stored as [1, experts]
  std::vector<ExpertForm> expert_forms = {};  ///< the forms that an import reads; an export writes the first
  const char* shared = "mlp.shared_expert.";  ///< prefix of gate_proj, up_proj and down_proj of the shared expert
  const char* shared_gate_up = "";            ///< fused tensor of gate and up after that prefix, the gate's rows first
  const char* shared_down = "down_proj";
  const char* shared_gate = "mlp.shared_expert_gate";

  /// Number of groups in the rows of `qkv`. A group has its queries, then its keys, then its values. 0: one group per
  /// KV head.
  int64_t qkv_groups = 1;
  bool qkv_values_first = false;  ///< the values of a group come before the keys
  bool transposed = false;        ///< matrices are stored as [in, out] (transformers' Conv1D)

  /// Name suffixes of the buffers (causal masks, rotary frequencies) in old files. An import leaves buffers out.
  std::vector<std::string_view> buffers = {"rotary_emb.inv_freq"};
  /// Name prefix of the tensors outside the text model, e.g. an image tokenizer. An import leaves them out. "": no such
  /// tensors.
  std::string_view other_part = "";
  /// Text in the names of blocks that predict further tokens and are not numbered after the last block. An import
  /// leaves them out. "": no such names.
  std::string_view further_blocks = "";
};

/// The class of a text model with further parts, such as an image encoder. Its config.json has the text model's keys in
/// text_config, and its files have a prefix before the names of the text model's tensors. An import takes the text
/// model alone; an export writes the text model's class.
struct WholeClass {
  std::string_view class_name = "";  ///< "": no such class
  std::string_view model_type = "";
  std::string_view text_prefix = "language_model.";
  std::vector<std::string_view> other_parts = {};  ///< name prefixes of the other parts' tensors
  std::vector<const char*> other_keys = {};        ///< keys of config.json for the other parts
};

/// A family of Hugging Face models: all that import and export know about one model class of transformers. A function
/// in families/NAME.cpp returns the family, and families.cpp lists the function. README.md describes how to add a
/// family.
struct Family {
  std::string_view class_name;                         ///< "GPT2LMHeadModel", as in config.json `architectures`
  std::string_view model_type;                         ///< "gpt2", as in config.json `model_type`
  std::vector<std::string_view> old_class_names = {};  ///< earlier names of the class: read, never written
  model::ModelConfig base = {};                        ///< settings that its models share and no key gives
  Rows rows = {};                                      ///< convert keys of config.json to settings, and back
  bool tied_by_default = false;                        ///< value for a file without tie_word_embeddings
  const char* init_std_key = "initializer_range";
  model::InitScheme init_scheme = model::InitScheme::kNormal;
  TensorNames tensors = {};
  WholeClass whole = {};
};

/// All families, in the order in which an export without --class tries them.
const std::vector<Family>& families();

/// Both return null for an unknown name.
const Family* family_from_class(std::string_view class_name);
const Family* family_from_model_type(std::string_view model_type);

}  // namespace ashlar::hf
