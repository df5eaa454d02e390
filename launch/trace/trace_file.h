#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "launch/trace/step_trace.h"

/// Files of traced steps. README.md has the format.
namespace ashlar::trace {

std::filesystem::path folder_of(const std::filesystem::path& run_dir);  ///< RUN_DIR/trace
std::filesystem::path file_of(const std::filesystem::path& run_dir, int64_t step);
/// Steps that have a file in the run directory, ascending.
std::vector<int64_t> traced_steps(const std::filesystem::path& run_dir);

/// The part of a file about one rank. `on_first_rank` converts a time of the rank to nanoseconds since the step began
/// on rank 0.
std::string rank_text(const RankTrace& rank, const std::function<int64_t(int64_t)>& on_first_rank);
/// The whole file: `step`, whose `ranks` are not used, and the texts of all ranks.
std::string file_text(const StepTrace& step, std::span<const std::string> ranks);

/// Reads a file. Throws a damaged-data error that names it if it is not as it was written, an input error for a newer
/// version or a file that cannot be read.
StepTrace read_step_trace(const std::filesystem::path& path);

}  // namespace ashlar::trace
