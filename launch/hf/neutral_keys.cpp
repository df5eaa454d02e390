#include "launch/hf/neutral_keys.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/io/json.h"

namespace ashlar::hf {
namespace {

/// Keys that have no effect, whatever their value.
constexpr const char* kAlways[] = {
    // Identity, storage and bookkeeping.
    "architectures", "model_type", "dtype", "torch_dtype", "transformers_version", "_name_or_path", "name_or_path",
    "_commit_hash", "auto_map", "tokenizer_class", "tokenizer_name", "internal_version", "finetuning_task",
    "task_specific_params", "id2label", "label2id", "num_labels", "_num_labels", "problem_type", "prefix",
    "unsloth_version", "unsloth_fixed", "transformers.js_config", "_from_model_config", "is_llama_config",
    "model_max_length", "max_sequence_length", "n_ctx", "seq_length", "verbose", "init_device", "base_model_tp_plan",
    "base_model_pp_plan",
    // Options that change how results are computed and returned, not the results: kernels, fusions, caches, precision
    // of sums.
    "use_cache", "attn_implementation", "_attn_implementation", "_attn_implementation_autoset",
    "_attn_implementation_internal", "experts_implementation", "gradient_checkpointing", "chunk_size_feed_forward",
    "output_attentions", "output_hidden_states", "output_scores", "return_dict", "return_dict_in_generate",
    "tie_last_hidden_states", "torchscript", "use_bfloat16", "tf_legacy_loss", "use_flash_attn", "use_flash_attention",
    "use_flash_attention_2", "_flash_attn_2_enabled", "flash_attn", "flash_rotary", "fused_dense",
    "cache_implementation", "use_cache_quantization", "use_cache_kernel", "pretraining_tp", "model_parallel_size",
    "reorder_and_upcast_attn", "attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "softmax_in_fp32",
    "bf16", "fp16", "fp32", "onnx_safe", "masked_softmax_fusion", "bias_dropout_fusion", "skip_bias_add",
    "skip_bias_add_qkv", "slow_but_exact", "inference_runner", "runner_max_sequence_length", "pad_key_length",
    "max_batch_size", "pre_allocate_kv_cache", "validate_runner_input",
    // Initialization of weights, and settings of other tasks such as classification.
    "initializer_range", "init_config", "classifier_dropout", "summary_type", "summary_use_proj", "summary_activation",
    "summary_proj_to_labels", "summary_first_dropout", "predict_special_tokens",
    // Settings of encoder-decoder models; all families here are decoder-only.
    "is_decoder", "tie_encoder_decoder", "cross_attention_hidden_size",
    // Ids of tokens that no logit depends on.
    "decoder_start_token_id", "sep_token_id", "cls_token_id", "mask_token_id", "unk_token_id", "eod_token_id",
    "user_token_id", "assistant_token_id", "image_token_id",
    // Options of text generation, which old files have in config.json.
    "assistant_confidence_threshold", "assistant_lookbehind", "bad_words_ids", "begin_suppress_tokens",
    "diversity_penalty", "do_sample", "early_stopping", "encoder_no_repeat_ngram_size", "encoder_repetition_penalty",
    "epsilon_cutoff", "eta_cutoff", "exponential_decay_length_penalty", "forced_bos_token_id", "forced_eos_token_id",
    "length_penalty", "max_length", "max_new_tokens", "min_length", "min_p", "no_repeat_ngram_size",
    "num_assistant_tokens", "num_assistant_tokens_schedule", "num_beam_groups", "num_beams", "num_return_sequences",
    "remove_invalid_values", "repetition_penalty", "suppress_tokens", "target_lookbehind", "temperature", "top_k",
    "top_p", "typical_p"};

/// Keys that have no effect at one value, because that value describes what every class does anyway.
constexpr NeutralKey kAtOneValue[] = {
    {"n_special", "0"},           {"full_attn_mod", "1"},         {"interpolate_factor", "1"},
    {"use_mrope", "false"},       {"scale_attn_weights", "true"}, {"learned_embeddings", "true"},
    {"scale_embeddings", "false"}};

}  // namespace

std::vector<NeutralKey> neutral_keys() {
  std::vector<NeutralKey> keys(std::begin(kAtOneValue), std::end(kAtOneValue));
  for (const char* key : kAlways) keys.push_back({key, ""});
  return keys;
}

void accept_neutral_keys(JsonReader& reader) {
  reader.ignore(JsonReader::Keys(std::begin(kAlways), std::end(kAlways)));
  for (const NeutralKey& neutral : kAtOneValue) {
    const nlohmann::json* value = reader.peek(neutral.key);
    if (value != nullptr && *value == io::parse_json(neutral.only)) reader.ignore({neutral.key});
  }
}

std::string_view neutral_value(std::string_view key) {
  const auto* at = std::ranges::find_if(kAtOneValue, [&](const NeutralKey& neutral) { return neutral.key == key; });
  return at == std::end(kAtOneValue) ? "" : at->only;
}

}  // namespace ashlar::hf
