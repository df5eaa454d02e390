#include "data/tokenizer/forms.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/io/json.h"
#include "core/io/posix_file.h"
#include "data/tokenizer/fields.h"
#include "data/tokenizer/files_json.h"
#include "data/tokenizer/pipeline_tokenizer.h"
#include "data/tokenizer/sentencepiece_tokenizer.h"
#include "data/tokenizer/tiktoken.h"
#include "data/tokenizer/tokenizer_classes.h"
#include "data/tokenizer/vocab_merges.h"

namespace ashlar::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr Form kForms[] = {
    {"tokenizer.json", [](const TokenizerFiles& files) { return files.find("tokenizer.json") != nullptr; },
     [](std::string_view file) { return file == "tokenizer.json"; },
     [](const TokenizerFiles& files) -> std::unique_ptr<FormTokenizer> {
       return std::make_unique<PipelineTokenizer>(*files.find("tokenizer.json"), "tokenizer.json", &files);
     }},
    {"vocab.json with merges.txt",
     [](const TokenizerFiles& files) {
       return files.find("vocab.json") != nullptr && files.find("merges.txt") != nullptr;
     },
     [](std::string_view file) { return file == "vocab.json" || file == "merges.txt"; },
     [](const TokenizerFiles& files) -> std::unique_ptr<FormTokenizer> {
       const std::string text = tokenizer_json_of_vocab_and_merges(files);
       auto made = std::make_unique<PipelineTokenizer>(text, "vocab.json, merges.txt");
       if (pairs_differ_by_rules(files, text)) made->rules_matter();
       return made;
     }},
    {"SentencePiece .model", holds_sentencepiece, [](std::string_view file) { return file.ends_with(".model"); },
     open_sentencepiece},
    {"tiktoken", is_tiktoken,
     [](std::string_view file) { return file.ends_with(".tiktoken") || file.ends_with(".model"); }, open_tiktoken},
};

/// Files that may accompany a tokenizer of any form (file format): names of special tokens, chat template.
constexpr std::string_view kCompanions[] = {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                                            "chat_template.jinja"};
constexpr std::string_view kFormFiles[] = {"tokenizer.json", "vocab.json", "merges.txt"};

constexpr int64_t kMaxFileBytes = int64_t{512} << 20;

bool named(std::span<const std::string_view> names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Returns the value of `key`, "eos_token" or "bos_token", in the files; empty if absent.
std::string named_token(const TokenizerFiles& files, const char* key) {
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    if (files.find(name) == nullptr) continue;
    const json all = object_in(files, name);
    const auto at = all.find(key);
    if (at == all.end()) continue;
    if (at->is_string()) return at->get<std::string>();
    if (at->is_object() && at->contains("content") && (*at)["content"].is_string()) return (*at)["content"];
  }
  return "";
}

/// Returns the error for files that match no form (file format) of `kForms`.
Error no_form(const TokenizerFiles& files) {
  std::string models;
  int count = 0;
  for (const auto& [name, bytes] : files.bytes) {
    if (!name.ends_with(".model") && !name.ends_with(".tiktoken")) continue;
    if (++count <= 8) models += str_cat(count == 1 ? "" : ", ", printable(name));
  }
  if (count < 2)
    return input_error("tokenizer", files.shown,
                       " has no tokenizer; expected one of these forms: ", comma_list(kForms, &Form::name));
  return input_error("tokenizer", files.shown, ": expected one tokenizer, got ", count, " models: ", models,
                     count > 8 ? ", ..." : "", "; give the path of one of them, or remove the others");
}

}  // namespace

const std::string* TokenizerFiles::find_ending(std::string_view ending, std::string* name) const {
  const std::string* found = nullptr;
  for (const auto& [own, content] : bytes) {
    if (!own.ends_with(ending)) continue;
    if (found != nullptr) return nullptr;
    found = &content;
    if (name != nullptr) *name = own;
  }
  return found;
}

void FormTokenizer::keep(TokenizerFiles files) {
  files_ = std::move(files);
  const auto find = [&](const char* key, std::initializer_list<const char*> customary) -> std::optional<int32_t> {
    const std::string name = named_token(files_, key);
    if (!name.empty()) {
      const auto id = id_of(name);
      if (!id)
        throw input_error("tokenizer", files_.shown, ": ", key, " is ", printable(name),
                          ", which is not a token of this tokenizer; correct the file that names it");
      return id;
    }
    const std::vector<std::string> special = special_tokens();
    for (const char* usual : customary) {
      if (std::find(special.begin(), special.end(), usual) != special.end()) return id_of(usual);
    }
    return std::nullopt;
  };
  eos_id_ = find("eos_token", {"<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>",
                               "<\uFF5Cend\u2581of\u2581sentence\uFF5C>", "<|im_end|>"});
  bos_id_ = find("bos_token", {"<s>", "<|begin_of_text|>", "<bos>", "<\uFF5Cbegin\u2581of\u2581sentence\uFF5C>"});
  for (const std::optional<int32_t>& id : {eos_id_, bos_id_})
    if (id) treat_as_special(*id);
  split_points_ = joint("the quick brown fox jumps", 9) ? SplitPoints::kWords : SplitPoints::kNowhere;
}

int32_t FormTokenizer::eod_id() const {
  if (!eos_id_) {
    throw input_error("tokenizer", files_.shown, " has no eos token to end documents; put a tokenizer_config.json",
                      " with \"eos_token\" into its folder");
  }
  return *eos_id_;
}

std::string FormTokenizer::to_json() const {
  json value;
  value["kind"] = kFilesKind;
  value["form"] = form();
  value["vocab_size"] = vocab_size();
  value["eod_id"] = eod_id();
  if (rules_ != 1) value["rules"] = rules_;
  json& files = value["files"] = json::object();
  for (const auto& [name, bytes] : files_.bytes) {
    // JSON contains only UTF-8 text. Other bytes are stored as base64.
    if (valid_utf8_end(bytes) == bytes.size()) {
      files[name] = bytes;
    } else {
      files[name] = {{"base64", absl::Base64Escape(bytes)}};
    }
  }
  return value.dump();
}

std::vector<TokenizerFile> FormTokenizer::files() const {
  std::vector<TokenizerFile> files;
  for (const auto& [name, bytes] : files_.bytes) files.push_back({name, bytes});
  return files;
}

bool makes_form(const std::string& name) {
  return named(kFormFiles, name) || name.ends_with(".tiktoken") || name.ends_with(".model");
}

bool holds_tokenizer(const std::string& folder) {
  TokenizerFiles names{.shown = folder, .bytes = {}};
  std::error_code ignored;
  bool model = false;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!makes_form(name)) continue;
    names.bytes[name];
    model = model || name.ends_with(".model") || name.ends_with(".tiktoken");
  }
  // vocab.json or merges.txt alone is not a tokenizer.
  return model || kForms[0].there(names) || kForms[1].there(names);
}

std::unique_ptr<FormTokenizer> tokenizer_from_files(TokenizerFiles files) {
  for (const Form& form : kForms) {
    if (!form.there(files)) continue;
    std::unique_ptr<FormTokenizer> tokenizer;
    const std::string shown = files.shown;
    io::reading_json([&](const std::string& sentence) { return input_error("tokenizer", shown, ": ", sentence); },
                     [&] {
                       tokenizer = form.open(files);
                       tokenizer->keep(std::move(files));
                     });
    return tokenizer;
  }
  throw no_form(files);
}

std::unique_ptr<FormTokenizer> open_tokenizer(const std::string& path) {
  TokenizerFiles files{.shown = path, .bytes = {}};
  std::error_code ignored;
  const bool folder = fs::is_directory(path, ignored);
  if (!folder && !fs::exists(path, ignored))
    throw input_error("tokenizer", path, " does not exist; give a tokenizer's file or folder");
  const fs::path where = folder ? fs::path(path) : fs::path(path).parent_path();
  const std::string only = folder ? "" : fs::path(path).filename().string();
  const auto add_file = [&](const fs::path& file) {
    files.bytes[file.filename().string()] = io::read_text_file(file, kMaxFileBytes);
  };
  const bool pair = only == "vocab.json" || only == "merges.txt";
  const bool ranks = only.ends_with(".tiktoken") || only == "tokenizer.model";
  bool ranks_there = ranks;
  std::vector<fs::path> beside;
  for (const auto& entry : fs::directory_iterator(where.empty() ? fs::path(".") : where)) {
    const std::string name = entry.path().filename().string();
    if (!fs::is_regular_file(entry.path(), ignored)) continue;
    const bool of_pair = pair && (name == "vocab.json" || name == "merges.txt");
    if (named(kCompanions, name) || of_pair || (folder && makes_form(name))) add_file(entry.path());
    ranks_there = ranks_there || (folder && name.ends_with(".tiktoken"));
    beside.push_back(entry.path());
  }
  if (!folder && !pair) {
    // A .json file of any other name is read as a tokenizer.json if it has the key "model".
    const std::string bytes = io::read_text_file(path, kMaxFileBytes);
    const bool object =
        only.ends_with(".json") && only != "tokenizer.json" && bytes.find("\"model\"") != std::string::npos;
    files.bytes[object ? "tokenizer.json" : only] = bytes;
  }
  for (const fs::path& file : beside) {  // files that define how text is split
    const bool says =
        file.filename() == "about.json" || (ranks && file.filename() == fs::path(only).stem().string() + ".json");
    if (ranks_there && says && files.find("tokenizer.json") == nullptr) add_file(file);
  }
  // A folder may have one tokenizer in several forms. Only the files of the form that is read are stored and hashed.
  const auto* const form =
      std::find_if(std::begin(kForms), std::end(kForms), [&](const Form& f) { return f.there(files); });
  if (form != std::end(kForms))
    std::erase_if(files.bytes, [&](const auto& file) { return makes_form(file.first) && !form->reads(file.first); });
  const fs::path config = where / "config.json";
  const bool pairs = files.find("merges.txt") != nullptr;
  if ((pairs || holds_sentencepiece(files)) && fs::is_regular_file(config, ignored)) {
    std::string text = io::read_text_file(config, kMaxFileBytes);
    if (config_json_decides(files, text, pairs)) files.bytes["config.json"] = std::move(text);
  }
  return tokenizer_from_files(std::move(files));
}

std::unique_ptr<Tokenizer> tokenizer_from_files_json(const json& value) {
  Fields fields(value, "tokenizer");
  fields.ignore({"kind", "form", "vocab_size", "eod_id"});
  Fields list = fields.object("files");
  const auto rules = static_cast<int>(fields.integer("rules", 1, 1, 2));
  TokenizerFiles files{.shown = "the tokenizer of the dataset or checkpoint", .bytes = {}, .rules = rules};
  for (const auto& [name, content] : value["files"].items()) {
    if (content.is_string()) {
      files.bytes[name] = content.get<std::string>();
    } else if (!content.is_object() || !content.contains("base64") || !content["base64"].is_string() ||
               !absl::Base64Unescape(content["base64"].get<std::string>(), &files.bytes[name])) {
      throw list.error(name, R"(expected the file's text as a string, or {"base64": "..."}; )"
                             "rebuild the dataset or restore the checkpoint");
    }
  }
  fields.finish();
  return tokenizer_from_files(std::move(files));
}

}  // namespace ashlar::data
