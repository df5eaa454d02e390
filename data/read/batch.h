#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ashlar::data {

/// The value of a target that is ignored (PyTorch: ignore_index): after the end of a document under document masking,
/// or beyond the end of the validation part. The loss skips it, and `valid_targets` does not count it.
inline constexpr int32_t kIgnoreIndex = -1;

/// One micro-batch on the host: B rows (samples) of T tokens, N = B*T flattened row by row.
/// Row b is the global sample `first_sample + b` of the run on any mesh. Dropout uses this number as its key.
struct Batch {
  int64_t B = 0;
  int64_t T = 0;
  std::vector<int32_t> ids;        ///< [B*T] in [0, vocab_size)
  std::vector<int32_t> targets;    ///< [B*T] the token that follows, or kIgnoreIndex
  std::vector<int32_t> doc_start;  ///< [B*T] index t in its row where the row's document begins; empty without masking
  std::vector<int32_t> positions;  ///< [B*T] t, or t - (start of the document in this row) when positions restart
  std::vector<int32_t> order;      ///< [B*T] flattened row numbers sorted by id, equal ids in ascending row order
  int64_t first_sample = 0;        ///< global index of row 0
  int64_t valid_targets = 0;       ///< targets that are not kIgnoreIndex
};

/// Treatment of document boundaries (a document ends with the end-of-document id).
struct DocumentRule {
  bool mask = false;               ///< no attention across documents: fills doc_start, ignores targets after an end
  bool restart_positions = false;  ///< positions count from the start of the document within the row
};

/// Writes row b of `batch` (already sized by `resize_batch`) from `tokens`, which are T+1 tokens, or fewer at the end
/// of a part. With n <= T tokens the targets from the n-th on are ignored, and the ids after the n-th are `eod` (no
/// valid target depends on them). Adds to valid_targets.
void fill_row(Batch& batch, int64_t b, std::span<const int32_t> tokens, int32_t eod, const DocumentRule& rule);

/// Sets the shapes to B rows of T tokens and valid_targets to 0. Keeps the capacity, so that a ring of batches does not
/// reallocate.
void resize_batch(Batch& batch, int64_t B, int64_t T, const DocumentRule& rule);

/// Fills `batch.order` by a stable counting sort of ids; `counts` is scratch, resized to vocab_size + 1.
/// An id outside [0, vocab_size) is a Bug: readers check ids when they load a chunk.
void fill_order(Batch& batch, int32_t vocab_size, std::vector<int32_t>& counts);

}  // namespace ashlar::data
