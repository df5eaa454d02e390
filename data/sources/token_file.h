#pragma once

#include <cstdint>
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

/// Location of the ids in a file.
struct TokenLayout {
  std::string_view form;  ///< "llm.c", "nanoGPT", "Megatron", "NumPy", "raw"
  TokenType type = TokenType::kUint16;
  int64_t offset = 0;  ///< offset of the first id, in bytes
  int64_t tokens = 0;
  std::string index;  ///< Megatron: the .idx file with the document starts; empty otherwise
};

/// Detects NumPy arrays and llm.c shards from the first bytes of a file (about 64 KB, or all of it) and its size in
/// bytes. Nothing if it is neither. Input error, naming the file, if it is one of them but not supported: truncated, of
/// another type, not C-ordered, of a newer version.
/// Source: numpy/lib/format.py; llm.c, dev/data/data_common.py.
std::optional<TokenLayout> recognised_tokens(std::string_view head, int64_t bytes, const std::string& shown);

/// A file of ids without a header (nanoGPT's). Input error when its size is not a multiple of the type's.
TokenLayout raw_tokens(TokenType type, int64_t bytes, std::string_view form, const std::string& shown);

/// X.bin with the index X.idx. Input error when they do not match.
TokenLayout megatron_tokens(const std::string& index, int64_t bytes, const std::string& shown);
bool is_megatron_index(std::string_view head);

/// The documents of Megatron's X.idx, read from the file with constant memory.
/// Source: Megatron-LM, megatron/core/datasets/indexed_dataset.py.
class MegatronIndex {
 public:
  explicit MegatronIndex(const std::string& path);

  TokenType type() const { return type_; }
  int64_t tokens() const { return tokens_; }
  /// Starts of documents in (begin, end], counted in tokens, ascending. The end of the file counts as a start.
  std::vector<int64_t> starts(int64_t begin, int64_t end) const;

 private:
  int64_t start_of(int64_t document) const;
  int64_t number_at(int64_t offset) const;

  io::InputFile file_;
  TokenType type_ = TokenType::kUint16;
  int64_t sequences_ = 0, documents_ = 0, tokens_ = 0;
};

/// Appends the ids stored in `bytes` (whole ids) to `ids`. Stops at the first id outside [0, vocab_size) and returns
/// its index and value.
struct OutsideVocabulary {
  int64_t index = 0;
  int64_t id = 0;  ///< values above 2^63 are given as 2^63 - 1
};
std::optional<OutsideVocabulary> append_ids(std::string_view bytes, TokenType type, int64_t vocab_size,
                                            std::vector<int32_t>& ids);

}  // namespace ashlar::data
