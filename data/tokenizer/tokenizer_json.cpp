#include "data/tokenizer/tokenizer_json.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace ashlar::data {

std::string tokenizer_json_of_parts(const OrderedJson& parts, int indent) {
  OrderedJson whole = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  for (const char* part : {"added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "model"})
    whole[part] = parts.value(part, OrderedJson());
  if (whole["added_tokens"].is_null()) whole["added_tokens"] = OrderedJson::array();
  return whole.dump(indent);
}

OrderedJson bpe_model_json(OrderedJson parts) {
  OrderedJson model = {{"type", "BPE"},
                       {"dropout", nullptr},
                       {"unk_token", nullptr},
                       {"continuing_subword_prefix", nullptr},
                       {"end_of_word_suffix", nullptr},
                       {"fuse_unk", false},
                       {"byte_fallback", false},
                       {"ignore_merges", false},
                       {"vocab", OrderedJson::object()},
                       {"merges", OrderedJson::array()}};
  for (auto& [field, value] : parts.items()) model[field] = std::move(value);
  return model;
}

void add_token(OrderedJson& vocab, const std::string& token, int64_t id) {
  // nlohmann's ordered object searches all keys on insertion; its underlying vector does not.
  vocab.get_ref<OrderedJson::object_t&>().push_back({token, id});
}

OrderedJson byte_level_json(bool add_prefix_space, bool use_regex) {
  return {
      {"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

OrderedJson added_token_json(const std::string& content, int64_t id, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

}  // namespace ashlar::data
