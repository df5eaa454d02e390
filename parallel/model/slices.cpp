#include "parallel/model/slices.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_join.h"
#include "parallel/tensor/tensor_parallel.h"

namespace ashlar::model {

namespace {

/// KV heads of the kinds of layers, each number once.
std::vector<int64_t> kv_heads_of_kinds(const ModelConfig& c) {
  const int64_t global = c.attn.global_n_kv_heads.value_or(c.n_kv_heads);
  return global == c.n_kv_heads ? std::vector<int64_t>{global} : std::vector<int64_t>{c.n_kv_heads, global};
}

/// How many ranks hold the same one of `kv_heads` heads; 0: they cannot be cut so.
int64_t holders(int64_t kv_heads, int64_t tensor) {
  if (kv_heads % tensor == 0) return 1;
  return tensor % kv_heads == 0 ? tensor / kv_heads : 0;
}

/// The holders of the kind of layer that shares its heads, or 1; 0: kinds cannot be cut so, or share differently.
int64_t common_holders(const ModelConfig& c, int64_t tensor) {
  int64_t shared = 1;
  for (const int64_t kv_heads : kv_heads_of_kinds(c)) {
    const int64_t n = holders(kv_heads, tensor);
    if (n == 0 || (n > 1 && shared > 1 && n != shared)) return 0;
    shared = std::max(shared, n);
  }
  return shared;
}

}  // namespace

std::vector<int64_t> possible_tensor_sizes(const ModelConfig& c) {
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= c.n_heads; ++size) {
    if (c.n_heads % size == 0 && common_holders(c, size) > 0) sizes.push_back(size);
  }
  return sizes;
}

int64_t kv_sharing_ranks(const ModelConfig& c, int64_t tensor) {
  const int64_t ranks = common_holders(c, tensor);
  ASHLAR_CHECK(ranks > 0, absl::StrJoin(kv_heads_of_kinds(c), " and "), " KV heads on ", tensor, " ranks");
  return ranks;
}

std::vector<std::string> slicing_problems(const ModelConfig& c, int64_t size) {
  std::vector<std::string> found;
  const std::vector<int64_t> sizes = possible_tensor_sizes(c);
  if (std::find(sizes.begin(), sizes.end(), size) == sizes.end()) {
    const std::string also =
        kv_heads_of_kinds(c).size() < 2
            ? ""
            : str_cat("; the same of attn.global_n_kv_heads = ", *c.attn.global_n_kv_heads,
                      ", and as many ranks to a KV head where both kinds of layers have fewer heads than ranks");
    found.push_back(str_cat("mesh.tensor = ", size, ": expected a size that divides model.n_heads = ", c.n_heads,
                            " and divides model.n_kv_heads = ", c.n_kv_heads, " or is a multiple of it", also,
                            "; choose from ", absl::StrJoin(sizes, ", ")));
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

namespace {

Slices with_kv_heads(const ModelConfig& c, int64_t size, int64_t rank, int64_t n_kv_heads) {
  Slices s{.heads = nn::Extent::part(c.n_heads, size, rank),
           .kv_heads = {},
           .ffn = nn::Extent::part(c.d_ff, size, rank),
           .vocab = nn::Extent::part(c.vocab_padded(), size, rank)};
  if (size <= n_kv_heads) {
    s.kv_heads = nn::Extent::part(n_kv_heads, size, rank);
    return s;
  }
  const int64_t sharers = holders(n_kv_heads, size);
  ASHLAR_CHECK(sharers > 0, n_kv_heads, " KV heads on ", size, " ranks");
  s.kv_heads = {.begin = rank / sharers, .size = 1, .global = n_kv_heads};
  s.kv_main_replica = rank % sharers == 0;
  s.kv_grad_partial_axes = tensor::kPartialKvGroup;
  return s;
}

}  // namespace

Slices slices_of(const ModelConfig& c, int64_t size, int64_t rank) {
  return with_kv_heads(c, size, rank, c.n_kv_heads);
}

Slices slices_of(const ModelConfig& c, int64_t size, int64_t rank, int64_t layer) {
  return with_kv_heads(c, size, rank, layer_heads(c, layer).n_kv_heads);
}

}  // namespace ashlar::model
