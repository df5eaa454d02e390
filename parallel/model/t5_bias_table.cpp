#include "parallel/model/t5_bias_table.h"

#include "parallel/model/init.h"

namespace ashlar::model {

nn::Parameter* t5_bias_table(nn::ParameterStore& store, const ModelConfig& config, nn::ShardedTensor tensor,
                             const nn::DimShard& heads) {
  for (const auto& parameter : store.parameters())
    if (parameter->name == tensor.name) return parameter.get();
  const int64_t buckets = config.pos.t5_num_buckets;
  tensor.role = nn::Role::kPosition;
  tensor.global_shape = {buckets, heads.global};
  tensor.global_col = heads.begin;
  tensor.rows = buckets;
  tensor.cols = heads.size;
  tensor.init = t5_bias_init(config);
  tensor.axes.sharded_over = Axis::kTensor;
  return &store.add(tensor.name, {buckets, heads.size}, {tensor});
}

}  // namespace ashlar::model
