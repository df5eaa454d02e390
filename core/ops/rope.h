#pragma once

#include <vector>

#include "core/autograd/tape.h"

namespace ashlar::ops {

/// factor * cos(t f_m), factor * sin(t f_m) for positions t < P and frequencies f_m; m < dims/2.
struct RopeTables {
  Tensor cos, sin;      ///< [P, dims/2] accumulate dtype
  Tensor q_cos, q_sin;  ///< tables of the queries if they have a factor per position; else absent

  /// `query_factors`: empty, or one per position, which multiplies the query there; requires rotation of whole heads.
  static RopeTables make(const Ctx& ctx, int64_t positions, const std::vector<double>& frequencies, double factor = 1,
                         std::vector<double> query_factors = {});
};

struct RopeOptions {
  int64_t heads = 0, rotated_heads = 0, head_dim = 0, dims = 0;
  RopeStyle style = RopeStyle::kHalf;
  int64_t query_heads = 0;  ///< number of leading heads that are queries: used if the tables have query factors
};

/// Rotates the first `rotated_heads` of each row of x [N, heads*head_dim + more]; columns after the heads are
/// unchanged. positions [N] kInt32 must outlive the tape. Values and gradients are rotated in place if x is moved in
/// and has no other reference; otherwise in a copy.
Var rope(const Ctx& ctx, Var x, const ConstView& positions, const RopeTables& tables, const RopeOptions& options);

}  // namespace ashlar::ops
