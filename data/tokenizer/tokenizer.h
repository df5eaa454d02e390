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

/// Where a text may be split so that encoding the pieces separately gives the encoding of the whole text. kAnyByte:
/// before any byte. kCodePoint: between code points. kWords: where Tokenizer::joint allows it. kNowhere: documents are
/// encoded whole.
enum class SplitPoints : uint8_t { kAnyByte, kCodePoint, kWords, kNowhere };

/// Returns the offset of the first allowed split in `text`, which continues an earlier text. `rule` must be kAnyByte or
/// kCodePoint. For kCodePoint the offset is at most 3.
size_t first_split_point(SplitPoints rule, std::string_view text);

/// A file for other programs: name without folder, and content.
struct TokenizerFile {
  std::string name;
  std::string bytes;
};

/// The spelling of a special token in a text.
struct SpecialSpelling {
  /// Offset in the text. For a spelling found in normalized text, the offset of the part that was normalized.
  size_t offset = 0;
  int32_t id = -1;  ///< id of the token
};

/// Encodes texts and decodes ids. Immutable and thread-safe. A new built-in kind needs an implementation and a row in
/// `kKinds` of tokenizer.cpp. A new file format of tokenizers is a form instead (data/tokenizer/forms.h).
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Returns a name for messages: the kind as given to --tokenizer ("bytes"), or the form of the files and the type of
  /// the model.
  virtual std::string identity() const = 0;
  virtual int32_t vocab_size() const = 0;  ///< ids are [0, vocab_size)
  /// Returns the end-of-document id. For a built-in kind it is a separate id that no text encodes to. For a tokenizer
  /// read from files it is the eos token, and `encode` may turn the spelling of this token in a text into the id (but
  /// see encode_as_text).
  virtual int32_t eod_id() const = 0;
  /// True if a token has this id. False beyond the vocabulary, and in the gaps between ids that some files have.
  virtual bool has_token(int32_t id) const { return id >= 0 && id < vocab_size(); }
  virtual SplitPoints split_points() const = 0;
  /// For kWords: decides whether a long text may be split at byte `at` of `window`, the part of the text around the
  /// place. Returns the number of bytes to drop between the two pieces (0, or 1 for a space that the tokenizer adds
  /// before every text). Returns nothing if the text may not be split there. After a split, ids(left) followed by
  /// ids(right) equals ids(whole).
  virtual std::optional<size_t> joint(std::string_view window, size_t at) const {
    static_cast<void>(window), static_cast<void>(at);
    return std::nullopt;
  }

  /// Appends the ids of `text` to `ids`. Throws TextError when the text cannot be encoded.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  /// Encodes like `encode`, but spellings of special tokens (and of eos and bos, regardless of their flag) are ordinary
  /// text and do not become these tokens. The ids therefore contain no end-of-document id, unless the eos token is also
  /// the unknown token or an ordinary piece of a SentencePiece model. Appends the spellings to `found`. Added tokens of
  /// the files that are not special stay tokens. Source: tokenizers, AddedVocabulary::find_matches with
  /// encode_special_tokens (`split_special_tokens`).
  virtual void encode_as_text(std::string_view text, std::vector<int32_t>& ids,
                              std::vector<SpecialSpelling>& found) const {
    static_cast<void>(found);
    encode(text, ids);
  }
  /// True if encode and encode_as_text can give different ids.
  virtual bool has_special_tokens() const { return false; }
  /// Encodes like `encode` and adds the ids of the model's template around the text (in tokenizer.json: `<s> $A`).
  virtual void encode_with_template(std::string_view text, std::vector<int32_t>& ids) const { encode(text, ids); }
  /// Returns the text of the ids. A separate end-of-document id decodes to nothing, an eos token of the files to its
  /// spelling. Throws an input error for an id outside the vocabulary.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  /// True if the token is one byte of a character, in a vocabulary whose other tokens are whole characters. The text of
  /// such a token depends on the ids around it.
  virtual bool is_byte(int32_t) const { return false; }

  /// Returns everything that determines ids, as one JSON object. Manifests and checkpoints store it.
  virtual std::string to_json() const = 0;

  /// Returns the files from which the tokenizer was read, byte for byte; none for a built-in kind.
  virtual std::vector<TokenizerFile> files() const { return {}; }

  /// Returns this tokenizer as a tokenizer.json for other programs. Throws an input error if tokenizer.json cannot
  /// express it.
  virtual std::string tokenizer_json_text() const = 0;

  /// Returns the hash of to_json() as 16 hex digits. Equal hashes mean equal files. Different files may define the same
  /// tokenizer; compare fingerprint() to detect this.
  std::string hash() const;
  /// Returns a digest, as 32 hex digits, of everything that determines encoding, decoding and the end-of-document id,
  /// and of nothing else. It is equal for all forms of one tokenizer, such as a built-in kind and its exported
  /// tokenizer.json. It does not depend on the chat template, model_max_length, padding, key order or white space.
  std::string fingerprint() const;

  std::vector<int32_t> encode(std::string_view text) const;
};

/// Creates a tokenizer from the output of Tokenizer::to_json. Throws an input error that names what is unknown or
/// missing.
std::unique_ptr<Tokenizer> tokenizer_from_json(std::string_view json);

/// Thrown for a place in a text that cannot be encoded or parsed. The caller knows the file and converts the TextError
/// to an Error.
struct TextError {
  size_t offset = 0;   ///< offset of the place in bytes from the start of the text
  std::string reason;  ///< "invalid UTF-8 byte 0xff", ...
};

/// First pass of a tokenizer over the corpus. It counts tokens, and learns a vocabulary if needed. There is one object
/// per thread, and the objects are merged at the end. The result does not depend on the order of texts or merges.
class CorpusScan {
 public:
  virtual ~CorpusScan() = default;

  virtual SplitPoints split_points() const = 0;
  /// True when a text of n bytes has n tokens and nothing is learned, so that files need not be read for counting.
  virtual bool one_token_per_byte() const = 0;
  /// Adds a text and returns the number of its ids. Throws TextError if the text cannot be encoded.
  virtual int64_t add(std::string_view text) = 0;
  virtual void merge(const CorpusScan& other) = 0;
  virtual std::unique_ptr<Tokenizer> finish() const = 0;
};

using MakeCorpusScan = std::function<std::unique_ptr<CorpusScan>()>;

/// Opens the tokenizer in a file or folder. A tokenizer.json that was exported from a built-in kind gives this kind.
std::unique_ptr<Tokenizer> tokenizer_of_path(const std::string& path);

/// What an argument of --tokenizer means: a built-in kind, or a tokenizer that is read once from a file or folder. For
/// any other argument, corpus_scans throws an input error that lists the kinds. `identity` is the kind or the hash of
/// the tokenizer, so it is equal for equal tokenizers at any path.
struct CorpusScans {
  MakeCorpusScan make;
  std::string identity;
  std::shared_ptr<const Tokenizer> tokenizer;  ///< the tokenizer read from files; null for a built-in kind
};
CorpusScans corpus_scans(const std::string& kind_or_path);

}  // namespace ashlar::data
