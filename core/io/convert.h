#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/io/safetensors.h"

namespace ashlar::io {

/// True for the types that `convert` supports: F64, F32, F16, BF16.
bool is_convertible(FileDType dtype);

/// out[i] = in[i] in another floating type, on the host. A wider type is exact; otherwise values are rounded to nearest
/// even. fp64 becomes fp16 or bf16 through fp32. Equal types are copied bit for bit. Spans need not be aligned. Bug for
/// other types or sizes that do not match.
void convert(FileDType from, std::span<const std::byte> in, FileDType to, std::span<std::byte> out);

/// Index of the first NaN or infinity; -1: none. Types as `convert`; the span need not be aligned. Tests only
/// exponents, at memory speed.
int64_t first_non_finite(FileDType dtype, std::span<const std::byte> elements);

/// Returns "nan", "inf" or "-inf" for a non-finite element, for messages.
const char* non_finite_word(FileDType dtype, std::span<const std::byte> element);

}  // namespace ashlar::io
