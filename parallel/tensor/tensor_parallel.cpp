#include "parallel/tensor/tensor_parallel.h"

namespace ashlar::tensor {

Slices slices_of(const model::ModelConfig& c, int64_t size, int64_t rank) {
  Slices s{.heads = nn::Extent::part(c.n_heads, size, rank),
           .ffn = nn::Extent::part(c.d_ff, size, rank),
           .vocab = nn::Extent::part(c.vocab_padded(), size, rank)};
  if (size <= c.n_kv_heads) {
    s.kv_heads = nn::Extent::part(c.n_kv_heads, size, rank);
    return s;
  }
  ASHLAR_CHECK(size % c.n_kv_heads == 0, size, " tensor ranks, ", c.n_kv_heads, " KV heads");
  const int64_t sharers = size / c.n_kv_heads;
  s.kv_heads = {.begin = rank / sharers, .size = 1, .global = c.n_kv_heads};
  s.kv_counted = rank % sharers == 0;
  s.kv_sum_axes = kSumKvGroup;
  return s;
}

}  // namespace ashlar::tensor
