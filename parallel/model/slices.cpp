#include "parallel/model/slices.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_join.h"
#include "parallel/tensor/tensor_parallel.h"

namespace ashlar::model {

std::vector<int64_t> possible_tensor_sizes(const ModelConfig& c) {
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= c.n_heads; ++size) {
    if (c.n_heads % size == 0 && (c.n_kv_heads % size == 0 || size % c.n_kv_heads == 0)) sizes.push_back(size);
  }
  return sizes;
}

int64_t kv_sharing_ranks(const ModelConfig& c, int64_t tensor) {
  ASHLAR_CHECK(c.n_kv_heads % tensor == 0 || tensor % c.n_kv_heads == 0, c.n_kv_heads, " KV heads on ", tensor,
               " ranks");
  return std::max<int64_t>(1, tensor / c.n_kv_heads);
}

std::vector<std::string> slicing_problems(const ModelConfig& c, int64_t size) {
  std::vector<std::string> found;
  const std::vector<int64_t> sizes = possible_tensor_sizes(c);
  if (std::find(sizes.begin(), sizes.end(), size) == sizes.end()) {
    found.push_back(str_cat("mesh.tensor = ", size, ": expected a size that divides model.n_heads = ", c.n_heads,
                            " and divides model.n_kv_heads = ", c.n_kv_heads, " or is a multiple of it; choose from ",
                            absl::StrJoin(sizes, ", ")));
  }
  if (c.d_ff % size != 0) {
    found.push_back(str_cat("mesh.tensor = ", size, ": expected a size that divides model.d_ff = ", c.d_ff,
                            "; choose another, or model.d_ff = ", (c.d_ff + size - 1) / size * size));
  }
  if (c.vocab_padded() % size != 0) {
    found.push_back(str_cat("mesh.tensor = ", size, ": expected a size that divides the padded vocabulary of ",
                            c.vocab_padded(), " rows; set vocab.pad_to = ", std::lcm(c.vocab_pad_to, size)));
  }
  return found;
}

Slices slices_of(const ModelConfig& c, int64_t size, int64_t rank) {
  Slices s{.heads = nn::Extent::part(c.n_heads, size, rank),
           .kv_heads = {},
           .ffn = nn::Extent::part(c.d_ff, size, rank),
           .vocab = nn::Extent::part(c.vocab_padded(), size, rank)};
  if (size <= c.n_kv_heads) {
    s.kv_heads = nn::Extent::part(c.n_kv_heads, size, rank);
    return s;
  }
  const int64_t sharers = kv_sharing_ranks(c, size);
  s.kv_heads = {.begin = rank / sharers, .size = 1, .global = c.n_kv_heads};
  s.kv_main_replica = rank % sharers == 0;
  s.kv_grad_partial_axes = tensor::kPartialKvGroup;
  return s;
}

}  // namespace ashlar::model
