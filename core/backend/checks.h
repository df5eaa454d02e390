#pragma once

#include <string_view>

#include "core/backend/kernel_list.h"

namespace ashlar {

// Checks that shapes, dtypes, strides and modes match the contract, so that backends need not check them. A caller's
// mistake is a Bug that names the call and the view. A field that no backend supports yet is an input_error that names
// the field. Nothing here reads device memory.

#define ASHLAR_CHECK_OF(name, Args) void check(const Args& args);
ASHLAR_KERNELS(ASHLAR_CHECK_OF)
#undef ASHLAR_CHECK_OF

/// Checks a view of this shape and dtype; its rows may be strided.
void check_view(std::string_view where, std::string_view name, const ConstView& v, int64_t rows, int64_t cols,
                DType dtype);
/// Checks a contiguous vector [n], given as one row or one column.
void check_vector(std::string_view where, std::string_view name, const ConstView& v, int64_t n, DType dtype);
/// Checks a view of any shape and dtype, with which other views are then compared.
void check_self(std::string_view where, std::string_view name, const ConstView& v);
/// [n] kInt32.
void check_ids(std::string_view where, std::string_view name, const ConstView& v, int64_t n);
/// Checks that the dtype is fp32, bf16 or fp64; input error otherwise.
void check_storage(std::string_view where, DType dtype);
/// Checks both the dtype and the view itself.
void check_storage(std::string_view where, std::string_view name, const ConstView& v);
/// Checks that the probability is below 1 and that the StepScalars are given.
void check_dropout(std::string_view where, const DropoutArgs& a);

}  // namespace ashlar
