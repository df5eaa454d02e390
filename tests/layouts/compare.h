#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/nn/parameter.h"
#include "core/optim/optimizer.h"
#include "parallel/comm/host.h"
#include "parallel/mesh/mesh.h"
#include "parallel/zero/global_norm.h"

namespace ashlar::testing {

inline double norm_of(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return std::sqrt(sum);
}

/// The part of a global tensor (row by row) that a tensor holds.
inline std::vector<double> slice_of(const std::vector<double>& global, const nn::ShardedTensor& p) {
  const int64_t width = p.global_shape.cols();
  std::vector<double> part;
  for (int64_t r = 0; r < p.rows; ++r)
    for (int64_t c = 0; c < p.cols; ++c) part.push_back(global[(p.global_row + r) * width + p.global_col + c]);
  return part;
}

/// The least size that a gradient counts with: 1e-4 of all. A layer's scalar (xielu's, the one of a block's output) has
/// a sum over all rows and columns whose terms cancel; added in another order they leave a rounding of their own size,
/// which only 1e-3 of all tells.
inline double least_size(const std::string& name, double all_norm) {
  const bool scalar =
      name.find(".ffn.alpha_") != name.npos || name.find(".out_scalar") != name.npos;  // and its moments
  return (scalar ? 1e-3 : 1e-4) * all_norm;
}

/// |got - reference| <= bound * max(|reference tensor|, least_size): a key bias has a true gradient of zero.
inline void expect_close(const std::string& name, const std::vector<double>& got, const std::vector<double>& reference,
                         double tensor_norm, double all_norm, double bound) {
  ASSERT_EQ(got.size(), reference.size()) << name;
  double sum = 0;
  for (size_t i = 0; i < got.size(); ++i) sum += (got[i] - reference[i]) * (got[i] - reference[i]);
  const double scale = std::max(tensor_norm, least_size(name, all_norm));
  EXPECT_LE(std::sqrt(sum), bound * scale) << name << ", relative " << std::sqrt(sum) / scale;
}

/// Each of the model's elements is counted on exactly one rank, within `ranges`.
inline void expect_counted_once(mesh::Mesh& mesh, int64_t elements, std::span<const nn::ShardedRange> ranges) {
  int64_t held = 0;
  for (const auto& range : ranges) held += range.ref->tensor->main_replica ? range.size : 0;
  EXPECT_EQ(comm::sum_of(mesh.control(), held), elements);
}

}  // namespace ashlar::testing
