#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/io/safetensors.h"

namespace ashlar::hf {

/// Elements of a floating type as another (F64, F32, F16, BF16): exact when wider, else rounded once to nearest even;
/// fp64 to fp16 or bf16 goes through fp32. Equal types are copied bit for bit. Returns the index of the first finite
/// element that became infinite, -1 when there is none.
int64_t convert_elements(io::FileDType from, std::span<const std::byte> in, io::FileDType to, std::span<std::byte> out);

/// IEEE half precision as bits, to nearest even; too large a value becomes infinite, a NaN stays one.
uint16_t half_bits(float value);

/// dst [cols, rows] = src [rows, cols] transposed, elements of element_bytes 1, 2, 4 or 8.
void transpose(std::span<const std::byte> src, int64_t rows, int64_t cols, int64_t element_bytes,
               std::span<std::byte> dst);

}  // namespace ashlar::hf
