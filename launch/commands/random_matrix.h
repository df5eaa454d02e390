#pragma once

#include "core/backend/backend.h"
#include "core/tensor/tensor.h"

namespace ashlar::launch {

/// A matrix of random numbers in the backend's memory.
inline Tensor random_matrix(Backend& backend, Stream& stream, DType dtype, int64_t rows, int64_t cols,
                            uint64_t rng_stream) {
  const Tensor t = Tensor::allocate(backend.allocator(MemoryKind::kActivations), dtype, {rows, cols});
  backend.random_fill({.dst = t.mut_view(), .scale = 0.5, .seed = 1, .rng_stream = rng_stream, .global_cols = cols},
                      stream);
  return t;
}

}  // namespace ashlar::launch
