#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ashlar::data {

/// Where a text may be cut so that encoding the pieces one by one gives the encoding of the whole. kWords: where
/// Tokenizer::joint says so. kNowhere: documents are encoded whole.
enum class CutRule : uint8_t { kAnyByte, kCodePoint, kWords, kNowhere };

/// The offset of the first allowed cut at or after the start of `text`, which continues an earlier text. For kAnyByte
/// and kCodePoint. At most 3 bytes are passed over for kCodePoint.
size_t first_cut(CutRule rule, std::string_view text);

/// A file as other programs read it: name without folder, and its bytes.
struct TokenizerFile {
  std::string name;
  std::string bytes;
};

/// The spelling of a special token in a text.
struct SpecialSpelling {
  size_t offset = 0;  ///< in the text; of a spelling that a normaliser makes, where the text it is part of begins
  int32_t id = -1;    ///< of the token
};

/// Text to ids and back. Immutable and safe to use from many threads. A further kind is one more implementation and one
/// line in `kKinds` of tokenizer.cpp; one that is read from files is a form instead (data/tokenizer/forms.h).
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// What it is, for people: the kind as typed after --tokenizer ("bytes"), or the form of its files and its model.
  virtual std::string identity() const = 0;
  virtual int32_t vocab_size() const = 0;  ///< ids are [0, vocab_size)
  /// End of document: an id of its own that no text encodes to, or the token that the files name (eos), which a text
  /// that holds its spelling encodes to.
  virtual int32_t eod_id() const = 0;
  /// Whether a token has this id: false beyond the vocabulary, and in the gaps that some files leave.
  virtual bool has_token(int32_t id) const { return id >= 0 && id < vocab_size(); }
  virtual CutRule cut_rule() const = 0;
  /// For kWords: whether a long text may be cut at byte `at` of `window`, a part of it with what lies around that
  /// place. Returns the bytes to leave out between the two pieces (0, or 1 for a space that stands for itself before
  /// every text that is encoded), or nothing when it may not be cut there. With it, ids(left) + ids(right) =
  /// ids(whole).
  virtual std::optional<size_t> joint(std::string_view window, size_t at) const {
    static_cast<void>(window), static_cast<void>(at);
    return std::nullopt;
  }

  /// Appends the ids of `text` to `ids`. Throws TextError when the text cannot be encoded.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  /// The same with the spellings of special tokens (and of eos and bos, whatever their flag) as text like any other:
  /// their ids are never those tokens', so that no document holds an end of documents. Appends the spellings to
  /// `found`. Other added tokens of the files are vocabulary and stay tokens. Source: tokenizers,
  /// AddedVocabulary::find_matches with encode_special_tokens (`split_special_tokens`).
  virtual void encode_as_text(std::string_view text, std::vector<int32_t>& ids,
                              std::vector<SpecialSpelling>& found) const {
    static_cast<void>(found);
    encode(text, ids);
  }
  /// Whether there are tokens that the two encodings differ in, or that only the first of them knows.
  virtual bool has_special_tokens() const { return false; }
  /// The same with what the tokenizer puts around a text for a model (the template of tokenizer.json: `<s> $A`).
  virtual void encode_with_template(std::string_view text, std::vector<int32_t>& ids) const { encode(text, ids); }
  /// Text of the ids. An end-of-document id of its own decodes to nothing, one that is a token of the files to its
  /// spelling. An id outside the vocabulary is an input error.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  /// Whether the id is one byte of a character among tokens of text: what it decodes to depends on the ids around it.
  virtual bool is_byte(int32_t) const { return false; }

  /// Everything that decides ids, as one JSON object; goes into manifests and checkpoints.
  virtual std::string to_json() const = 0;

  /// The files that it was read from, byte for byte; none for a kind that has none.
  virtual std::vector<TokenizerFile> files() const { return {}; }

  /// The same tokenizer as the tokenizer.json that other programs read. Input error for one that cannot be written so.
  virtual std::string tokenizer_json_text() const = 0;

  /// 16 hex digits of to_json(): equal hashes mean equal files. Other files may say the same tokenizer: fingerprint().
  std::string hash() const;
  /// 32 hex digits of what decides ids of texts, texts of ids, and which id ends a document; nothing else. Equal for
  /// one tokenizer in all of its forms: a kind of its own and the tokenizer.json that an export writes of it, a folder
  /// with another chat template, model_max_length, padding, order of keys or white space.
  std::string fingerprint() const;

  std::vector<int32_t> encode(std::string_view text) const;
};

/// What to_json wrote. Throws an input error that names what is unknown or missing.
std::unique_ptr<Tokenizer> tokenizer_from_json(std::string_view json);

/// A place in a text that a tokenizer cannot take. The caller knows the file and turns it into an Error.
struct TextError {
  size_t offset = 0;   ///< bytes from the start of the text given
  std::string reason;  ///< "invalid UTF-8 byte 0xff", ...
};

/// How a kind of tokenizer sees the corpus before it encodes it: counts tokens, and learns its vocabulary if it has
/// one to learn. One object per thread, merged at the end; the result does not depend on the order.
class CorpusScan {
 public:
  virtual ~CorpusScan() = default;

  virtual CutRule cut_rule() const = 0;
  /// True when a text of n bytes is n tokens and nothing is learned, so that files need not be read to be counted.
  virtual bool one_token_per_byte() const = 0;
  /// The number of ids `text` will have. Throws TextError.
  virtual int64_t add(std::string_view text) = 0;
  virtual void merge(const CorpusScan& other) = 0;
  virtual std::unique_ptr<Tokenizer> finish() const = 0;
};

using MakeCorpusScan = std::function<std::unique_ptr<CorpusScan>()>;

/// A tokenizer's file or folder. What an export wrote of a kind that has no files is that kind again.
std::unique_ptr<Tokenizer> tokenizer_of_path(const std::string& path);

/// What was typed after --tokenizer: a kind, or a tokenizer's file or folder, which is read once. Anything else is an
/// input error that lists the kinds. `identity` is the kind or the tokenizer's hash: equal for equal tokenizers
/// wherever they lie.
struct CorpusScans {
  MakeCorpusScan make;
  std::string identity;
  std::shared_ptr<const Tokenizer> tokenizer;  ///< one read from files; null for a kind
};
CorpusScans corpus_scans(const std::string& kind_or_path);

}  // namespace ashlar::data
