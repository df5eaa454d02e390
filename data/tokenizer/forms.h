#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/vocabulary.h"

namespace ashlar::data {

/// The `kind` of tokenizers read from files.
inline constexpr std::string_view kFilesKind = "files";

/// The files of one tokenizer, by name: the file of its form, and accompanying files (names of special tokens, chat
/// template).
struct TokenizerFiles {
  std::string shown;  ///< file or folder as given by the user, for errors
  std::map<std::string, std::string> bytes;
  /// Rules of reading the files. 1: as in older datasets and checkpoints, where class and added tokens in accompanying
  /// files are ignored. Datasets and checkpoints store 2 if that makes a difference.
  int rules = 2;

  const std::string* find(const std::string& name) const {
    const auto at = bytes.find(name);
    return at == bytes.end() ? nullptr : &at->second;
  }
  /// The file whose name has this ending; null if none.
  const std::string* find_ending(std::string_view ending, std::string* name = nullptr) const;
};

/// A tokenizer that a form reads from files.
class FormTokenizer : public Tokenizer {
 public:
  using Tokenizer::encode;
  /// The spelling of an id in its vocabulary; empty for an unused id.
  virtual std::string token(int32_t id) const = 0;
  /// The id of a token by its spelling, including special tokens.
  virtual std::optional<int32_t> id_of(std::string_view token) const = 0;
  /// Tokens that represent no text, ordered by id.
  virtual std::vector<std::string> special_tokens() const = 0;
  /// The name of the form: "tokenizer.json", "tiktoken", ...
  virtual std::string form() const = 0;

  SplitPoints split_points() const final { return split_points_; }
  bool has_special_tokens() const final { return !special_tokens().empty() || eos_id_; }
  /// Throws an input error if the files define none.
  int32_t eod_id() const final;
  std::string to_json() const final;
  std::vector<TokenizerFile> files() const final;
  bool is_byte(int32_t id) const override { return byte_of_token(token(id)) >= 0; }
  const TokenizerFiles& source() const { return files_; }
  std::optional<int32_t> eos_id() const { return eos_id_; }
  std::optional<int32_t> bos_id() const { return bos_id_; }
  /// Last step of a form's open: stores the files, finds eos and bos in them.
  void keep(TokenizerFiles files);
  /// Called by the open function of a form if the files give another result under the older rules.
  void rules_matter() { rules_ = 2; }

 protected:
  /// eos or bos: special regardless of its flag, as in transformers.
  virtual void treat_as_special(int32_t id) { static_cast<void>(id); }

 private:
  TokenizerFiles files_;
  int rules_ = 1;
  std::optional<int32_t> eos_id_, bos_id_;
  SplitPoints split_points_ = SplitPoints::kNowhere;
};

/// Reads a tokenizer's file, or the folder with one: `tokenizer.json` before `vocab.json` + `merges.txt` before
/// `.tiktoken`. Input errors name the file and the unsupported field.
std::unique_ptr<FormTokenizer> open_tokenizer(const std::string& path);
/// True if a file of this name belongs to a form.
bool makes_form(const std::string& name);
/// True if a folder has a file of a form, supported or not.
bool holds_tokenizer(const std::string& folder);
std::unique_ptr<FormTokenizer> tokenizer_from_files(TokenizerFiles files);

/// A row of `kForms` in forms.cpp: the functions that detect a tokenizer of the form, select the files that it reads,
/// and open it.
struct Form {
  std::string_view name;
  bool (*there)(const TokenizerFiles& files);
  bool (*reads)(std::string_view file);  ///< true for form files that it reads; files of other forms are ignored
  std::unique_ptr<FormTokenizer> (*open)(const TokenizerFiles& files);
};

}  // namespace ashlar::data
