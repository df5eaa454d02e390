#pragma once

#include <vector>

#include "core/backend/backend.h"
#include "core/base/enum_names.h"
#include "core/tensor/tensor.h"

namespace ashlar {

class Tape;

/// The values that backward recomputes instead of storing them: none, the outputs of norms and activations, or all of a
/// block.
enum class Recompute : uint8_t { kNone, kSelective, kBlock };
constexpr auto names_of(Recompute) { return enum_names<Recompute>("none", "selective", "block"); }

/// State of dropout that all dropout operations share; each has its own p.
struct DropoutState {
  bool enabled = false;  ///< false in evaluation and generation
  uint64_t seed = 0;
  int64_t first_sample = 0;
  int64_t sequence_length = 0;
  int64_t row0 = 0;  ///< first row of the micro-batch held here, for rows sharded over ranks
};

/// The first argument of every operation. Copied freely; owns nothing.
struct Ctx {
  Backend& backend;
  Stream& stream;
  Tape* tape = nullptr;  ///< null: inference, nothing is recorded
  DType dtype = DType::kFloat32;
  Recompute recompute = Recompute::kNone;
  ConstView scalars;  ///< StepScalars in device memory; absent: no training loss and no dropout
  DropoutState dropout;

  DType accumulate() const { return accumulate_dtype(dtype); }
  Tensor empty(DType type, const Shape& shape, MemoryKind kind = MemoryKind::kActivations) const {
    return Tensor::allocate(backend.allocator(kind), type, shape);
  }
  /// Returns device memory for one T (view.h, struct_of), initialized with `value`.
  template <typename T>
  Tensor make_struct(const T& value, MemoryKind kind = MemoryKind::kWorkspace) const {
    const Tensor t = empty(DType::kUInt8, {static_cast<int64_t>(sizeof(T))}, kind);
    set_struct(value, t);
    return t;
  }
  template <typename T>
  void set_struct(const T& value, const Tensor& t) const {
    backend.set_struct(SetStruct::of(value, t.mut_view()), stream);
  }
  template <typename T>
  T read_struct(const Tensor& t) const {  ///< waits for the stream
    check_struct<T>(t.view());
    T value;
    backend.read(t.view(), &value, stream);
    return value;
  }
  /// Uploads a table (view.h, table_of) that is kept for the whole run; waits for the stream.
  template <typename T>
  Tensor upload_table(const std::vector<T>& table, MemoryKind kind = MemoryKind::kWorkspace) const {
    const Tensor t = empty(DType::kUInt8, {static_cast<int64_t>(table.size() * sizeof(T))}, kind);
    if (!table.empty()) backend.write(table.data(), t.mut_view(), stream);
    return t;
  }
  /// Uploads constants of a model in the accumulate dtype; waits for the stream.
  Tensor upload_numbers(const std::vector<double>& values, const Shape& shape) const {
    const Tensor t = empty(accumulate(), shape, MemoryKind::kParameters);
    if (t.size() == 0) return t;
    if (accumulate() == DType::kFloat64) {
      backend.write(values.data(), t.mut_view(), stream);
    } else {
      const std::vector<float> narrow(values.begin(), values.end());
      backend.write(narrow.data(), t.mut_view(), stream);
    }
    return t;
  }
  /// Arguments for one dropout operation. Inactive unless training with p > 0.
  DropoutArgs dropout_args(double p, uint32_t rng_stream) const {
    if (!dropout.enabled || p <= 0) return {};
    return {.p = p,
            .seed = dropout.seed,
            .rng_stream = rng_stream,
            .scalars = scalars,
            .first_sample = dropout.first_sample,
            .sequence_length = dropout.sequence_length,
            .row0 = dropout.row0};
  }
};

}  // namespace ashlar
