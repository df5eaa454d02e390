#include "launch/gguf/vocabulary.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/base/strings.h"
#include "core/io/json.h"
#include "launch/gguf/sentencepiece_vocabulary.h"

namespace ashlar::gguf {

Error not_expressible(std::string_view problem) {
  return input_error("gguf", "the tokenizer ", problem,
                     ", which llama.cpp would not reproduce; export with --no-tokenizer, or to Hugging Face's format");
}

Error too_many_tokens(int64_t id, int64_t vocab_size) {
  return input_error("gguf", "the tokenizer has id ", id, ", but the model has ", vocab_size,
                     " rows; export with --no-tokenizer");
}

namespace {

using nlohmann::json;

/// Kinds of tokens, with the numbers of the format.
enum : int32_t { kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5 };

/// A pre-tokenizer that llama.cpp knows by name, and the regular expression by which it splits.
struct KnownPattern {
  const char* name;
  const char* pattern;
  bool ignores_merges;  ///< words in the vocabulary become tokens without merges
};
constexpr KnownPattern kPatterns[] = {
    {"llama-bpe",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
     "\\s+(?!\\S)|\\s+",
     true},
    {"qwen2",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
     "\\s+(?!\\S)|\\s+",
     false}};

bool is_byte_level(const json& step, bool use_regex) {
  return step.value("type", "") == "ByteLevel" && !step.value("add_prefix_space", true) &&
         step.value("use_regex", true) == use_regex;
}

/// Returns llama.cpp's name of the pre-tokenizer.
std::string pre_tokenizer_name(const json& tokenizer) {
  const json& pre = tokenizer.at("pre_tokenizer");
  const json& model = tokenizer.at("model");
  const bool ignores_merges = model.value("ignore_merges", false);
  const json normalizer = tokenizer.value("normalizer", json());
  const bool composes = normalizer.is_object() && normalizer.value("type", "") == "NFC";
  // Without merges every byte is a token, however words are split.
  const bool bytes = model.at("merges").empty() && pre.is_object() && pre.value("type", "") == "ByteLevel" &&
                     !pre.value("add_prefix_space", true);
  if ((bytes || (pre.is_object() && is_byte_level(pre, true))) && !ignores_merges && normalizer.is_null())
    return "gpt-2";
  const json steps = pre.is_object() ? pre.value("pretokenizers", json::array()) : json::array();
  if (steps.size() == 2 && is_byte_level(steps[1], false) && steps[0].value("type", "") == "Split" &&
      steps[0].value("behavior", "") == "Isolated" && !steps[0].value("invert", false)) {
    const std::string pattern = steps[0].at("pattern").value("Regex", "");
    for (const KnownPattern& known : kPatterns) {
      // Qwen's own files compose characters (NFC), which llama.cpp leaves out for them too.
      const bool normal = normalizer.is_null() || (composes && std::string_view(known.name) == "qwen2");
      if (pattern == known.pattern && ignores_merges == known.ignores_merges && normal) return known.name;
    }
  }
  throw not_expressible("has a pre-tokenizer or normalizer other than those of GPT-2, Llama 3 and Qwen 2");
}

std::string text_of_merge(const json& merge) {
  if (merge.is_string()) return merge.get<std::string>();
  return merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>();
}

struct Tokens {
  std::vector<std::string> texts;
  std::vector<int32_t> kinds;
};

Tokens tokens_of(const json& tokenizer, int64_t vocab_size) {
  Tokens tokens;
  tokens.texts.resize(static_cast<size_t>(vocab_size));
  tokens.kinds.assign(tokens.texts.size(), kUnused);
  const auto put = [&](int64_t id, const std::string& text, int32_t kind) {
    if (id < 0 || id >= vocab_size) throw too_many_tokens(id, vocab_size);
    tokens.texts[static_cast<size_t>(id)] = text;
    tokens.kinds[static_cast<size_t>(id)] = kind;
  };
  for (const auto& [text, id] : tokenizer.at("model").at("vocab").items()) put(id.get<int64_t>(), text, kNormal);
  for (const json& added : tokenizer.value("added_tokens", json::array()))
    put(added.at("id").get<int64_t>(), added.at("content").get<std::string>(),
        added.value("special", false) ? kControl : kUserDefined);
  for (size_t i = 0; i < tokens.texts.size(); ++i)
    if (tokens.kinds[i] == kUnused) tokens.texts[i] = str_cat("[PAD", i, "]");
  return tokens;
}

std::vector<Entry> byte_level_vocabulary(const data::Tokenizer& tokenizer, int64_t vocab_size) {
  json read;
  io::reading_json([](const std::string& sentence) { return not_expressible("cannot be read: " + sentence); },
                   [&] { read = io::parse_json(tokenizer.tokenizer_json_text()); });
  const json& model = read.at("model");
  if (model.value("type", "") != "BPE" || model.value("byte_fallback", false) || !read.at("pre_tokenizer").is_object())
    throw not_expressible(
        str_cat(printable(tokenizer.identity()), " is neither a byte-level BPE nor a SentencePiece .model"));
  std::vector<std::string> merges;
  const std::string pre = pre_tokenizer_name(read);
  for (const json& merge : model.at("merges")) merges.push_back(text_of_merge(merge));
  Tokens tokens = tokens_of(read, vocab_size);
  return {{"tokenizer.ggml.model", std::string("gpt2")},
          {"tokenizer.ggml.pre", pre},
          {"tokenizer.ggml.tokens", std::move(tokens.texts)},
          {"tokenizer.ggml.token_type", std::move(tokens.kinds)},
          {"tokenizer.ggml.merges", std::move(merges)}};
}

/// Sets what the template adds before and after a text.
void add_template(const data::Tokenizer& tokenizer, std::optional<int64_t> begin, std::vector<Entry>& entries) {
  std::vector<int32_t> plain, whole;
  tokenizer.encode("a", plain);
  tokenizer.encode_with_template("a", whole);
  const bool begins = whole.size() == plain.size() + 1 && begin && whole.front() == *begin;
  if (!begins && whole != plain) throw not_expressible("has a template other than one begin token before a text");
  entries.push_back({"tokenizer.ggml.add_bos_token", begins});
  entries.push_back({"tokenizer.ggml.add_eos_token", false});
}

}  // namespace

std::vector<Entry> vocabulary_of(const data::Tokenizer& tokenizer, const hf::HfExtras& extras, int64_t vocab_size) {
  std::optional<std::vector<Entry>> pieces = sentencepiece_vocabulary(tokenizer, vocab_size);
  std::vector<Entry> entries = pieces ? std::move(*pieces) : byte_level_vocabulary(tokenizer, vocab_size);
  const int64_t end = extras.eos_token_ids.empty() ? tokenizer.eod_id() : extras.eos_token_ids.front();
  entries.push_back({"tokenizer.ggml.eos_token_id", static_cast<uint32_t>(end)});
  // llama.cpp assumes ids of its own where there is no begin token.
  entries.push_back({"tokenizer.ggml.bos_token_id", static_cast<uint32_t>(extras.bos_token_id.value_or(end))});
  if (extras.pad_token_id)
    entries.push_back({"tokenizer.ggml.padding_token_id", static_cast<uint32_t>(*extras.pad_token_id)});
  add_template(tokenizer, extras.bos_token_id, entries);
  return entries;
}

}  // namespace ashlar::gguf
