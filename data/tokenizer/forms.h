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

/// Value of `kind` in the JSON of a tokenizer that is read from files.
inline constexpr std::string_view kFilesKind = "files";

/// The files of one tokenizer, by name: the files of its form (file format, such as tokenizer.json or .tiktoken), and
/// accompanying files (names of special tokens, chat template).
struct TokenizerFiles {
  std::string shown;  ///< file or folder as given by the user, for errors
  std::map<std::string, std::string> bytes;
  /// Version of the rules for reading the files. Version 1 is used for older datasets and checkpoints. It ignores the
  /// tokenizer class and the added tokens in accompanying files. New datasets and checkpoints store version 2 only if
  /// version 1 would give another result.
  int rules = 2;

  const std::string* find(const std::string& name) const {
    const auto at = bytes.find(name);
    return at == bytes.end() ? nullptr : &at->second;
  }
  /// Returns the only file whose name has this ending, and its name; null if no file or several files have it.
  const std::string* find_ending(std::string_view ending, std::string* name = nullptr) const;
};

/// A tokenizer that is read from the files of one form.
class FormTokenizer : public Tokenizer {
 public:
  using Tokenizer::encode;
  /// Returns the spelling of an id in the vocabulary; empty for an unused id.
  virtual std::string token(int32_t id) const = 0;
  /// Returns the id of the token with this spelling, which may be a special token.
  virtual std::optional<int32_t> id_of(std::string_view token) const = 0;
  /// Returns the spellings of tokens that represent no text, ordered by id.
  virtual std::vector<std::string> special_tokens() const = 0;
  /// Returns the name of the form: "tokenizer.json", "tiktoken", ...
  virtual std::string form() const = 0;

  SplitPoints split_points() const final { return split_points_; }
  bool has_special_tokens() const final { return !special_tokens().empty() || eos_id_; }
  /// Returns the id of the eos token. Throws an input error if the files define no eos token.
  int32_t eod_id() const final;
  std::string to_json() const final;
  std::vector<TokenizerFile> files() const final;
  /// True if the characters of a token's spelling are bytes (ByteCharacters).
  virtual bool byte_level() const { return false; }
  bool is_byte(int32_t id) const override { return byte_of_token(token(id)) >= 0; }
  const TokenizerFiles& source() const { return files_; }
  std::optional<int32_t> eos_id() const { return eos_id_; }
  std::optional<int32_t> bos_id() const { return bos_id_; }
  /// Last step of opening a tokenizer: stores the files and finds the eos and bos tokens in them.
  void keep(TokenizerFiles files);
  /// Called by the open function of a form if rules 1 (TokenizerFiles::rules) would give another result.
  void rules_matter() { rules_ = 2; }

 protected:
  /// Treats the eos or bos token as special regardless of its flag, as in transformers.
  virtual void treat_as_special(int32_t id) { static_cast<void>(id); }

 private:
  TokenizerFiles files_;
  int rules_ = 1;
  std::optional<int32_t> eos_id_, bos_id_;
  SplitPoints split_points_ = SplitPoints::kNowhere;
};

/// Opens a tokenizer from a file or a folder. If a folder has several forms, the first of these is read:
/// tokenizer.json, vocab.json with merges.txt, SentencePiece .model, .tiktoken. Input errors name the file and the
/// unsupported field.
std::unique_ptr<FormTokenizer> open_tokenizer(const std::string& path);
/// True if a file of this name defines a tokenizer. False for accompanying files such as tokenizer_config.json.
bool makes_form(const std::string& name);
/// True if a folder has the files of a form (file format), even if the tokenizer in these files is not supported.
bool holds_tokenizer(const std::string& folder);
std::unique_ptr<FormTokenizer> tokenizer_from_files(TokenizerFiles files);

/// A row of `kForms` in forms.cpp: the functions that detect a tokenizer of the form, select the files that it reads,
/// and open it.
struct Form {
  std::string_view name;
  bool (*there)(const TokenizerFiles& files);
  bool (*reads)(std::string_view file);  ///< true for a file that the form reads; files of other forms are ignored
  std::unique_ptr<FormTokenizer> (*open)(const TokenizerFiles& files);
};

}  // namespace ashlar::data
