#include "core/nn/parameter.h"

#include <algorithm>
#include <utility>

#include "core/nn/slab_parts.h"

namespace ashlar::nn {

std::string_view name_of(Role role) {
  switch (role) {
    case Role::kMatrix: return "matrix";
    case Role::kEmbedding: return "embedding";
    case Role::kPosition: return "position";
    case Role::kNorm: return "norm";
    case Role::kBias: return "bias";
  }
  throw Bug("[parameter] unknown role");
}

Extent Extent::part(int64_t n, int64_t parts, int64_t index) {
  ASHLAR_CHECK(parts > 0 && n % parts == 0 && index >= 0 && index < parts, "part ", index, " of ", parts, " of ", n);
  return {.begin = n / parts * index, .size = n / parts, .global = n};
}

Parameter& ParameterStore::add(std::string name, const Shape& shape, std::vector<Piece> pieces) {
  ASHLAR_CHECK(slab_size_ == 0, "parameters are added before they are arranged");
  for (const Piece& p : pieces) {
    ASHLAR_CHECK(p.vector() || p.cols == shape.cols(), p.name, " has ", p.cols, " columns, its storage ", shape.cols());
    const int64_t end = p.storage_row + (p.vector() ? p.cols : p.rows);
    ASHLAR_CHECK(end <= (p.vector() ? shape.cols() : shape.rows()), p.name, " ends at ", end, " of ", shape.str());
  }
  auto parameter = std::make_unique<Parameter>();
  parameter->name = std::move(name);
  parameter->shape = shape;
  parameter->pieces = std::move(pieces);
  parameters_.push_back(std::move(parameter));
  return *parameters_.back();
}

uint32_t Parameter::shared_vector_axes() const {
  const uint32_t axes = pieces.empty() ? 0 : pieces.front().sum_axes;
  const bool all =
      std::all_of(pieces.begin(), pieces.end(), [axes](const Piece& p) { return p.vector() && p.sum_axes == axes; });
  return all ? axes : 0;
}

void ParameterStore::arrange() {
  constexpr int64_t kAlign = 64;
  const auto rank = [](const std::unique_ptr<Parameter>& p) {
    const uint32_t axes = p->shared_vector_axes();
    return std::pair(axes == 0, axes);
  };
  std::stable_sort(parameters_.begin(), parameters_.end(),
                   [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  slab_size_ = 0;
  for (const auto& p : parameters_) {
    p->slab_offset = slab_size_;
    slab_size_ += (p->shape.size() + kAlign - 1) / kAlign * kAlign;
  }
}

void ParameterStore::allocate(const Ctx& ctx, bool training) {
  arrange();
  values_ = ctx.empty(ctx.dtype, {slab_size_}, MemoryKind::kParameters);
  ctx.backend.fill({.dst = values_.mut_view(), .value = 0}, ctx.stream);
  if (training) {
    grads_ = ctx.empty(ctx.accumulate(), {slab_size_}, MemoryKind::kGradients);
    ctx.backend.fill({.dst = grads_.mut_view(), .value = 0}, ctx.stream);
  }
  for (const auto& p : parameters_) {
    p->weight.value = values_.flat_range(p->slab_offset, p->shape.size()).reshape(p->shape);
    if (training) p->weight.main_grad = grads_.flat_range(p->slab_offset, p->shape.size()).reshape(p->shape);
    for (const Piece& piece : p->pieces) pieces_.push_back({p.get(), &piece, p->slab_begin(piece)});
  }
  std::sort(pieces_.begin(), pieces_.end(),
            [](const PieceRef& a, const PieceRef& b) { return a.piece->name < b.piece->name; });
  const auto twice = std::adjacent_find(pieces_.begin(), pieces_.end(), [](const PieceRef& a, const PieceRef& b) {
    return a.piece->name == b.piece->name;
  });
  ASHLAR_CHECK(twice == pieces_.end(), "two tensors are named ", twice->piece->name);
}

void ParameterStore::initialize(const Ctx& ctx, uint64_t seed, const Tensor& slab) const {
  ASHLAR_CHECK(slab.size() == slab_size_, "slab of ", slab.size(), ", expected ", slab_size_);
  nn::initialize(ctx, seed, piece_ranges(*this, SlabParts::whole(*this)), {.data = slab});
}

void ParameterStore::begin_step() {
  for (const auto& p : parameters_) p->weight.contributions = 0;
}

const ParameterStore::PieceRef* ParameterStore::find(std::string_view name) const {
  const auto at = std::lower_bound(pieces_.begin(), pieces_.end(), name,
                                   [](const PieceRef& ref, std::string_view n) { return ref.piece->name < n; });
  return at != pieces_.end() && at->piece->name == name ? &*at : nullptr;
}

Tensor ParameterStore::of(const Tensor& slab, const PieceRef& ref) {
  const Tensor flat = slab.flat_range(ref.slab_begin, ref.piece->size());
  return ref.piece->vector() ? flat : flat.reshape({ref.piece->rows, ref.piece->cols});
}

}  // namespace ashlar::nn
