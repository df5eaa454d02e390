#include "launch/plan/rank_work.h"

#include <algorithm>

#include "launch/plan/kernel_bytes.h"
#include "parallel/model/flops.h"
#include "parallel/model/parameter_count.h"

namespace ashlar::plan {

namespace {

/// The model as one rank sees it: its heads and its columns of the feed-forward networks, at the full d_model.
model::ModelConfig slice_of(const config::RunConfig& run) {
  model::ModelConfig c = run.model;
  const int64_t t = run.mesh.tensor;
  const auto divide = [t](int64_t& size) { size = std::max<int64_t>(size / t, size > 0 ? 1 : 0); };
  divide(c.n_heads);
  divide(c.n_kv_heads);
  divide(c.d_ff);
  divide(c.moe.shared_d_ff);
  if (c.attn.global_n_kv_heads) divide(*c.attn.global_n_kv_heads);
  if (c.moe.tensor == model::ExpertCut::kSlices) divide(c.moe.d_ff);
  return c;
}

/// Bytes of a layer's kernels for a token, forward and backward. Kernels on rows between the layers (norms, residual
/// adds) are divided over the tensor ranks if these share the rows.
void add_bytes(const config::RunConfig& run, model::ModelConfig slice, bool experts, LayerWork& work) {
  if (!experts) slice.moe.experts = 0;
  const double shared = run.mesh.sequence_parallel ? static_cast<double>(run.mesh.tensor) : 1;
  const auto element = static_cast<double>(size_of(run.run.dtype));
  for (const auto& [kernel, bytes] : block_bytes_of_a_token(slice, element)) {
    const bool between = kernel.find("norm") != std::string::npos || kernel == "residual_forward";
    const double own = between ? bytes / shared : bytes;
    const bool backward = kernel.find("backward") != std::string::npos || kernel == "column_partials" ||
                          kernel == "attention_delta" || kernel == "router_partials";
    const bool both = kernel == "rope" || kernel == "copy" || kernel == "dispatch_rows" || kernel == "combine_rows";
    work.forward_bytes += backward ? 0 : both ? own / 2 : own;
    work.backward_bytes += backward ? own : both ? own / 2 : 0;
    if (kernel == "activation_forward" || kernel == "norm_forward") work.recomputed_bytes += own;
  }
}

/// The two products of a feed-forward network with `elements` elements in its matrices.
void add_network(double C, double elements, bool gated, double rows, double rows_of_matrix,
                 std::vector<Product>& products) {
  if (elements <= 0) return;
  const double width = elements / C / (gated ? 3 : 2);
  products.push_back({.k = C, .m = width * (gated ? 2 : 1), .rows = rows, .rows_of_matrix = rows_of_matrix});
  products.push_back({.k = width, .m = C, .rows = rows, .rows_of_matrix = rows_of_matrix});
}

double elements_of(const std::vector<Product>& products) {
  double elements = 0;
  for (const Product& p : products) elements += p.k * p.m;
  return elements;
}

}  // namespace

LayerWork layer_work(const config::RunConfig& run, int64_t layer) {
  const model::ModelConfig& c = run.model;
  const model::ModelConfig slice = slice_of(run);
  const auto C = static_cast<double>(c.d_model), tensor = static_cast<double>(run.mesh.tensor);
  const bool experts = c.has_experts(layer);
  const model::LayerHeads heads = model::layer_heads(slice, layer);
  LayerWork work{.head_dim = heads.head_dim};

  // 1. attention: one product in, one out
  const auto matrices = static_cast<double>(model::attention_matrices(slice, layer));
  const auto values = static_cast<double>(slice.n_heads * heads.v_head_dim);
  work.products = {{.k = C, .m = (matrices - values * C) / C}, {.k = values, .m = C}};
  const double all = model::attention_flops_of_layers(c, run.train.sequence_length)[static_cast<size_t>(layer)];
  work.attention_flops = all / 3 / tensor;

  // 2. the feed-forward network, joined with attention's first product in a parallel block of one norm
  const model::FfnMatrices ffn = model::ffn_matrices(slice, layer);
  add_network(C, static_cast<double>(ffn.dense), c.ffn.gated, 1, 1, work.products);
  const bool serial = c.block.topology == model::Topology::kSerial;
  if (!serial && c.block.parallel_norms == 1 && ffn.dense > 0) {
    work.products[0].m += work.products[2].m;
    work.products.erase(work.products.begin() + 2);
  }
  work.tensor_exchanges = run.mesh.tensor == 1 ? 0 : serial ? 2 : 1;

  // 3. experts, of which this rank holds a part, for rows of all ranks that share them
  work.parameters = elements_of(work.products);
  if (experts) {
    const double cut = c.moe.tensor == model::ExpertCut::kExperts ? tensor : 1;
    const double held = static_cast<double>(c.moe.experts) / static_cast<double>(run.mesh.expert) / cut;
    const auto rows = static_cast<double>(c.moe.top_k) / cut;
    add_network(C, static_cast<double>(ffn.experts) / static_cast<double>(c.moe.experts), c.ffn.gated, rows,
                1 / std::max(held, 1.0), work.products);
    work.products.push_back({.k = C, .m = static_cast<double>(c.moe.experts)});
    work.expert_parameters = static_cast<double>(ffn.experts) / static_cast<double>(run.mesh.expert) / cut;
    work.parameters += static_cast<double>(ffn.router);
    const auto ranks = static_cast<double>(run.mesh.expert);
    work.expert_rows = static_cast<double>(c.moe.top_k) * (ranks - 1) / ranks;
  }
  add_bytes(run, slice, experts, work);
  return work;
}

EndWork embedding_work(const config::RunConfig& run) {
  const model::ModelConfig& c = run.model;
  const auto E = static_cast<double>(c.table_width()), C = static_cast<double>(c.d_model);
  const auto element = static_cast<double>(size_of(run.run.dtype));
  EndWork work{.forward_bytes = 2 * E * element,
               .backward_bytes = E * (element + 8),  // rows of gradients are added to the main gradient
               .parameters = static_cast<double>(c.vocab_padded()) * E / static_cast<double>(run.mesh.tensor)};
  if (c.embed_dim) work.products.push_back({.k = E, .m = C});
  if (c.pos.type == model::PosType::kLearned) work.forward_bytes += 2 * C * element;
  return work;
}

EndWork head_work(const config::RunConfig& run) {
  const model::ModelConfig& c = run.model;
  const auto E = static_cast<double>(c.table_width()), C = static_cast<double>(c.d_model);
  const double V = static_cast<double>(c.vocab_padded()) / static_cast<double>(run.mesh.tensor);
  const auto element = static_cast<double>(size_of(run.run.dtype));
  EndWork work{.products = {{.k = E, .m = V}},
               .forward_bytes = 3 * V * element + 3 * C * element,  // two reads of the logits, one write; the norm
               .backward_bytes = 4 * C * element,
               .parameters = V * E};
  if (c.embed_dim) work.products.push_back({.k = C, .m = E});
  return work;
}

}  // namespace ashlar::plan
