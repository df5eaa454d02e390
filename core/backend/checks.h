#pragma once

#include <string_view>

#include "core/backend/kernel_list.h"

namespace ashlar {

// `check` verifies that the shapes, dtypes, strides and modes of an args struct match its contract, so that backends
// need not check them. A caller's mistake throws a Bug that names the call (`where`) and the view. A value that no
// backend supports throws an input_error that names the field. Nothing here reads device memory.

#define ASHLAR_CHECK_OF(name, Args) void check(std::string_view where, const Args& args);
ASHLAR_KERNELS(ASHLAR_CHECK_OF)
#undef ASHLAR_CHECK_OF

/// Checks that the view `v` has this shape and dtype; its rows may be strided. `where` names the call in messages.
void check_view(std::string_view where, std::string_view name, const ConstView& v, int64_t rows, int64_t cols,
                DType dtype);
/// Checks that `v` is a contiguous vector of n elements, given as one row or as one column.
void check_vector(std::string_view where, std::string_view name, const ConstView& v, int64_t n, DType dtype);
/// Checks that a view of any shape and dtype is present and that its rows do not overlap.
void check_self(std::string_view where, std::string_view name, const ConstView& v);
/// Checks that `v` is a contiguous kInt32 vector of n ids.
void check_ids(std::string_view where, std::string_view name, const ConstView& v, int64_t n);
/// Throws an input_error unless the dtype is fp32, bf16 or fp64.
void check_storage(std::string_view where, DType dtype);
/// Checks that `v` is a valid view (check_self) of dtype fp32, bf16 or fp64.
void check_storage(std::string_view where, std::string_view name, const ConstView& v);
/// Checks that p is in [0, 1) and that StepScalars are given if p > 0.
void check_dropout(std::string_view where, const DropoutArgs& a);

}  // namespace ashlar
