#pragma once

#include <filesystem>

namespace ashlar::packaging {

/// An archive (launch/scripts/archive.sh) has Open MPI in the folder mpi/ beside the program's own folder. Returns that
/// folder if the MPI library of this process is the one in it; empty otherwise.
std::filesystem::path bundled_mpi();

/// Tells Open MPI, by environment variables, where bundled_mpi() is; what the environment says of another Open MPI does
/// not hold for it. Does nothing if there is none. Call it before threads exist.
void use_bundled_mpi();

}  // namespace ashlar::packaging
