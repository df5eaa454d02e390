#pragma once

#include <vector>

#include "core/backend/backend.h"
#include "core/base/enum_names.h"
#include "core/tensor/tensor.h"

namespace ashlar {

class KeptValues;
class Tape;

/// Activation recomputation: which values backward recomputes instead of reading them from memory. kSelective: the
/// outputs of norms and activation functions. kBlock: all values inside a transformer block; only the block's input is
/// stored.
enum class Recompute : uint8_t { kNone, kSelective, kBlock };
constexpr auto names_of(Recompute) { return enum_names<Recompute>("none", "selective", "block"); }

/// Dropout settings that all dropout operations of a micro-batch share. Each operation has its own drop probability.
struct DropoutState {
  bool enabled = false;  ///< false in evaluation and generation
  uint64_t seed = 0;
  int64_t first_sample = 0;
  int64_t sequence_length = 0;
  int64_t row0 = 0;  ///< index of this rank's first row in the micro-batch; 0 unless rows are sharded over ranks
};

/// The first argument of every operation: the backend and stream on which the operation runs, and its settings. A Ctx
/// owns nothing and may be copied.
struct Ctx {
  Backend& backend;
  Stream& stream;
  Tape* tape = nullptr;  ///< null in inference: operations record no backward
  DType dtype = DType::kFloat32;
  Recompute recompute = Recompute::kNone;
  ConstView scalars;  ///< StepScalars in device memory; absent if neither a training loss nor dropout is computed
  DropoutState dropout;
  KeptValues* kept = nullptr;  ///< inside a function that backward runs again (recompute), else null

  DType accumulate() const { return accumulate_dtype(dtype); }
  Tensor empty(DType type, const Shape& shape, MemoryKind kind = MemoryKind::kActivations) const {
    return Tensor::allocate(backend.allocator(kind), type, shape);
  }
  /// Allocates device memory for one struct T and queues the copy of `value` to it. Kernels read it with struct_of
  /// (view.h).
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
  T read_struct(const Tensor& t) const {  ///< the host waits for the stream
    check_struct<T>(t.view());
    T value;
    backend.read(t.view(), &value, stream);
    return value;
  }
  /// Copies a table of structs T to device memory and waits for the copy. Kernels read the table with table_of
  /// (view.h).
  template <typename T>
  Tensor upload_table(const std::vector<T>& table, MemoryKind kind = MemoryKind::kWorkspace) const {
    const Tensor t = empty(DType::kUInt8, {static_cast<int64_t>(table.size() * sizeof(T))}, kind);
    if (!table.empty()) backend.write(table.data(), t.mut_view(), stream);
    return t;
  }
  /// Copies constants of the model to device memory, in the accumulate dtype, and waits for the copy.
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
  /// Returns the numbers of a tensor in the accumulate dtype. The host waits.
  std::vector<double> download_numbers(const Tensor& t) const {
    std::vector<double> values(static_cast<size_t>(t.size()));
    if (t.dtype() == DType::kFloat64) {
      backend.read(t.view(), values.data(), stream);
    } else {
      std::vector<float> narrow(values.size());
      backend.read(t.view(), narrow.data(), stream);
      values.assign(narrow.begin(), narrow.end());
    }
    return values;
  }
  /// Returns the arguments of one dropout operation with drop probability p. If dropout is disabled (evaluation,
  /// generation) or p is 0, the arguments request no dropout.
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
