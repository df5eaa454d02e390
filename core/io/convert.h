#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/io/safetensors.h"

namespace ashlar::io {

/// True if `convert` supports the type: F64, F32, F16 or BF16.
bool is_convertible(FileDType dtype);

/// Converts elements from one floating type to another, on the host. Conversion to a wider type is exact; otherwise
/// values are rounded to nearest even. fp64 is converted to fp16 or bf16 in two roundings, through fp32. Equal types
/// are copied bit for bit. The spans need not be aligned. Throws a Bug if a type is not convertible (is_convertible) or
/// the sizes do not match.
void convert(FileDType from, std::span<const std::byte> in, FileDType to, std::span<std::byte> out);

/// Returns the index of the first NaN or infinity, or -1 if there is none. Supports the types of `convert`; the span
/// need not be aligned. Tests only the exponent bits, so that only memory bandwidth limits its speed.
int64_t first_non_finite(FileDType dtype, std::span<const std::byte> elements);

/// Returns "nan", "inf" or "-inf" for a non-finite element, for messages.
const char* non_finite_word(FileDType dtype, std::span<const std::byte> element);

}  // namespace ashlar::io
