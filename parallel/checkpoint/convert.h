#pragma once

#include <cstddef>
#include <span>

#include "core/base/dtype.h"
#include "core/io/safetensors.h"

namespace ashlar::checkpoint {

/// True for the types that `convert` reads: F64, F32, F16, BF16.
bool is_convertible(io::FileDType from);

/// out[i] = in[i] in another floating type (fp64, fp32, bf16), on the host: exactly when it is wider, else rounded to
/// nearest even; fp64 becomes bf16 through fp32. Bug for other types or sizes that do not match.
void convert(io::FileDType from, std::span<const std::byte> in, DType to, std::span<std::byte> out);

}  // namespace ashlar::checkpoint
