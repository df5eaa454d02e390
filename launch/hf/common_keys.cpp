#include "launch/hf/common_keys.h"

#include <nlohmann/json.hpp>

namespace ashlar::hf {
namespace {

std::optional<int64_t> token_id(JsonReader& reader, const char* key) {
  const nlohmann::json* value = reader.raw(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_integer()) {
    reader.refuse(key, "expected an integer or null");
    return std::nullopt;
  }
  return value->get<int64_t>();
}

std::vector<int64_t> token_ids(JsonReader& reader, const char* key) {
  const nlohmann::json* value = reader.raw(key);
  std::vector<int64_t> ids;
  if (value == nullptr) return ids;
  if (value->is_number_integer()) return {value->get<int64_t>()};
  bool good = value->is_array();
  for (size_t i = 0; good && i < value->size(); ++i) {
    good = (*value)[i].is_number_integer();
    if (good) ids.push_back((*value)[i].get<int64_t>());
  }
  if (!good) reader.refuse(key, "expected an integer, a list of integers or null");
  return ids;
}

}  // namespace

void read_common_keys(JsonReader& reader, HfConfig& out) {
  out.extras.bos_token_id = token_id(reader, "bos_token_id");
  out.extras.eos_token_ids = token_ids(reader, "eos_token_id");
  out.extras.pad_token_id = token_id(reader, "pad_token_id");

  // What would change the model in every class.
  for (const char* key : {"is_encoder_decoder", "add_cross_attention"}) {
    if (reader.boolean({key}, false)) reader.refuse(key, "cross-attention is not an axis; expected false");
  }
  if (!reader.boolean({"is_causal"}, true)) reader.refuse("is_causal", "attention is causal always; expected true");
  if (reader.raw("quantization_config") != nullptr)
    reader.refuse("quantization_config", "not supported; expected plain weights");
  if (out.family != Family::kGemma4 && reader.raw("per_layer_config") != nullptr)
    reader.refuse("per_layer_config", "not known of this class; expected equal layers");
  if (const nlohmann::json* pruned = reader.raw("pruned_heads"); pruned != nullptr && !pruned->empty()) {
    reader.refuse("pruned_heads", "every layer has all heads; expected none");
  }

  // Identity, storage and bookkeeping.
  reader.ignore({"architectures", "model_type", "dtype", "torch_dtype", "transformers_version", "_name_or_path",
                 "name_or_path", "_commit_hash", "auto_map", "tokenizer_class", "finetuning_task",
                 "task_specific_params", "id2label", "label2id", "num_labels", "problem_type", "prefix",
                 "unsloth_version", "unsloth_fixed"});
  // How the same numbers are computed or handed out.
  reader.ignore({"use_cache",
                 "attn_implementation",
                 "_attn_implementation",
                 "_attn_implementation_autoset",
                 "_attn_implementation_internal",
                 "experts_implementation",
                 "gradient_checkpointing",
                 "chunk_size_feed_forward",
                 "output_attentions",
                 "output_hidden_states",
                 "output_scores",
                 "return_dict",
                 "return_dict_in_generate",
                 "tie_last_hidden_states",
                 "torchscript",
                 "use_bfloat16",
                 "tf_legacy_loss",
                 "use_flash_attn",
                 "is_decoder",
                 "tie_encoder_decoder",
                 "cross_attention_hidden_size",
                 "decoder_start_token_id",
                 "sep_token_id",
                 "initializer_range"});
  // Options of text generation, which old files keep here.
  reader.ignore({"assistant_confidence_threshold",
                 "assistant_lookbehind",
                 "bad_words_ids",
                 "begin_suppress_tokens",
                 "diversity_penalty",
                 "do_sample",
                 "early_stopping",
                 "encoder_no_repeat_ngram_size",
                 "encoder_repetition_penalty",
                 "epsilon_cutoff",
                 "eta_cutoff",
                 "exponential_decay_length_penalty",
                 "forced_bos_token_id",
                 "forced_eos_token_id",
                 "length_penalty",
                 "max_length",
                 "max_new_tokens",
                 "min_length",
                 "no_repeat_ngram_size",
                 "num_assistant_tokens",
                 "num_assistant_tokens_schedule",
                 "num_beam_groups",
                 "num_beams",
                 "num_return_sequences",
                 "remove_invalid_values",
                 "repetition_penalty",
                 "suppress_tokens",
                 "target_lookbehind",
                 "temperature",
                 "top_k",
                 "top_p",
                 "typical_p"});
}

}  // namespace ashlar::hf
