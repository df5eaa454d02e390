#pragma once

#include <functional>

#include "core/base/error.h"
#include "parallel/comm/control_plane.h"

namespace ashlar::comm {

/// An error that every rank throws with the same code and text, so that only rank 0 has to print it.
class AllRanksError : public Error {
 public:
  using Error::Error;
};

/// Runs `part` on every rank and waits for all of them. If `part` threw Error or std::bad_alloc on any rank, all ranks
/// throw an AllRanksError with the code and text of the lowest such rank. If all ranks failed with the same text, the
/// error has only this text; otherwise it looks like `[io] rank 3 of 8 on node7: cannot write ...; ranks with other
/// errors: 2`. On one rank, exceptions pass unchanged.
///   Without failures the function costs one reduction of a number. `part` may communicate, but a rank that fails must
/// not leave pending operations, or leave other ranks waiting for it. Bug, Error(kPeerLost) and other exceptions
/// propagate at once on their rank, whose process must end.
void try_on_all_ranks(ControlPlane& ranks, const std::function<void()>& part);
/// The same for a `part` that only rank 0 runs.
void try_on_first_rank(ControlPlane& ranks, const std::function<void()>& part);

}  // namespace ashlar::comm
