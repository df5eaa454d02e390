#include "launch/plan/kernel_bytes.h"

#include <algorithm>
#include <cmath>

namespace ashlar::plan {

namespace {

constexpr double kWide = 4;  // bytes of a number in fp32

}  // namespace

std::map<std::string, double> expert_bytes_of_a_token(const model::ModelConfig& c, double element) {
  const auto C = static_cast<double>(c.d_model), E = static_cast<double>(c.moe.experts);
  const auto k = static_cast<double>(c.moe.top_k);
  const double number = k * kSectorBytes, warps = std::ceil(C / 256);  // a sector for each choice; warps of a row
  std::map<std::string, double> bytes;
  // The router reads x in fp32, a copy in forward and one for the gradient of its weights; its dx is copied and added.
  bytes["copy"] = 3 * C * (element + kWide) + 3 * C * element;
  bytes["route_forward"] = kWide * E + 3 * std::min(number, kWide * E) + 2 * std::max(kSectorBytes, kWide * k);
  bytes["route_backward"] = 7 * kWide * E + 6 * number;
  bytes["router_partials"] = 4 * kWide * E + kWide * k + (2 * E + 2) * 8 / 32;
  bytes["dispatch_rows"] = k * 2 * C * element + number + k * 3 * C * element + 3 * number;
  bytes["combine_rows"] = 2 * (k + 1) * C * element + 3 * warps * number;
  return bytes;
}

std::map<std::string, double> block_bytes_of_a_token(const model::ModelConfig& c, double element) {
  const auto C = static_cast<double>(c.d_model), Q = static_cast<double>(c.q_width());
  const auto KV = static_cast<double>(c.kv_width()), F = static_cast<double>(c.d_ff);
  const auto H = static_cast<double>(c.n_heads), dims = static_cast<double>(c.rope.dims);
  const bool layer_norm = c.norm.variant.type == NormType::kLayerNorm;
  const bool serial = c.block.topology == model::Topology::kSerial;
  const double statistics = kSectorBytes * (layer_norm ? 2 : 1), joined = serial ? 1 : 0;
  const double norms = 1 + (serial || c.block.parallel_norms == 2 ? 1 : 0);
  std::map<std::string, double> bytes;
  // The first norm of a block makes the last sum of the block before, the second of a serial one the sum of its first.
  bytes["norm_forward"] = (norms - 1 - joined) * (2 * C * element + statistics);
  bytes["residual_norm_forward"] = (serial ? 2 * 4 : 5) * C * element + (1 + joined) * statistics;
  bytes["norm_backward"] = norms * (4 * C * element + 2 * statistics);
  if (c.rope.dims > 0) bytes["rope"] = 2 * (2 * (Q + KV) * element + dims * 4 * 2 + kSectorBytes);
  const bool experts = c.moe.experts > 0;
  const double hidden = experts ? static_cast<double>(c.moe.top_k * c.moe.d_ff) : F;  // of all networks of a token
  if (c.ffn.gated) bytes["activation_forward"] = 3 * hidden * element;
  bytes["activation_backward"] = (c.ffn.gated ? 5 : 3) * hidden * element;
  if (c.qk_norm.kind == model::QkNorm::kHead) {
    // Queries and keys in rows of a head each; values are copied beside them, and their gradient back.
    const auto heads = static_cast<double>(c.n_heads + c.n_kv_heads);
    bytes["norm_forward"] += 2 * (Q + KV) * element + heads * statistics;
    bytes["norm_backward"] += 3 * (Q + KV) * element + 2 * heads * statistics;
    bytes["copy"] += 4 * KV * element;
  }
  if (experts) {
    for (const auto& [kernel, of_experts] : expert_bytes_of_a_token(c, element)) bytes[kernel] += of_experts;
  }
  const double ffn_in = (c.ffn.gated ? 2 : 1) * F;
  const bool fused = !serial && c.block.parallel_norms == 1;  // one product in, with one bias
  const double biases_in = fused ? (c.bias.qkv || c.bias.ffn ? Q + 2 * KV + ffn_in : 0)
                                 : (c.bias.qkv ? Q + 2 * KV : 0) + (c.bias.ffn ? ffn_in : 0);
  const double biases_out = (c.bias.attn_out ? C : 0) + (c.bias.ffn ? C : 0);
  bytes["column_partials"] = (biases_in + biases_out) * element;
  bytes["attention_delta"] = 2 * Q * element + 4 * H;
  std::erase_if(bytes, [](const auto& kernel) { return kernel.second == 0; });
  return bytes;
}

}  // namespace ashlar::plan
