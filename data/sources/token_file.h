#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/posix_file.h"

namespace ashlar::data {

/// Type of an id in a token file, little endian.
enum class TokenType : uint8_t { kUint8, kInt8, kUint16, kInt16, kUint32, kInt32, kUint64, kInt64 };
int64_t bytes_of(TokenType type);
int64_t largest_of(TokenType type);
std::string_view name_of(TokenType type);  ///< "uint16", ...

/// Where and how a file stores its ids.
struct TokenLayout {
  std::string_view form;  ///< "llm.c", "nanoGPT", "Megatron", "datatrove", "NumPy", "raw"
  TokenType type = TokenType::kUint16;
  int64_t offset = 0;  ///< offset of the first id, in bytes
  int64_t tokens = 0;
  std::string index;       ///< path of the file with the ends of documents: Megatron, datatrove; empty otherwise
  std::string tokenizer;   ///< datatrove: name or path of the tokenizer that made the ids; empty if unknown
  bool loss_mask = false;  ///< datatrove: a mask of the loss is beside the file
};

/// Detects NumPy arrays and llm.c shards from the first bytes of a file (about 64 KB, or all of it) and its size in
/// bytes. Returns nothing for any other file. Throws an input error that names the file if its size does not match its
/// header, if its format version is not supported, or if the elements of an array are not of a TokenType or not in C
/// order.
/// Source: numpy/lib/format.py; llm.c, dev/data/data_common.py.
std::optional<TokenLayout> recognised_tokens(std::string_view head, int64_t bytes, const std::string& shown);

/// Returns the layout of a file of ids without a header, such as nanoGPT's. Throws an input error when the size of the
/// file is not a multiple of the size of `type`.
TokenLayout raw_tokens(TokenType type, int64_t bytes, std::string_view form, const std::string& shown);

/// Returns the layout of Megatron's X.bin. `index` is the path of its index X.idx. Throws an input error when the two
/// files do not match.
TokenLayout megatron_tokens(const std::string& index, int64_t bytes, const std::string& shown);
bool is_megatron_index(std::string_view head);

/// Where the documents of a token file are, in a file beside it.
class DocumentIndex {
 public:
  virtual ~DocumentIndex() = default;
  /// Starts of documents in (begin, end], counted in tokens, ascending. The end of the file counts as a start.
  virtual std::vector<int64_t> starts(int64_t begin, int64_t end) const = 0;
};

/// Reads the document starts in Megatron's X.idx, with constant memory.
/// Source: Megatron-LM, megatron/core/datasets/indexed_dataset.py.
class MegatronIndex : public DocumentIndex {
 public:
  explicit MegatronIndex(const std::string& path);

  TokenType type() const { return type_; }
  int64_t tokens() const { return tokens_; }
  std::vector<int64_t> starts(int64_t begin, int64_t end) const override;

 private:
  int64_t start_of(int64_t document) const;
  int64_t number_at(int64_t offset) const;

  io::InputFile file_;
  TokenType type_ = TokenType::kUint16;
  int64_t sequences_ = 0, documents_ = 0, tokens_ = 0;
};

/// An id outside the vocabulary.
struct OutsideVocabulary {
  int64_t index = 0;  ///< index of the id in the bytes
  int64_t id = 0;     ///< the id; ids of 2^63 and above are given as 2^63 - 1
};
/// Appends the ids stored in `bytes` (a whole number of ids) to `ids`. Stops at the first id outside [0, vocab_size)
/// and returns it. Returns nothing if every id is in the vocabulary.
std::optional<OutsideVocabulary> append_ids(std::string_view bytes, TokenType type, int64_t vocab_size,
                                            std::vector<int32_t>& ids);

}  // namespace ashlar::data
