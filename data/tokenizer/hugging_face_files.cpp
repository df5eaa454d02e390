#include "data/tokenizer/hugging_face_files.h"

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/io/json.h"
#include "data/tokenizer/forms.h"
#include "data/tokenizer/tokenizer_json.h"

namespace ashlar::data {
namespace {

using Json = nlohmann::ordered_json;

/// Keys of tokenizer_config.json that every tokenizer class reads in the same way. Other keys configure one class; the
/// exported tokenizer.json already contains their effect.
constexpr const char* kKept[] = {"bos_token",
                                 "eos_token",
                                 "unk_token",
                                 "sep_token",
                                 "pad_token",
                                 "cls_token",
                                 "mask_token",
                                 "additional_special_tokens",
                                 "extra_special_tokens",
                                 "chat_template",
                                 "padding_side",
                                 "truncation_side",
                                 "model_input_names",
                                 "model_max_length"};
constexpr const char* kConfig = "tokenizer_config.json";

/// Returns the JSON object in a file, which was validated when the tokenizer was opened; empty if the file is absent.
Json object_of(const HuggingFaceFiles& files, const char* name) {
  const auto at = files.bytes.find(name);
  return at == files.bytes.end() ? Json::object() : io::parse_ordered_json(at->second);
}

/// Reduces tokens with flags to their spelling: the flags are in tokenizer.json.
Json spelled(const Json& value) {
  if (value.is_array()) {
    Json list = Json::array();
    for (const Json& one : value) list.push_back(spelled(one));
    return list;
  }
  return value.is_object() && value.contains("content") ? value["content"] : value;
}

}  // namespace

HuggingFaceFiles hugging_face_files(const Tokenizer& tokenizer, int64_t max_positions) {
  HuggingFaceFiles source;
  for (TokenizerFile& file : tokenizer.files()) source.bytes.emplace(std::move(file.name), std::move(file.bytes));
  HuggingFaceFiles out;
  try {
    out.bytes["tokenizer.json"] = tokenizer.tokenizer_json_text();
  } catch (const Error& e) {
    if (source.bytes.empty()) throw;
    source.note = str_cat("the tokenizer is exported as its original files: ", e.what());
    return source;
  }
  Json config;
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  const Json tokenizer_config = object_of(source, kConfig), names = object_of(source, "special_tokens_map.json");
  for (const char* key : kKept) {
    for (const Json* where : {&tokenizer_config, &names}) {
      if (const auto at = where->find(key); at != where->end() && !at->is_null() && !config.contains(key))
        config[key] = std::string_view(key).find("token") == std::string_view::npos ? *at : spelled(*at);
    }
  }
  const auto* const form = dynamic_cast<const FormTokenizer*>(&tokenizer);
  if (!config.contains("eos_token"))
    config["eos_token"] = form != nullptr ? form->token(tokenizer.eod_id()) : std::string(kEndOfText);
  if (form != nullptr && form->bos_id() && !config.contains("bos_token"))
    config["bos_token"] = form->token(*form->bos_id());
  if (max_positions > 0 && !config.contains("model_max_length")) config["model_max_length"] = max_positions;
  config["clean_up_tokenization_spaces"] = false;
  out.bytes[kConfig] = config.dump(2) + "\n";
  if (const auto at = source.bytes.find("chat_template.jinja"); at != source.bytes.end()) out.bytes.insert(*at);
  return out;
}

}  // namespace ashlar::data
