#include "parallel/model/linear_layer.h"

#include "parallel/model/init.h"
#include "parallel/tensor/tensor_parallel.h"

namespace ashlar::model {

LinearLayer::LinearLayer(nn::ParameterStore& store, std::string name, const nn::DimShard& cols,
                         const std::vector<LinearPart>& parts) {
  std::vector<nn::ShardedTensor> weights, biases;
  int64_t rows = 0;
  for (const LinearPart& part : parts) {
    nn::TensorAxes axes = part.axes;
    if (cols.size < cols.global) axes.sharded_over = axes.sharded_over | Axis::kTensor;
    weights.push_back({.name = part.name + ".weight",
                       .role = part.role,
                       .global_shape = {part.rows.global, cols.global},
                       .global_row = part.rows.begin,
                       .global_col = cols.begin,
                       .rows = part.rows.size,
                       .cols = cols.size,
                       .storage_row = rows,
                       .init = part.init,
                       .axes = axes});
    if (part.bias) {
      biases.push_back({.name = part.name + ".bias",
                        .role = nn::Role::kBias,
                        .global_shape = Shape{part.rows.global},
                        .global_col = part.rows.begin,
                        .rows = 1,
                        .cols = part.rows.size,
                        .storage_row = rows,
                        .init = {.rule = "0"},
                        .axes = part.axes});
    }
    rows += part.rows.size;
  }
  weight_ = &store.add(name + ".weight", {rows, cols.size}, std::move(weights));
  if (!biases.empty()) bias_ = &store.add(name + ".bias", Shape{rows}, std::move(biases));
}

std::vector<const nn::Parameter*> LinearLayer::parameters() const {
  if (bias_ == nullptr) return {weight_};
  return {weight_, bias_};
}

LinearLayer input_product(nn::ParameterStore& store, const ModelConfig& config, std::string name,
                          const std::vector<LinearPart>& parts, int64_t tensor_ranks) {
  LinearLayer layer(store, std::move(name), nn::DimShard::whole(config.d_model), parts);
  for (const nn::Parameter* parameter : layer.parameters()) {
    for (const nn::ShardedTensor& t : parameter->tensors) {
      const int64_t held = t.vector() ? t.cols : t.rows;
      const bool shared = held * tensor_ranks > t.global_shape[0];
      if (shared == (t.axes.replicated_over.has(Axis::kTensor) && t.axes.grad_summed_over.has(Axis::kTensor))) continue;
      throw Bug(str_cat("[input_product] ", t.name, ": each of ", tensor_ranks, " tensor ranks holds ", held, " of ",
                        t.global_shape[0], " rows, so expected its gradient ", shared ? "" : "not ",
                        "to be summed over the tensor ranks; got a sum over ", text_of(t.axes.grad_summed_over)));
    }
  }
  return layer;
}

LinearPart residual_part(const ModelConfig& config, const ResidualOutput& output) {
  const nn::DimShard rows = nn::DimShard::whole(config.d_model);
  return {
      .name = output.name,
      .rows = rows,
      .bias = output.bias && output.tensor_rank == 0,
      .init = matrix_init(config, {.out = rows.global, .in = output.cols.global, .residual_of_layer = output.layer}),
      .axes = {},
      .role = output.role};
}

LinearLayer residual_output(nn::ParameterStore& store, const ModelConfig& config, const ResidualOutput& output) {
  return LinearLayer(store, output.name, output.cols, {residual_part(config, output)});
}

uint32_t dropout_rng_stream(int64_t layer, std::string_view where) {
  return static_cast<uint32_t>(hash64(str_cat("blocks.", layer, ".dropout.", where)));
}

}  // namespace ashlar::model
