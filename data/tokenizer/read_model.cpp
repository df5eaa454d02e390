#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "data/tokenizer/byte_characters.h"
#include "data/tokenizer/model.h"

namespace ashlar::data {
namespace {

using nlohmann::json;

int32_t parse_id(const json& value, const Fields& fields, std::string_view key, const std::string& token,
                 size_t tokens) {
  if (!value.is_number_integer() || value.get<double>() < 0 || value.get<double>() > static_cast<double>(kMaxTokenId))
    throw input_error("tokenizer", fields.path_of(key), ": the id of ", printable(token), " is not a number from 0 to ",
                      kMaxTokenId, "; correct the file");
  const auto id = value.get<int32_t>();
  if (id_too_far(id, tokens))
    throw input_error("tokenizer", fields.path_of(key), ": the id of ", printable(token), " is ", id,
                      ", far beyond the ", tokens, " tokens; correct the id");
  return id;
}

/// Returns the two tokens of a merge, which is written as "a b" or ["a", "b"].
std::pair<std::string, std::string> merge_pair(const json& value, size_t i, const Fields& fields) {
  if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string())
    return {value[0].get<std::string>(), value[1].get<std::string>()};
  if (value.is_string()) {
    const std::string text = value.get<std::string>();
    const size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos)
      return {text.substr(0, space), text.substr(space + 1)};
  }
  throw input_error("tokenizer", fields.path_of("merges"), "[", i,
                    "]: expected two tokens, as \"a b\" or [\"a\", \"b\"]; correct the file");
}

std::unique_ptr<Model> read_bpe(Fields& fields, Vocabulary& vocabulary, bool bytes) {
  BpeModel::Options options{.byte_fallback = fields.boolean("byte_fallback", false),
                            .fuse_unk = fields.boolean("fuse_unk", false),
                            .ignore_merges = fields.boolean("ignore_merges", false),
                            .unk_token = fields.text("unk_token", "")};
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) fields.must_be_off(key);
  const json* const tokens = fields.find("vocab");
  if (tokens == nullptr || !tokens->is_object() || tokens->empty())
    throw fields.error("vocab", "expected an object of tokens and their ids; correct the file");
  for (const auto& [token, id] : tokens->items()) {
    if (!vocabulary.add(token, parse_id(id, fields, "vocab", token, tokens->size())))
      throw input_error("tokenizer", fields.path_of("vocab"), ": two tokens have the id ", id.get<int32_t>(),
                        "; correct the file");
  }
  const auto id_of = [&](const std::string& token, size_t i) {
    const auto id = vocabulary.find(token);
    if (!id)
      throw input_error("tokenizer", fields.path_of("merges"), "[", i, "] names ", printable(token),
                        ", which is not a token of vocab; correct the file");
    return *id;
  };
  std::vector<BpeModel::Merge> merges;
  const json& list = fields.array("merges");
  for (size_t i = 0; i < list.size(); ++i) {
    const auto [left, right] = merge_pair(list[i], i, fields);
    merges.push_back({.left = id_of(left, i),
                      .right = id_of(right, i),
                      .rank = static_cast<uint32_t>(i),
                      .joined = id_of(left + right, i)});
  }
  if (!options.unk_token.empty() && !vocabulary.find(options.unk_token))
    throw fields.error("unk_token", "expected a token of vocab; correct the file");
  auto model = std::make_unique<BpeModel>(vocabulary, options, merges);
  if (bytes && !options.byte_fallback) {
    const ByteCharacters characters;
    std::array<int32_t, 256> ids{};
    for (size_t byte = 0; byte < 256; ++byte) {
      const char c = static_cast<char>(byte);
      ids[byte] = vocabulary.find(characters.written(std::string_view(&c, 1))).value_or(-1);
    }
    absl::flat_hash_map<std::string, int32_t> by_bytes;
    std::string spelled;
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
      if (vocabulary.used(id) && characters.read(vocabulary.token(id), spelled)) by_bytes.emplace(spelled, id);
    }
    model->set_byte_vocabulary(ids, std::move(by_bytes));
  }
  return model;
}

std::unique_ptr<Model> read_unigram(Fields& fields, Vocabulary& vocabulary) {
  const json& list = fields.array("vocab");
  std::vector<double> scores;
  for (size_t i = 0; i < list.size(); ++i) {
    const json& entry = list[i];
    const bool good = entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_number();
    if (!good)
      throw input_error("tokenizer", fields.path_of("vocab"), "[", i,
                        "]: expected [\"token\", score]; correct the file");
    if (!vocabulary.add(entry[0].get<std::string>(), static_cast<int32_t>(i)))
      throw input_error("tokenizer", fields.path_of("vocab"), "[", i, "]: ", printable(entry[0].get<std::string>()),
                        " appears twice; correct the file");
    if (entry[0].get_ref<const std::string&>().size() > kMaxTokenBytes)
      throw input_error("tokenizer", fields.path_of("vocab"), "[", i, "]: a token of ",
                        entry[0].get_ref<const std::string&>().size(), " bytes, at most ", kMaxTokenBytes,
                        " are allowed; remove the token");
    scores.push_back(entry[1].get<double>());
  }
  if (scores.empty()) throw fields.error("vocab", "expected a list of tokens and their scores; correct the file");
  const int64_t unk = fields.integer("unk_id", -1, 0, static_cast<int64_t>(scores.size()) - 1);
  if (unk < 0) throw fields.error("unk_id", "expected the id of the unknown token; correct the file");
  return std::make_unique<UnigramModel>(
      vocabulary, scores,
      UnigramModel::Options{.unk = static_cast<int32_t>(unk), .byte_fallback = fields.boolean("byte_fallback", false)});
}

}  // namespace

std::unique_ptr<Model> read_model(Fields fields, Vocabulary& vocabulary, bool bytes) {
  // Older files omit the type. The vocab of Unigram is a list of tokens and scores, the vocab of BPE is an object.
  const json* const vocab = fields.find("vocab");
  const std::string type = fields.text("type", vocab != nullptr && vocab->is_array() ? "Unigram" : "BPE");
  std::unique_ptr<Model> model;
  if (type == "BPE") {
    model = read_bpe(fields, vocabulary, bytes);
  } else if (type == "Unigram") {
    model = read_unigram(fields, vocabulary);
  } else {
    throw fields.unsupported("type", "BPE or Unigram");
  }
  fields.finish();
  return model;
}

}  // namespace ashlar::data
