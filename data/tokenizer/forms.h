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

/// The `kind` of tokenizers that are read from files.
inline constexpr std::string_view kFilesKind = "files";

/// The files of one tokenizer: the one that makes the form, and what lies beside it and says more (names of special
/// tokens, chat template), by name.
struct TokenizerFiles {
  std::string shown;  ///< file or folder as the user named it, for errors
  std::map<std::string, std::string> bytes;
  /// How the files are read. 1: as datasets and checkpoints of before had it, the class and the added tokens beside the
  /// tokenizer ignored. Datasets and checkpoints say 2 where that makes a difference.
  int rules = 2;

  const std::string* find(const std::string& name) const {
    const auto at = bytes.find(name);
    return at == bytes.end() ? nullptr : &at->second;
  }
  /// The one file whose name ends so; null when there is none.
  const std::string* find_ending(std::string_view ending, std::string* name = nullptr) const;
};

/// What a form makes of its files.
class FormTokenizer : public Tokenizer {
 public:
  using Tokenizer::encode;
  /// The spelling of an id as its vocabulary has it; empty for an id that is not used.
  virtual std::string token(int32_t id) const = 0;
  /// The id of a token by its spelling, special ones too.
  virtual std::optional<int32_t> id_of(std::string_view token) const = 0;
  /// Tokens that stand for no text, in order of their ids.
  virtual std::vector<std::string> special_tokens() const = 0;
  /// The name of the form: "tokenizer.json", "tiktoken", ...
  virtual std::string form() const = 0;

  CutRule cut_rule() const final { return cut_rule_; }
  bool has_special_tokens() const final { return !special_tokens().empty() || eos_id_; }
  /// Throws an input error when the files name none.
  int32_t eod_id() const final;
  std::string to_json() const final;
  std::vector<TokenizerFile> files() const final;
  bool is_byte(int32_t id) const override { return byte_of_token(token(id)) >= 0; }
  const TokenizerFiles& source() const { return files_; }
  std::optional<int32_t> eos_id() const { return eos_id_; }
  std::optional<int32_t> bos_id() const { return bos_id_; }
  /// What a form's open ends with: keeps the files, finds eos and bos in them.
  void keep(TokenizerFiles files);
  /// For a form's open: its files meant something else by the rules of before.
  void rules_matter() { rules_ = 2; }

 protected:
  /// eos or bos: special whatever its flag says, as transformers has it.
  virtual void treat_as_special(int32_t id) { static_cast<void>(id); }

 private:
  TokenizerFiles files_;
  int rules_ = 1;
  std::optional<int32_t> eos_id_, bos_id_;
  CutRule cut_rule_ = CutRule::kNowhere;
};

/// Reads a tokenizer's file, or the folder that holds one: `tokenizer.json` before `vocab.json` + `merges.txt` before
/// `.tiktoken`. Input errors name the file and the field that is not supported.
std::unique_ptr<FormTokenizer> open_tokenizer(const std::string& path);
/// Whether a file of this name makes one of the forms.
bool makes_form(const std::string& name);
/// Whether a folder has a file that makes one of the forms, supported or not.
bool holds_tokenizer(const std::string& folder);
std::unique_ptr<FormTokenizer> tokenizer_from_files(TokenizerFiles files);

/// One line in `kForms` of forms.cpp: whether the files hold a tokenizer of the form, which
/// of them it is read from, and the tokenizer.
struct Form {
  std::string_view name;
  bool (*there)(const TokenizerFiles& files);
  bool (*reads)(std::string_view file);  ///< of the files that make forms: another form's are left out
  std::unique_ptr<FormTokenizer> (*open)(const TokenizerFiles& files);
};

}  // namespace ashlar::data
