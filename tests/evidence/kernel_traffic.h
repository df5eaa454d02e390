#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "tests/evidence/watched_device.h"

namespace ashlar::evidence {

inline constexpr int64_t kSector = 32;  ///< bytes that a single number of a row costs
inline constexpr auto kStorage = DType::kBFloat16;

/// A kernel on one problem: what it must move by its formula, and what it moved.
struct KernelRow {
  std::string kernel;             ///< its launch's name
  std::string problem;            ///< the shape
  std::string formula;            ///< in words
  int64_t read = 0, written = 0;  ///< bytes, by the formula
  Measured measured;
  bool scattered = false;  ///< asks for single numbers here and there: sectors and banks are as chance has them

  double read_ratio() const;
  double write_ratio() const;
};

/// Norms, elementwise kernels, rotary positions, embedding, loss, update, norm of gradients: bf16, aligned rows.
std::vector<KernelRow> measure_row_kernels();
/// Attention in bf16 with two query heads on a KV head, for heads of 64 and 128.
std::vector<KernelRow> measure_attention();
/// Choices of experts, their gradient, balance, sorting by expert.
std::vector<KernelRow> measure_routers();
/// Rows to experts and back, grouped products.
std::vector<KernelRow> measure_experts();

}  // namespace ashlar::evidence
