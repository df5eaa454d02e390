#include "parallel/model/branch.h"

#include "parallel/model/attention.h"
#include "parallel/model/experts.h"
#include "parallel/model/experts_beside_ffn.h"
#include "parallel/model/feed_forward.h"
#include "parallel/model/latent_attention.h"

namespace ashlar::model {

Var Branch::forward_from(const Ctx&, std::span<Var>, const Rows&) const {
  throw Bug(str_cat("[", name(), "] this branch does not support forward_from"));
}

void Branch::add_to_cache(const Ctx&, KvCache&) const {}

std::array<std::unique_ptr<Branch>, 2> make_branches(const ModelConfig& config, int64_t layer,
                                                     const tensor::TensorParallel& tp) {
  std::unique_ptr<Branch> attention;
  if (config.attn.kind == AttentionKind::kMla) {
    attention = std::make_unique<LatentAttention>(config, layer, tp);
  } else {
    attention = std::make_unique<Attention>(config, layer, tp);
  }
  if (config.has_experts(layer) && config.moe.beside_ffn)
    return {std::move(attention), std::make_unique<ExpertsBesideFfn>(config, layer, tp)};
  if (config.has_experts(layer)) return {std::move(attention), std::make_unique<Experts>(config, layer, tp)};
  return {std::move(attention),
          std::make_unique<FeedForward>(config, tp, FeedForward::Place{.layer = layer, .d_ff = config.d_ff})};
}

}  // namespace ashlar::model
