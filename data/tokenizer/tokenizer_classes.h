#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "data/tokenizer/forms.h"

namespace ashlar::data {

/// The normalization and splitting steps of a transformers class before its byte-level BPE (vocab.json with
/// merges.txt).
enum class Steps : uint8_t {
  kGpt2,     ///< GPT-2's pattern
  kQwen2,    ///< NFC, Qwen2's pattern
  kGptNeoX,  ///< NFC, GPT-2's pattern
  kCohere,   ///< NFC, each digit alone, GPT-2's pattern
  kRefused,
};

/// How a SentencePiece model of a class is read: as the SentencePiece library reads it, or not at all.
enum class ModelRule : uint8_t { kLibrary, kRefused };

/// The special tokens that a class adds around a text: none, cls before and sep after it, or eos after it.
enum class Around : uint8_t { kNothing, kClsSep, kEos };

/// One tokenizer class of transformers: how its files become a pipeline, or why they are not supported. A class is
/// supported if its ids are known exactly: all variants that can read the files (slow and fast of transformers 4.57,
/// and 5.24) give the same ids. A setting for which the ids differ is an input error that names the setting. One
/// exception: LlamaTokenizer with a SentencePiece model gives the ids of the slow variant, which are those of the
/// SentencePiece library. The ids of 5.24 may differ, since it reads every model as if `"legacy": false` were set. A
/// class has no effect on a tokenizer.json, which defines its own pipeline.
struct TokenizerClass {
  std::string_view name;                  ///< name of the class, without "Fast"
  Steps pairs = Steps::kRefused;          ///< steps for vocab.json with merges.txt
  ModelRule model = ModelRule::kRefused;  ///< rule for a SentencePiece model
  std::string_view why;                   ///< why the class is not supported
  std::string_view usual;                 ///< default special tokens of the class, such as "bos=<s> eos=</s>"
  Around around = Around::kNothing;
  /// A key that a config file must contain, since releases of transformers differ in its default: "add_prefix_space",
  /// or "mask_token" (with its lstrip).
  std::string_view must_say;
};

/// Returns the name of the tokenizer class of the files: `tokenizer_class` of tokenizer_config.json or config.json, or
/// the class for `model_type` in config.json. Empty if the files name no class.
std::string class_name_of(const TokenizerFiles& files);

/// Both functions return the tokenizer class of the files: class_for_pairs for vocab.json with merges.txt,
/// class_for_model for a SentencePiece model. They throw an input error that names the class if it is unknown or is not
/// supported for these files. If the files name no class, vocab.json with merges.txt is read as GPT-2's, and a
/// SentencePiece model as the SentencePiece library reads it.
TokenizerClass class_for_pairs(const TokenizerFiles& files);
TokenizerClass class_for_model(const TokenizerFiles& files);
/// True if tokenizer_config.json names no class and the class in config.json changes the meaning of the files. `pairs`
/// is true for vocab.json with merges.txt, false for a SentencePiece model.
bool config_json_decides(const TokenizerFiles& files, const std::string& config_json, bool pairs);

/// Returns the JSON object in a file; an empty object if the file is absent. Throws an input error for any other JSON
/// value.
nlohmann::json object_in(const TokenizerFiles& files, const std::string& name);

}  // namespace ashlar::data
