#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "data/tokenizer/forms.h"

namespace ashlar::data {

/// The steps of a transformers class before its byte-level BPE (vocab.json with merges.txt).
enum class Steps : uint8_t {
  kGpt2,     ///< GPT-2's pattern
  kQwen2,    ///< NFC, Qwen2's pattern
  kGptNeoX,  ///< NFC, GPT-2's pattern
  kCohere,   ///< NFC, each digit alone, GPT-2's pattern
  kRefused,
};

/// Handling of a SentencePiece model by a class.
enum class ModelRule : uint8_t { kLibrary, kRefused };

/// The template of a class.
enum class Around : uint8_t { kNothing, kClsSep, kEos };

/// One tokenizer class of transformers: how its files become a pipeline, or why they are not supported. A class is
/// supported if its ids are known exactly: releases 4.57 and 5.24, and in 4.57 its slow and fast kind, agree on them,
/// or only one of them reads its files. Settings in which they differ are refused by name. LlamaTokenizer of a
/// SentencePiece model is supported as its slow kind, whose ids are those of the library; 5.24 reads every model as
/// `"legacy": false`. A tokenizer.json defines its own pipeline: the class has no effect there.
struct TokenizerClass {
  std::string_view name;  ///< name of the class, without "Fast"
  Steps pairs = Steps::kRefused;
  ModelRule model = ModelRule::kRefused;
  std::string_view why;    ///< reason of a refusal
  std::string_view usual;  ///< default special tokens: "bos=<s> eos=</s>"
  Around around = Around::kNothing;
  /// A config file must contain it, since releases differ in its default: "add_prefix_space", "mask_token" (with its
  /// lstrip).
  std::string_view must_say;
};

/// The class of the files: `tokenizer_class` of tokenizer_config.json or config.json, or the class of `model_type` in
/// config.json. Empty if none is named.
std::string class_name_of(const TokenizerFiles& files);

/// Its row; input error, with the name, for an unknown class or one whose files of the form are refused. Files without
/// a class: vocab.json with merges.txt is GPT-2's, a SentencePiece model its library's.
TokenizerClass class_for_pairs(const TokenizerFiles& files);
TokenizerClass class_for_model(const TokenizerFiles& files);
/// True if config.json alone changes the meaning of the files.
bool config_json_decides(const TokenizerFiles& files, const std::string& config_json, bool pairs);

/// The object in a file; empty if the file is absent. Input error for any other value.
nlohmann::json object_in(const TokenizerFiles& files, const std::string& name);

}  // namespace ashlar::data
