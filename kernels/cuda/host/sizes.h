#pragma once

#include <algorithm>
#include <cstdint>

/// Sizes that the CUDA backend chooses, for the backend and for dry runs without a GPU.
namespace ashlar::cuda {

/// Maximum workspace of matrix products per stream: the default of cuBLAS on sm_90.
inline constexpr int64_t kGemmWorkspaceBytes = int64_t{32} << 20;

/// Backend::loss_chunk_rows for N rows of logits of `row_bytes` bytes. A chunk has about as many rows as fit into 1 GiB
/// of logits. With so many rows, reading and writing the weight gradient [V, C] once per chunk is cheap compared with
/// the matrix products.
inline int64_t loss_chunk_rows(int64_t N, int64_t row_bytes) {
  const int64_t rows = (int64_t{1} << 30) / row_bytes;
  return std::clamp<int64_t>(rows / 64 * 64, std::min<int64_t>(N, 64), N);
}

}  // namespace ashlar::cuda
