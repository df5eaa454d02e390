#include "parallel/model/slices.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_join.h"

namespace ashlar::model {

namespace {

/// Returns the distinct numbers of KV heads in layers with and without full attention.
std::vector<int64_t> kv_heads_of_kinds(const ModelConfig& c) {
  const int64_t global = c.attn.global_n_kv_heads.value_or(c.n_kv_heads);
  return global == c.n_kv_heads ? std::vector<int64_t>{global} : std::vector<int64_t>{c.n_kv_heads, global};
}

/// Returns the number of ranks that hold the same KV head; 0 if `kv_heads` cannot be sharded over `tensor` ranks.
int64_t holders(int64_t kv_heads, int64_t tensor) {
  if (kv_heads % tensor == 0) return 1;
  return tensor % kv_heads == 0 ? tensor / kv_heads : 0;
}

}  // namespace

std::vector<int64_t> possible_tensor_sizes(const ModelConfig& c) {
  const std::vector<int64_t> kinds = kv_heads_of_kinds(c);
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= c.n_heads; ++size) {
    const bool fits = std::all_of(kinds.begin(), kinds.end(), [&](int64_t n) { return holders(n, size) > 0; });
    if (c.n_heads % size == 0 && fits) sizes.push_back(size);
  }
  return sizes;
}

std::vector<std::string> slicing_problems(const ModelConfig& c, int64_t size) {
  std::vector<std::string> found;
  const std::vector<int64_t> sizes = possible_tensor_sizes(c);
  if (std::find(sizes.begin(), sizes.end(), size) == sizes.end()) {
    const std::string also =
        kv_heads_of_kinds(c).size() < 2
            ? ""
            : str_cat(" (and likewise for attn.global_n_kv_heads = ", *c.attn.global_n_kv_heads, ")");
    found.push_back(str_cat("mesh.tensor = ", size, ": expected a divisor of model.n_heads = ", c.n_heads,
                            " that divides model.n_kv_heads = ", c.n_kv_heads, " or is a multiple of ", c.n_kv_heads,
                            also, "; choose from ", absl::StrJoin(sizes, ", ")));
  }
  const auto divides = [&](const char* key, int64_t width) {
    if (width % size == 0) return;
    found.push_back(str_cat("mesh.tensor = ", size, ": expected a divisor of ", key, " = ", width,
                            "; change mesh.tensor, or set ", key, " = ", (width + size - 1) / size * size));
  };
  if (c.moe.experts == 0 || c.moe.beside_ffn || c.expert_layers() < c.n_layers) divides("model.d_ff", c.d_ff);
  if (c.expert_layers() > 0) {
    if (c.moe.tensor == ExpertCut::kSlices) divides("moe.d_ff", c.moe.d_ff);
    if (c.moe.tensor == ExpertCut::kExperts && size > c.moe.experts) {
      found.push_back(str_cat("mesh.tensor = ", size, ": expected at most moe.experts = ", c.moe.experts,
                              " with moe.tensor = \"experts\"; lower mesh.tensor, or set moe.tensor = \"slices\""));
    }
    divides("moe.shared_d_ff", c.moe.shared_d_ff);
  }
  if (c.vocab_padded() % size != 0) {
    found.push_back(
        str_cat("mesh.tensor = ", size, ": expected a divisor of ", c.vocab_padded(),
                ", the rows of the padded vocabulary; set vocab.pad_to = ", std::lcm(c.vocab_pad_to, size)));
  }
  return found;
}

namespace {

Slices with_kv_heads(const ModelConfig& c, int64_t size, int64_t rank, int64_t n_kv_heads) {
  Slices s{.heads = nn::DimShard::part(c.n_heads, size, rank),
           .kv_heads = {},
           .vocab = nn::DimShard::part(c.vocab_padded(), size, rank)};
  if (size <= n_kv_heads) {
    s.kv_heads = nn::DimShard::part(n_kv_heads, size, rank);
    return s;
  }
  const int64_t ranks_per_head = holders(n_kv_heads, size);
  ASHLAR_CHECK(ranks_per_head > 0, n_kv_heads, " KV heads cannot be sharded over ", size, " ranks");
  s.kv_heads = {.begin = rank / ranks_per_head, .size = 1, .global = n_kv_heads};
  s.kv_axes = nn::replicated_and_summed_over(Axis::kTensor);
  s.kv_axes.sharded_over = Axis::kTensor;
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
