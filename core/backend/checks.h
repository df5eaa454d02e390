#pragma once

#include <string_view>

#include "core/backend/kernel_list.h"

namespace ashlar {

// Guarantees for backends: shapes, dtypes, strides and modes match the contract. A caller's mistake is a Bug that names
// the call and the view; a field that no backend supports yet is an input_error that names it. Nothing here reads
// device memory.

#define ASHLAR_CHECK_OF(name, Args) void check(const Args& args);
ASHLAR_KERNELS(ASHLAR_CHECK_OF)
#undef ASHLAR_CHECK_OF

/// A view of this shape and dtype, rows possibly strided.
void check_view(std::string_view where, std::string_view name, const ConstView& v, int64_t rows, int64_t cols,
                DType dtype);
/// A contiguous vector [n], given as one row or one column.
void check_vector(std::string_view where, std::string_view name, const ConstView& v, int64_t n, DType dtype);
/// Any shape and dtype: those of other views are compared with these.
void check_self(std::string_view where, std::string_view name, const ConstView& v);
/// [n] kInt32.
void check_ids(std::string_view where, std::string_view name, const ConstView& v, int64_t n);
/// fp32, bf16 or fp64; an input_error otherwise.
void check_storage(std::string_view where, DType dtype);
/// Both of these.
void check_storage(std::string_view where, std::string_view name, const ConstView& v);
/// A probability below 1, with its StepScalars.
void check_dropout(std::string_view where, const DropoutArgs& a);

}  // namespace ashlar
