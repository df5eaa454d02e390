#pragma once

#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/decoders.h"
#include "data/tokenizer/forms.h"
#include "data/tokenizer/model.h"
#include "data/tokenizer/normalizers.h"
#include "data/tokenizer/pre_tokenizers.h"
#include "data/tokenizer/template.h"

namespace ashlar::data {

/// A tokenizer defined by tokenizer.json. Added tokens are matched in the text. The rest of the text is normalized and
/// split into pieces, and the model encodes each piece. The ids equal those of Hugging Face's `tokenizers` library
/// (0.23).
class PipelineTokenizer final : public FormTokenizer {
 public:
  /// `text` is the content of a tokenizer.json. `form` is the name of the form (file format) from which the tokenizer
  /// is read. `beside`, if not null, are files with further added tokens (folder_tokens.h).
  PipelineTokenizer(std::string text, std::string form, const TokenizerFiles* beside = nullptr);

  using FormTokenizer::encode;
  std::string identity() const override { return identity_; }
  int32_t vocab_size() const override { return vocabulary_.size(); }
  bool has_token(int32_t id) const override { return vocabulary_.used(id); }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  void encode_as_text(std::string_view text, std::vector<int32_t>& ids,
                      std::vector<SpecialSpelling>& found) const override;
  std::optional<size_t> joint(std::string_view window, size_t at) const override;
  void encode_with_template(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  std::string token(int32_t id) const override { return vocabulary_.used(id) ? vocabulary_.token(id) : ""; }
  std::optional<int32_t> id_of(std::string_view token) const override { return vocabulary_.find(token); }
  std::vector<std::string> special_tokens() const override;
  std::string form() const override { return form_; }
  bool byte_level() const override { return decoder_ && decoder_->reads_byte_characters(); }
  std::string tokenizer_json_text() const override { return text_; }

 private:
  /// Scratch memory of encode, reused between calls.
  struct Scratch {
    Regex::Scratch regex;
    Model::Scratch model;
    Pieces pieces;
    std::string normal;
    std::vector<Segment> outer, inner;
    /// If not null, special tokens stay text and are recorded here.
    std::vector<SpecialSpelling>* as_text = nullptr;
    /// True: encode_apart encodes each piece, so that no piece becomes a special token.
    bool apart = false;
    size_t text_offset = 0;  ///< offset of the `text` of encode_text in the whole text
  };
  std::vector<AddedToken> added_tokens(Fields& fields, const TokenizerFiles* beside);
  std::unique_ptr<Scratch> acquire_scratch() const;
  void release_scratch(std::unique_ptr<Scratch> scratch) const;
  void encode_whole(std::string_view text, Scratch& scratch, std::vector<int32_t>& ids) const;
  void encode_text(std::string_view text, bool at_start, Scratch& scratch, std::vector<int32_t>& ids) const;
  void encode_pieces(std::string_view text, bool at_start, Scratch& scratch, std::vector<int32_t>& ids) const;
  void encode_apart(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const;
  void treat_as_special(int32_t id) override;
  void note_special(int32_t id);
  bool parts_of(std::string_view text, Scratch& scratch, std::vector<std::string>& parts) const;

  std::string text_, form_, identity_;
  Vocabulary vocabulary_;
  std::unique_ptr<Normalizer> normalizer_;
  std::unique_ptr<PreTokenizer> pre_tokenizer_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<AddedTokens> added_;
  std::unique_ptr<Decoder> decoder_;
  Template template_;
  bool model_reads_bytes_ = false;
  /// True if U+2581 is a token, no token has U+2581 after another character, and ignore_merges is false.
  bool marks_begin_words_ = false;
  std::vector<char> special_;  ///< indexed by id; 1 for a special token
  /// Smallest and largest special id.
  int32_t special_low_ = std::numeric_limits<int32_t>::max(), special_high_ = -1;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_;
};

/// Returns the offset of the first invalid UTF-8 byte of `text` at or after `begin`, or the size of `text` if there is
/// none.
size_t valid_utf8_end(std::string_view text, size_t begin = 0);
/// Throws a TextError when `text` is not UTF-8 or is longer than 1 GiB.
void check_text(std::string_view text);

}  // namespace ashlar::data
