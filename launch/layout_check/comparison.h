#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/layout_check/step_numbers.h"

namespace ashlar::layout_check {

/// Bounds of a comparison in one dtype. Layouts add the same terms in another order, so their numbers differ by
/// rounding: a gradient by at most `relative` of |gradient|, the root of its sum of squares. A tensor's gradient
/// counts with at least 1e-4 of that of all gradients (a layer's scalar, whose terms cancel, with 1e-3): the true
/// gradient of a key bias is zero. An updated weight may differ by what the bound of its gradient makes of the update.
struct Bounds {
  double relative = 1e-11;
  double epsilon = 0x1p-52;  ///< the distance of 1 to the next number of the dtype
};
Bounds bounds_of(DType dtype);  ///< of fp64 or fp32

/// How a tensor on a mesh differs from the tensor on one rank. Each number is that of the rank where it is largest.
struct TensorDifference {
  std::string name;
  double gradient = 0;       ///< |difference| as a share of the tensor's size; above Bounds::relative: an error
  double gradient_ulps = 0;  ///< largest difference of an element, in units of `epsilon` times the largest element,
                             ///< or the tensor's size as a root mean square if that is more: a true gradient of zero
  int64_t not_held = 0;      ///< elements whose gradient no rank has, or (negative) several ranks have
  double weight = 0;         ///< largest difference of a weight as a share of what its bound allows; above 1: an error
  double weight_ulps = 0;    ///< as gradient_ulps
  bool operator==(const TensorDifference&) const = default;
};

/// A number of the step that differs.
struct NumberDifference {
  std::string name;
  double got = 0, expected = 0;
};

struct LayoutDifference {
  std::vector<NumberDifference> numbers;  ///< loss, norm, ...: those beyond their bound; on rank 0 alone
  std::vector<TensorDifference> tensors;  ///< all tensors, the last of the model first, as backward meets them
  bool equal(const Bounds& bounds) const;
};

/// True if the tensor differs beyond its bounds.
bool differs(const TensorDifference& tensor, const Bounds& bounds);

/// Where an error shows first. A wrong gradient makes the norm wrong, the norm the clip scale, and that every weight:
/// tensors that differ as a consequence are left out.
struct Origin {
  enum class Kind { kGradients, kNorm, kWeights };
  Kind kind = Kind::kWeights;
  std::vector<TensorDifference> tensors;  ///< of a wrong gradient, or of a wrong weight alone; none for kNorm
  int64_t weights = 0;                    ///< the other tensors whose weights differ
};
Origin origin_of(const LayoutDifference& difference, const Bounds& bounds);

/// Compares a step on a mesh with the step on one rank. `reference`: on rank 0 of the mesh, null on the others.
/// `tamper` (may be empty) is called between backward and the comparison. (all ranks of the mesh)
LayoutDifference compare(CheckedStep& step, const config::RunConfig& config, const Reference* reference,
                         const Tamper& tamper);

}  // namespace ashlar::layout_check
