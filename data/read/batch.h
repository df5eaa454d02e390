#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/tokenizer/token_bytes.h"

namespace ashlar::data {

/// Value of a target that the loss ignores (PyTorch: ignore_index). With document masking, the target of each
/// end-of-document id is ignored. Targets beyond the end of the validation part are always ignored. `valid_targets`
/// does not count ignored targets.
inline constexpr int32_t kIgnoreIndex = -1;

/// One micro-batch on the host: B rows (samples) of T tokens, flattened row by row. Row b is the global sample
/// `first_sample + b` of the run. This index does not depend on how the run is divided among ranks. Dropout uses it as
/// random key.
struct Batch {
  int64_t B = 0;
  int64_t T = 0;
  std::vector<int32_t> ids;      ///< [B*T] token ids, in [0, vocab_size)
  std::vector<int32_t> targets;  ///< [B*T] id of the next token, or kIgnoreIndex
  /// [B*T] position in the row where the document of the token begins; empty without masking
  std::vector<int32_t> doc_start;
  /// [B*T] position t in the row; with restart_positions, t - (start of the document in the row)
  std::vector<int32_t> positions;
  /// [B*T] indices into `ids` in ascending order of the ids; indices of equal ids ascend.
  std::vector<int32_t> order;
  int64_t first_sample = 0;   ///< global index of row 0
  int64_t valid_targets = 0;  ///< number of targets that are not kIgnoreIndex
};

/// Treatment of document boundaries (a document ends with the end-of-document id).
struct DocumentRule {
  bool mask = false;  ///< no attention across documents: fills doc_start, ignores the target of each end-of-document id
  bool restart_positions = false;  ///< positions count from the start of the document within the row
};

/// Writes row b of `batch` (already sized by `resize_batch`) from `tokens`, which has T+1 tokens, or n <= T tokens at
/// the end of a part. In the second case, the targets at positions n-1 and later are ignored, and the ids from position
/// n on are `eod`. No valid target depends on these ids, since they come after all valid targets. Adds the number of
/// valid targets to batch.valid_targets.
void fill_row(Batch& batch, int64_t b, std::span<const int32_t> tokens, int32_t eod, const DocumentRule& rule);

/// Sets the shapes to B rows of T tokens and valid_targets to 0. Keeps the capacity of the vectors, so that a reused
/// batch does not allocate memory again.
void resize_batch(Batch& batch, int64_t B, int64_t T, const DocumentRule& rule);

/// Fills `batch.order` by a stable counting sort of the ids. `counts` is scratch memory, resized to vocab_size + 1. An
/// id outside [0, vocab_size) is an internal error (Bug), since dataset readers check ids when they load a chunk.
void fill_order(Batch& batch, int32_t vocab_size, std::vector<int32_t>& counts);

/// Returns the number of bytes of text that the valid targets of a batch stand for. A target whose id comes after the
/// end-of-document id begins a document.
int64_t text_bytes(const Batch& batch, const TokenBytes& bytes);

}  // namespace ashlar::data
