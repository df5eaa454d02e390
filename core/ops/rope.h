#pragma once

#include <vector>

#include "core/autograd/tape.h"

namespace ashlar::ops {

/// Tables of factor * cos(t f_m) and factor * sin(t f_m) for positions t < P and frequencies f_m, m < dims/2.
struct RopeTables {
  Tensor cos, sin;      ///< [P, dims/2] accumulate dtype
  Tensor q_cos, q_sin;  ///< tables of the queries, if queries have a factor per position; else undefined

  /// `query_factors` is empty, or has one factor per position, which multiplies the queries at that position. With
  /// query factors, whole heads must be rotated (dims = head_dim), since elements that are not rotated would not be
  /// multiplied.
  static RopeTables make(const Ctx& ctx, int64_t positions, const std::vector<double>& frequencies, double factor = 1,
                         std::vector<double> query_factors = {});
};

struct RopeOptions {
  int64_t heads = 0, rotated_heads = 0, head_dim = 0, dims = 0;
  RopeStyle style = RopeStyle::kHalf;
  int64_t query_heads = 0;  ///< number of query heads, which come first; used only if the tables have query factors
};

/// Rotates the first `rotated_heads` heads in each row of x [N, heads*head_dim + further columns]; further columns stay
/// unchanged. positions [N] kInt32 must outlive the tape. If x is moved in and has no other reference, value and
/// gradient are rotated in place; otherwise a new tensor is allocated.
Var rope(const Ctx& ctx, Var x, const ConstView& positions, const RopeTables& tables, const RopeOptions& options);

}  // namespace ashlar::ops
