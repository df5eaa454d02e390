#pragma once

#include <string>

namespace ashlar {

/// Returns the version of NVIDIA's driver, e.g. "580.65.06", as NVML tells it; empty if NVML is missing or does not
/// start. The CUDA runtime only tells which CUDA a driver supports, but users install drivers by their version.
std::string driver_version();

/// Returns the oldest driver on which programs of this CUDA release run, e.g. "580" for 13; empty for releases that are
/// not known here. Source: NVIDIA's CUDA Compatibility guide, "minor version compatibility".
std::string least_driver_for_cuda(int major);

}  // namespace ashlar
