#pragma once

namespace ashlar::ptx {

/// Has nvcc make build/tests/ptx_long and build/tests/ptx_conformance_long, which are for sm_100, unless they are there
/// and new: minutes. A Bug with the compiler's words where it fails. Of the long form alone.
void make_long_targets();

}  // namespace ashlar::ptx
