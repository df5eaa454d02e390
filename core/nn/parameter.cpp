#include "core/nn/parameter.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/nn/flat_ranges.h"
#include "core/nn/init.h"

namespace ashlar::nn {

namespace {

std::string_view name_of_tensor(const ParameterStore::ShardedTensorRef& ref) { return ref.tensor->name; }

}  // namespace

DimShard DimShard::part(int64_t n, int64_t parts, int64_t index) {
  ASHLAR_CHECK(parts > 0 && n % parts == 0 && index >= 0 && index < parts, "part ", index, " of ", parts, " of ", n);
  return {.begin = n / parts * index, .size = n / parts, .global = n};
}

Parameter& ParameterStore::add(std::string name, const Shape& shape, std::vector<ShardedTensor> tensors) {
  ASHLAR_CHECK(flat_size_ == 0, "expected parameters to be added before arrange()");
  for (const ShardedTensor& p : tensors) {
    ASHLAR_CHECK(p.vector() || p.cols == shape.cols(), p.name, " has ", p.cols, " columns, its storage ", shape.cols());
    const int64_t end = p.storage_row + (p.vector() ? p.cols : p.rows);
    ASHLAR_CHECK(p.size() == p.global_shape.size() || !p.axes.sharded_over.empty(), p.name, " holds ", p.size(), " of ",
                 p.global_shape.size(), " elements, expected an axis in sharded_over");
    ASHLAR_CHECK(end <= (p.vector() ? shape.cols() : shape.rows()), p.name, " ends at ", end, " of ", shape.str());
  }
  auto parameter = std::make_unique<Parameter>();
  parameter->name = std::move(name);
  parameter->shape = shape;
  parameter->tensors = std::move(tensors);
  for (const ShardedTensor& p : parameter->tensors) {
    const bool partial = p.axes.grad_summed_over.has(Axis::kTensor) && !p.axes.sharded_over.has(Axis::kTensor);
    parameter->weight.grad_partial = parameter->weight.grad_partial || partial;
  }
  parameters_.push_back(std::move(parameter));
  return *parameters_.back();
}

Buffer& ParameterStore::add_buffer(std::string name, const Shape& shape, BufferUse use) {
  ASHLAR_CHECK(!buffer_values_, "expected buffers to be added before allocate()");
  const int64_t rows = shape.rank() == 1 ? 1 : shape.rows();
  buffers_.push_back(std::make_unique<Buffer>(Buffer{.tensor = {.name = std::move(name),
                                                                .role = Role::kBias,
                                                                .global_shape = shape,
                                                                .rows = rows,
                                                                .cols = shape.cols(),
                                                                .init = {.rule = "0"},
                                                                .axes = replicated_over(Axis::kTensor)},
                                                     .use = use,
                                                     .values = {},
                                                     .flat_begin = buffer_size_}));
  buffer_size_ += shape.size();
  return *buffers_.back();
}

AxisSet Parameter::replica_axes() const {
  const AxisSet axes = tensors.empty() ? kReplicaAxes : tensors.front().axes.replicated_over & kReplicaAxes;
  for (const ShardedTensor& p : tensors) {
    const AxisSet replicated = p.axes.replicated_over, summed = p.axes.grad_summed_over;
    ASHLAR_CHECK((replicated & kReplicaAxes) == axes && (summed & kReplicaAxes) == axes, p.name, " is replicated over ",
                 text_of(replicated), " and its gradient summed over ", text_of(summed),
                 ", but shares its storage with a tensor replicated over ", text_of(axes));
  }
  return axes;
}

std::optional<SharedVectors> Parameter::shared_vectors() const {
  const auto shares = [](const ShardedTensor& p) {
    return SharedVectors{.summed_over = p.axes.summed_in_replica(), .sharded_over = p.axes.sharded_over};
  };
  if (tensors.empty() || shares(tensors.front()).summed_over.empty()) return std::nullopt;
  const bool alike = std::all_of(tensors.begin(), tensors.end(), [&](const ShardedTensor& p) {
    return p.vector() && shares(p) == shares(tensors.front());
  });
  return alike ? std::optional(shares(tensors.front())) : std::nullopt;
}

void ParameterStore::arrange() {
  constexpr int64_t kAlign = 64;
  const auto rank = [](const std::unique_ptr<Parameter>& p) {
    const std::optional<SharedVectors> shared = p->shared_vectors();
    return std::tuple(p->replica_axes(), !shared, shared.value_or(SharedVectors{}));
  };
  std::stable_sort(parameters_.begin(), parameters_.end(),
                   [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  flat_size_ = 0;
  for (const auto& p : parameters_) {
    p->flat_offset = flat_size_;
    flat_size_ += (p->shape.size() + kAlign - 1) / kAlign * kAlign;
  }
}

void ParameterStore::allocate(const Ctx& ctx, bool training) {
  arrange();
  values_ = ctx.empty(ctx.dtype, {flat_size_}, MemoryKind::kParameters);
  ctx.backend.fill({.dst = values_.mut_view(), .value = 0}, ctx.stream);
  if (training) {
    grads_ = ctx.empty(ctx.accumulate(), {flat_size_}, MemoryKind::kGradients);
    ctx.backend.fill({.dst = grads_.mut_view(), .value = 0}, ctx.stream);
    sums_.allocate(ctx);
    expert_counts_.allocate(ctx);
  }
  allocate_buffers(ctx, training);
  for (const auto& p : parameters_) {
    const auto of = [&](const Tensor& buffer) {
      return buffer.flat_range(p->flat_offset, p->shape.size()).reshape(p->shape);
    };
    p->weight.set_memory(of(values_), training ? of(grads_) : Tensor());
    for (const ShardedTensor& tensor : p->tensors)
      sharded_tensors_.push_back({p.get(), &tensor, p->flat_begin(tensor)});
  }
  std::ranges::sort(sharded_tensors_, {}, name_of_tensor);
  const auto twice = std::ranges::adjacent_find(sharded_tensors_, {}, name_of_tensor);
  ASHLAR_CHECK(twice == sharded_tensors_.end(), "two tensors are named ", twice->tensor->name);
}

void ParameterStore::allocate_buffers(const Ctx& ctx, bool training) {
  if (buffers_.empty()) return;
  buffer_values_ = ctx.empty(ctx.accumulate(), {buffer_size_}, MemoryKind::kParameters);
  ctx.backend.fill({.dst = buffer_values_.mut_view(), .value = 0}, ctx.stream);
  for (const auto& buffer : buffers_) {
    if (buffer->use == BufferUse::kTraining && !training) continue;
    const Shape& shape = buffer->tensor.global_shape;
    buffer->values = buffer_values_.flat_range(buffer->flat_begin, shape.size()).reshape(shape);
    buffer_tensors_[static_cast<size_t>(buffer->use)].push_back({nullptr, &buffer->tensor, buffer->flat_begin});
  }
  for (auto& tensors : buffer_tensors_) std::ranges::sort(tensors, {}, name_of_tensor);
}

void ParameterStore::initialize(const Ctx& ctx, uint64_t seed, const Tensor& buffer) const {
  ASHLAR_CHECK(buffer.size() == flat_size_, "flat buffer of ", buffer.size(), ", expected ", flat_size_);
  nn::initialize(ctx, seed, sharded_ranges(*this, FlatRanges::whole(*this)), {.data = buffer});
}

void ParameterStore::begin_step() {
  for (const auto& p : parameters_) p->weight.contributions = 0;
}

const ParameterStore::ShardedTensorRef* ParameterStore::find(std::string_view name) const {
  const auto at = std::ranges::lower_bound(sharded_tensors_, name, {}, name_of_tensor);
  return at != sharded_tensors_.end() && at->tensor->name == name ? &*at : nullptr;
}

Tensor ParameterStore::of(const Tensor& buffer, const ShardedTensorRef& ref) {
  const Tensor flat = buffer.flat_range(ref.flat_begin, ref.tensor->size());
  return ref.tensor->vector() ? flat : flat.reshape({ref.tensor->rows, ref.tensor->cols});
}

}  // namespace ashlar::nn
