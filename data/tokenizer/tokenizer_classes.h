#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "data/tokenizer/forms.h"

namespace ashlar::data {

/// What a class of transformers does to a text before its byte-level BPE (vocab.json with merges.txt) sees it.
enum class Steps : uint8_t {
  kGpt2,     ///< GPT-2's pattern
  kQwen2,    ///< NFC, Qwen2's pattern
  kGptNeoX,  ///< NFC, GPT-2's pattern
  kCohere,   ///< NFC, each digit alone, GPT-2's pattern
  kRefused,
};

/// What it makes of a SentencePiece model.
enum class ModelRule : uint8_t { kLibrary, kRefused };

/// What a class puts around a text.
enum class Around : uint8_t { kNothing, kClsSep, kEos };

/// One tokenizer class of transformers: how its files become a pipeline, or why they do not. A class is served where
/// its ids are known exactly: releases 4.57 and 5.24, and in 4.57 its slow and its fast kind, agree on them, or only
/// one of them reads its files; settings in which they differ are refused by name. LlamaTokenizer of a SentencePiece
/// model is served as its slow kind, whose ids are those of the library; 5.24 reads every model as `"legacy": false`.
/// A tokenizer.json says its pipeline itself: the class decides nothing there.
struct TokenizerClass {
  std::string_view name;  ///< without "Fast"
  Steps pairs = Steps::kRefused;
  ModelRule model = ModelRule::kRefused;
  std::string_view why;    ///< of what is refused
  std::string_view usual;  ///< special tokens that it has when the files name no others: "bos=<s> eos=</s>"
  Around around = Around::kNothing;
  /// A config file must say it, since releases take it differently: "add_prefix_space", "mask_token" (with its lstrip).
  std::string_view must_say;
};

/// The class that the files name: `tokenizer_class` of tokenizer_config.json or config.json, or the one that belongs to
/// `model_type` of config.json. Empty when none is named.
std::string class_name_of(const TokenizerFiles& files);

/// Its row; input error, with the name, for a class that is not known or whose files of the form are refused. Files
/// that name no class: vocab.json with merges.txt is GPT-2's, a SentencePiece model its library's.
const TokenizerClass& class_for_pairs(const TokenizerFiles& files);
const TokenizerClass& class_for_model(const TokenizerFiles& files);
/// Whether config.json alone decides what the files mean, and not as they are read without it.
bool config_json_decides(const TokenizerFiles& files, const std::string& config_json, bool pairs);

/// The object of a file; an empty one when there is no such file. Input error for any other value.
nlohmann::json object_in(const TokenizerFiles& files, const std::string& name);

}  // namespace ashlar::data
