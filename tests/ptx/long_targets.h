#pragma once

namespace ashlar::ptx {

/// Has build/tests/ptx_long and build/tests/ptx_conformance_long made, for sm_100: minutes of nvcc, once a process.
/// Throws what the compiler said. Of the long form alone.
void make_long_targets();

}  // namespace ashlar::ptx
