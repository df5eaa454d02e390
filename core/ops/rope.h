#pragma once

#include <vector>

#include "core/autograd/tape.h"

namespace ashlar::ops {

/// factor * cos(t f_m), factor * sin(t f_m) for positions t < P and frequencies f_m; m < dims/2.
struct RopeTables {
  Tensor cos, sin;      ///< [P, dims/2] accumulate dtype
  Tensor q_cos, q_sin;  ///< the same for queries, where these have a factor of their own by position; else absent

  /// `query_factors`: none, or one for each position: the query there is multiplied by it as well; whole heads rotate.
  static RopeTables make(const Ctx& ctx, int64_t positions, const std::vector<double>& frequencies, double factor = 1,
                         std::vector<double> query_factors = {});
};

struct RopeOptions {
  int64_t heads = 0, rotated_heads = 0, head_dim = 0, dims = 0;
  RopeStyle style = RopeStyle::kHalf;
  int64_t query_heads = 0;  ///< the first so many heads are queries: read where the tables have factors for them
};

/// Rotates the first `rotated_heads` of each row of x [N, heads*head_dim + more]; the columns behind the heads stay as
/// they are. positions [N] kInt32 outlive the tape. In place, values and gradients, where x is moved in and nobody else
/// holds its value; otherwise into a copy.
Var rope(const Ctx& ctx, Var x, const ConstView& positions, const RopeTables& tables, const RopeOptions& options);

}  // namespace ashlar::ops
