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

/// Where a text may be split so that encoding the pieces separately gives the encoding of the whole. kWords: where
/// Tokenizer::joint allows it. kNowhere: documents are encoded whole.
enum class SplitPoints : uint8_t { kAnyByte, kCodePoint, kWords, kNowhere };

/// The offset of the first allowed split at or after the start of `text`, which continues an earlier text. For kAnyByte
/// and kCodePoint. Skips at most 3 bytes for kCodePoint.
size_t first_split_point(SplitPoints rule, std::string_view text);

/// A file for other programs: name without folder, and content.
struct TokenizerFile {
  std::string name;
  std::string bytes;
};

/// The spelling of a special token in a text.
struct SpecialSpelling {
  size_t offset = 0;  ///< in the text; if normalization created the spelling, the start of the enclosing text
  int32_t id = -1;    ///< id of the token
};

/// Encodes texts and decodes ids. Immutable and thread-safe. To add a kind: an implementation and a row in `kKinds` of
/// tokenizer.cpp; a tokenizer read from files is a form instead (data/tokenizer/forms.h).
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Its name for people: the kind as typed after --tokenizer ("bytes"), or the form of its files and its model.
  virtual std::string identity() const = 0;
  virtual int32_t vocab_size() const = 0;  ///< ids are [0, vocab_size)
  /// End of document: a separate id that no text encodes to, or the eos token of the files, which a text with its
  /// spelling encodes to.
  virtual int32_t eod_id() const = 0;
  /// True if a token has this id: false beyond the vocabulary, and in the gaps that some files leave.
  virtual bool has_token(int32_t id) const { return id >= 0 && id < vocab_size(); }
  virtual SplitPoints split_points() const = 0;
  /// For kWords: whether a long text may be split at byte `at` of `window`, which is the part of the text around that
  /// place. Returns the number of bytes to drop between the two pieces (0, or 1 for a space that the tokenizer adds
  /// before every text), or nothing if it may not be split there. Then ids(left) + ids(right) = ids(whole).
  virtual std::optional<size_t> joint(std::string_view window, size_t at) const {
    static_cast<void>(window), static_cast<void>(at);
    return std::nullopt;
  }

  /// Appends the ids of `text` to `ids`. Throws TextError when the text cannot be encoded.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  /// Encodes like `encode`, but spellings of special tokens (and of eos and bos, regardless of their flag) are ordinary
  /// text: they never become those tokens, so no document contains an end-of-document id. Appends the spellings to
  /// `found`. Other added tokens of the files are vocabulary and stay tokens. Source: tokenizers,
  /// AddedVocabulary::find_matches with encode_special_tokens (`split_special_tokens`).
  virtual void encode_as_text(std::string_view text, std::vector<int32_t>& ids,
                              std::vector<SpecialSpelling>& found) const {
    static_cast<void>(found);
    encode(text, ids);
  }
  /// True if the two encodings can differ.
  virtual bool has_special_tokens() const { return false; }
  /// Encodes like `encode` and adds the template for a model (in tokenizer.json: `<s> $A`).
  virtual void encode_with_template(std::string_view text, std::vector<int32_t>& ids) const { encode(text, ids); }
  /// The text of the ids. A separate end-of-document id decodes to nothing, an eos token of the files to its spelling.
  /// An id outside the vocabulary is an input error.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  /// True if the id is one byte of a character among text tokens: its text depends on the ids around it.
  virtual bool is_byte(int32_t) const { return false; }

  /// Everything that determines ids, as one JSON object; stored in manifests and checkpoints.
  virtual std::string to_json() const = 0;

  /// The files that it was read from, byte for byte; none for a built-in kind.
  virtual std::vector<TokenizerFile> files() const { return {}; }

  /// Returns this tokenizer as a tokenizer.json for other programs. Input error if it cannot be expressed.
  virtual std::string tokenizer_json_text() const = 0;

  /// 16 hex digits of to_json(): equal hashes mean equal files. Different files may define the same tokenizer:
  /// fingerprint().
  std::string hash() const;
  /// A digest, as 32 hex digits, of everything that determines encoding, decoding and the end-of-document id, and of
  /// nothing else. Equal for all forms of one tokenizer: a built-in kind and its exported tokenizer.json, or a folder
  /// with another chat template, model_max_length, padding, key order or white space.
  std::string fingerprint() const;

  std::vector<int32_t> encode(std::string_view text) const;
};

/// Parses to_json(). Throws an input error that names what is unknown or missing.
std::unique_ptr<Tokenizer> tokenizer_from_json(std::string_view json);

/// A place in a text that a tokenizer cannot encode. The caller knows the file and converts it to an Error.
struct TextError {
  size_t offset = 0;   ///< bytes from the start of the text given
  std::string reason;  ///< "invalid UTF-8 byte 0xff", ...
};

/// First pass of a tokenizer over the corpus: counts tokens, and learns a vocabulary if needed. One object per thread,
/// merged at the end; the result does not depend on the order.
class CorpusScan {
 public:
  virtual ~CorpusScan() = default;

  virtual SplitPoints split_points() const = 0;
  /// True when a text of n bytes has n tokens and nothing is learned, so that files need not be read for counting.
  virtual bool one_token_per_byte() const = 0;
  /// The number of ids `text` will have. Throws TextError.
  virtual int64_t add(std::string_view text) = 0;
  virtual void merge(const CorpusScan& other) = 0;
  virtual std::unique_ptr<Tokenizer> finish() const = 0;
};

using MakeCorpusScan = std::function<std::unique_ptr<CorpusScan>()>;

/// The tokenizer of a file or folder. The export of a built-in kind is read as that kind.
std::unique_ptr<Tokenizer> tokenizer_of_path(const std::string& path);

/// The argument of --tokenizer: a kind, or a tokenizer's file or folder, which is read once. Anything else is an input
/// error that lists the kinds. `identity` is the kind or the tokenizer's hash: equal for equal tokenizers at any path.
struct CorpusScans {
  MakeCorpusScan make;
  std::string identity;
  std::shared_ptr<const Tokenizer> tokenizer;  ///< one read from files; null for a kind
};
CorpusScans corpus_scans(const std::string& kind_or_path);

}  // namespace ashlar::data
