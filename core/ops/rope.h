#pragma once

#include <vector>

#include "core/autograd/tape.h"

namespace ashlar::ops {

/// cos(t f_m), sin(t f_m) for positions t < P and frequencies f_m = base^(-2m/dims), m < dims/2.
struct RopeTables {
  Tensor cos, sin;      ///< [P, dims/2] accumulate dtype
  Tensor q_cos, q_sin;  ///< the same for queries, where these have a factor of their own by position; else absent

  static RopeTables make(const Ctx& ctx, int64_t positions, int64_t dims, double base);
  /// Queries at position t are multiplied by factors[t] as well; whole heads rotate.
  void add_query_factors(const Ctx& ctx, const std::vector<double>& factors, int64_t dims, double base);
};

struct RopeOptions {
  int64_t heads = 0, rotated_heads = 0, head_dim = 0, dims = 0;
  RopeStyle style = RopeStyle::kHalf;
  int64_t query_heads = 0;  ///< the first so many heads are queries: read where the tables have factors for them
};

/// Rotates the first `rotated_heads` of each row of x [N, heads*head_dim]; positions [N] kInt32 outlive the tape. In
/// place, values and gradients, where x is moved in and nobody else holds its value; otherwise into a copy.
Var rope(const Ctx& ctx, Var x, const ConstView& positions, const RopeTables& tables, const RopeOptions& options);

}  // namespace ashlar::ops
