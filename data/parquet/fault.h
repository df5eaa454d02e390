#pragma once

#include <string>

#include "core/base/strings.h"

namespace ashlar::data {

/// Why a Parquet file cannot be read. Thrown within this folder only: TextColumn turns it into an input error that
/// names the file.
struct ParquetFault {
  std::string reason;
};

/// Returns the fault of a file whose bytes contradict the format.
template <typename... What>
ParquetFault damaged_parquet(const What&... what) {
  return {str_cat("is damaged: ", what..., "; copy or download the file again")};
}

}  // namespace ashlar::data
