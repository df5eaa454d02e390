#include "launch/hf/upcycle.h"

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/io/convert.h"
#include "core/nn/flat_ranges.h"
#include "core/nn/init.h"
#include "kernels/make_backend.h"
#include "launch/config/run_config.h"
#include "parallel/comm/self_comm.h"
#include "parallel/model/stage.h"

namespace ashlar::hf {
namespace {

/// Returns an error for each key with which the sparse model would not compute what the dense one does.
std::vector<std::string> obstacles(const model::ModelConfig& dense, const model::ModelConfig& sparse) {
  const model::MoeConfig& m = sparse.moe;
  std::vector<std::string> errors;
  const auto add = [&](const auto&... parts) { errors.push_back(str_cat(parts...)); };
  constexpr std::string_view kNotOne = ", since the weights of a token's experts must sum to one; ";
  if (m.experts == 0) add("moe.experts: expected the number of experts, got none; e.g. moe.experts=8");
  if (m.experts == 0) return errors;
  if (m.d_ff != dense.d_ff)
    add("moe.d_ff = ", m.d_ff, ": expected model.d_ff = ", dense.d_ff,
        ", the width of the feed-forward network that becomes the experts; remove moe.d_ff");
  if (m.shared_d_ff > 0)
    add("moe.shared_d_ff = ", m.shared_d_ff,
        ": expected 0, since a shared expert would be added to what the dense model computes; remove moe.shared_d_ff");
  if (m.beside_ffn)
    add("moe.beside_ffn = true: expected false, since a network beside the experts would be added to what the dense "
        "model computes; remove moe.beside_ffn");
  if (m.scale_input)
    add("moe.scale_input = true: expected false, since a network of a scaled input is not the scaled network; remove "
        "moe.scale_input");
  if (!m.rule.renormalize && !(m.rule.score == RouterScore::kSoftmax && m.top_k == m.experts))
    add("moe.renormalize = false: expected true", kNotOne, "remove moe.renormalize");
  if (m.rule.scale != 1) add("moe.scale = ", m.rule.scale, ": expected 1", kNotOne, "remove moe.scale");
  // Both are guards against a sum of zero; a larger one would change the sum.
  if (m.rule.renormalize && m.rule.sum_floor > 1e-6)
    add("moe.sum_floor = ", m.rule.sum_floor, ": expected at most 1e-6", kNotOne, "remove moe.sum_floor");
  if (m.rule.renormalize && m.rule.sum_eps > 1e-15)
    add("moe.sum_eps = ", m.rule.sum_eps, ": expected at most 1e-15", kNotOne, "remove moe.sum_eps");
  return errors;
}

/// Returns the tensor of the dense model that becomes the tensor `name` of the sparse one: blocks.3.ffn.up.weight for
/// blocks.3.moe.experts.7.up.weight; the same name for a tensor outside the experts.
std::string dense_name(const std::string& name) {
  constexpr std::string_view kExperts = ".moe.experts.";
  const size_t at = name.find(kExperts);
  if (at == std::string::npos) return name;
  return str_cat(name.substr(0, at), ".ffn", name.substr(name.find('.', at + kExperts.size())));
}

/// Initial values of the tensors of a model that is not allocated.
class InitialValues {
 public:
  InitialValues(const model::ModelConfig& config, uint64_t seed)
      : seed_(seed), stage_(store_, config, model::StageRange::whole(config), {&alone_}) {
    for (const auto& parameter : store_.parameters())
      for (const nn::ShardedTensor& tensor : parameter->tensors) tensors_.push_back(&tensor);
    for (const auto& buffer : store_.buffers())
      if (buffer->use == nn::BufferUse::kModel) tensors_.push_back(&buffer->tensor);
  }
  /// In the order of the model.
  const std::vector<const nn::ShardedTensor*>& tensors() const { return tensors_; }

  void read(const io::TensorSpec& spec, std::span<std::byte> out) {
    const auto same = [&](const nn::ShardedTensor* tensor) { return tensor->name == spec.name; };
    const nn::ParameterStore::ShardedTensorRef ref{.tensor = *std::ranges::find_if(tensors_, same)};
    const bool wide = spec.dtype == io::FileDType::kF64;
    const Ctx ctx{.backend = *backend_, .stream = *stream_, .dtype = wide ? DType::kFloat64 : DType::kFloat32};
    const int64_t size = ref.tensor->size();
    const Tensor values = ctx.empty(ctx.dtype, {size}, MemoryKind::kWorkspace);
    const nn::ShardedRange range{.ref = &ref, .size = size};
    nn::initialize(ctx, seed_, std::span(&range, 1), {.data = values, .packed = true});
    std::vector<std::byte> host(static_cast<size_t>(values.size() * size_of(ctx.dtype)));
    backend_->read(values.view(), host.data(), *stream_);
    io::convert(wide ? io::FileDType::kF64 : io::FileDType::kF32, host, spec.dtype, out);
  }

 private:
  uint64_t seed_;
  std::unique_ptr<Backend> backend_ = kernels::make_backend();
  std::unique_ptr<Stream> stream_ = backend_->make_stream();
  comm::SelfComm alone_{"upcycle"};
  nn::ParameterStore store_;
  model::Stage stage_;
  std::vector<const nn::ShardedTensor*> tensors_;
};

}  // namespace

ModelSource upcycled(const ModelSource& dense, const model::ModelConfig& sparse, uint64_t seed) {
  if (dense.model.moe.experts > 0)
    throw input_error("upcycle", "expected a dense model, got one with moe.experts = ", dense.model.moe.experts,
                      "; give a model without experts");
  if (const std::vector<std::string> errors = obstacles(dense.model, sparse); !errors.empty())
    throw config::ConfigError(errors);
  std::map<std::string, const io::TensorSpec*> of_dense;
  for (const io::TensorSpec& tensor : dense.tensors) of_dense[tensor.name] = &tensor;
  const auto initial = std::make_shared<InitialValues>(sparse, seed);
  ModelSource made{.model = sparse, .tokenizer_json = dense.tokenizer_json, .metadata = dense.metadata};
  made.metadata.erase(kClassKey);  // a class of dense models
  made.metadata.erase(kSourceKey);
  for (const nn::ShardedTensor* tensor : initial->tensors()) {
    const auto found = of_dense.find(dense_name(tensor->name));
    const std::string layer = tensor->name.substr(0, tensor->name.find(".moe."));
    const bool is_new = tensor->name.find(".moe.router.") != std::string::npos ||
                        tensor->name.ends_with(".moe.expert_scale");  // factors of one
    ASHLAR_CHECK(found != of_dense.end() || is_new, tensor->name, " is neither of the dense model nor of a router");
    const io::TensorSpec& like = found != of_dense.end() ? *found->second : *of_dense.at(layer + ".ffn.up.weight");
    made.tensors.push_back({.name = tensor->name,
                            .dtype = like.dtype,
                            .shape = found != of_dense.end() ? like.shape : tensor->global_shape.dims()});
  }
  made.read = [initial, of_dense, read = dense.read](const io::TensorSpec& tensor, std::span<std::byte> out) {
    const auto found = of_dense.find(dense_name(tensor.name));
    return found != of_dense.end() ? read(*found->second, out) : initial->read(tensor, out);
  };
  return made;
}

}  // namespace ashlar::hf
