#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/io/safetensors.h"

namespace ashlar::hf {

/// Converts elements to another dtype with io::convert. Returns the index of the first finite element that became
/// infinite; -1 if there is none.
int64_t convert_elements(io::FileDType from, std::span<const std::byte> in, io::FileDType to, std::span<std::byte> out);

/// Transposes: dst [cols, rows] = src [rows, cols]^T. element_bytes: 1, 2, 4 or 8.
void transpose(std::span<const std::byte> src, int64_t rows, int64_t cols, int64_t element_bytes,
               std::span<std::byte> dst);

}  // namespace ashlar::hf
