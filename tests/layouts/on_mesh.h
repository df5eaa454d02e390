#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/strings.h"
#include "kernels/make_backend.h"
#include "launch/training/engine.h"
#include "parallel/comm/host.h"
#include "tests/parallel/model_fixture.h"
#include "tests/support/ranks/ranks.h"

namespace ashlar::testing {

/// Element of a global tensor, given by a number that stands for its name.
using Element = double (*)(uint64_t name, int64_t row, int64_t col);

inline uint64_t number_of(std::string_view name) {
  uint64_t hash = 14695981039346656037ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

/// A number of its own for each element of each tensor, exact in fp32.
inline double element(uint64_t name, int64_t row, int64_t col) {
  uint64_t hash = (name + static_cast<uint64_t>(row)) * 0x9e3779b97f4a7c15ULL;
  hash = (hash ^ (hash >> 31)) + static_cast<uint64_t>(col);
  hash = (hash ^ (hash >> 29)) * 0xbf58476d1ce4e5b9ULL;
  return static_cast<double>(static_cast<int64_t>(hash >> 40) - (1 << 23)) * 0x1p-20;
}

/// Elements [first, first + size) of a tensor of NAME + suffix.
inline std::vector<double> part_of(Element element_of, std::string_view suffix, const nn::ShardedTensor& tensor,
                                   int64_t first, int64_t size) {
  const uint64_t name = number_of(str_cat(tensor.name, suffix));
  std::vector<double> part;
  for (int64_t i = first; i < first + size; ++i)
    part.push_back(element_of(name, tensor.global_row + i / tensor.cols, tensor.global_col + i % tensor.cols));
  return part;
}

inline void upload(const Ctx& ctx, const std::vector<double>& values, const Tensor& to) {
  const std::vector<float> narrow(values.begin(), values.end());
  std::vector<BF16> half;
  for (const float x : narrow) half.emplace_back(x);
  const void* const from = to.dtype() == DType::kFloat64   ? static_cast<const void*>(values.data())
                           : to.dtype() == DType::kFloat32 ? static_cast<const void*>(narrow.data())
                                                           : half.data();
  ctx.backend.write(from, to.mut_view(), ctx.stream);
}

struct OnMeshOptions {
  bool interleaved = false;
  optim::OptimizerOptions optimizer;
  std::optional<optim::ShardUnit> shard_unit;
  std::function<void(nn::LayerMetrics&)> declare_sums;
  std::function<void(const Ctx&, int64_t, const Tensor&)> after_block;
};

/// A mesh on the first ranks of the world; the others make further ones of the same kind, each with an own number.
struct OnMesh {
  OnMesh(const mesh::MeshShape& shape, const model::ModelConfig& config, DType dtype, const OnMeshOptions& options)
      : number(bootstrap().world().rank() / static_cast<int>(shape.ranks())),
        group(bootstrap().world().split({.color = number, .name = "mesh"})),
        mesh(*group, shape),
        engine(
            *backend, *stream, mesh,
            {.model = config,
             .dtype = dtype,
             .optimizer = options.optimizer,
             .seed = 7,
             .sequence_length = 16,

             .schedule = pipeline::PipelineSchedule::kInterleaved,
             .virtual_stages =
                 options.interleaved && 1 < shape[Axis::kPipeline] && 2 * shape[Axis::kPipeline] <= config.n_layers ? 2
                                                                                                                    : 1,
             .bucket_elems = 700,
             .shard_unit = options.shard_unit,
             .declare_sums = options.declare_sums,
             .after_block = options.after_block}) {}

  /// Gives weights, moments and buffers these elements.
  void fill(Element element_of) {
    for (const auto& [buffer, suffix] : buffers()) {
      for (const nn::ShardedRange& range : engine.optimizer()->ranges())
        upload(engine.ctx(), part_of(element_of, suffix, *range.ref->tensor, range.first, range.size),
               buffer.of(range));
    }
    for (const auto& buffer : engine.store().buffers())
      upload(engine.ctx(), part_of(element_of, "", buffer->tensor, 0, buffer->tensor.size()), buffer->values);
    engine.optimizer()->copy_master_to_params(engine.ctx());
    engine.start_param_sync();
    engine.wait_param_sync();
  }
  void expect(Element element_of) {
    for (const auto& [buffer, suffix] : buffers()) {
      for (const nn::ShardedRange& range : engine.optimizer()->ranges()) {
        EXPECT_EQ(host_values(engine.ctx(), buffer.of(range)),
                  part_of(element_of, suffix, *range.ref->tensor, range.first, range.size))
            << range.ref->tensor->name << suffix;
      }
    }
    for (const auto& buffer : engine.store().buffers()) {
      EXPECT_EQ(host_values(engine.ctx(), buffer->values),
                part_of(element_of, "", buffer->tensor, 0, buffer->tensor.size()))
          << buffer->tensor.name;
    }
    for (const auto& ref : engine.store().sharded_tensors()) {
      std::vector<double> values = part_of(element_of, "", *ref.tensor, 0, ref.tensor->size());
      if (engine.store().values().dtype() == DType::kBFloat16) {
        for (double& x : values) x = static_cast<float>(BF16(static_cast<float>(x)));
      }
      EXPECT_EQ(host_values(engine.ctx(), nn::ParameterStore::of(engine.store().values(), ref)), values)
          << ref.tensor->name;
    }
  }
  /// Of the model, as its ranks own it.
  int64_t num_elements() {
    int64_t held = 0;
    for (const auto& range : engine.optimizer()->ranges()) held += range.ref->tensor->main_replica ? range.size : 0;
    return comm::sum_of(mesh.control(), held);
  }

  std::vector<std::pair<nn::FlatTensor, std::string>> buffers() {
    const optim::Optimizer& optimizer = *engine.optimizer();
    std::vector<std::pair<nn::FlatTensor, std::string>> all = {{optimizer.master(), ""}};
    for (const auto& [name, tensor] : optimizer.state()) all.emplace_back(tensor, str_cat(".", name.suffix));
    return all;
  }

  const int number;
  const std::unique_ptr<comm::Communicator> group;
  mesh::Mesh mesh;
  const std::unique_ptr<Backend> backend = kernels::make_backend({.threads = 1});
  const std::unique_ptr<Stream> stream = backend->make_stream();
  training::Engine engine;
};

}  // namespace ashlar::testing
