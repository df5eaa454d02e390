#pragma once

#include <functional>

#include "core/base/error.h"
#include "parallel/comm/control_plane.h"

namespace ashlar::comm {

/// An error that every rank throws at once, with the same code and text: only rank 0 prints it.
class AllRanksError : public Error {
 public:
  using Error::Error;
};

/// Runs `part` on every rank and waits for all of them. If it threw Error or std::bad_alloc on any rank, all ranks
/// throw an AllRanksError with the code and text of the lowest such rank: only the text if all failed with it,
/// otherwise like `[io] rank 3 of 8 on node7: cannot write ...; ranks with other errors: 2`. With one rank exceptions
/// pass unchanged.
///   Without failures it costs one reduction of a number. `part` may communicate, but a rank that fails must not leave
/// pending operations, or other ranks that wait for it. Bug, Error(kPeerLost) and other exceptions propagate at once on
/// their rank, whose process must end.
void try_on_all_ranks(ControlPlane& ranks, const std::function<void()>& part);

}  // namespace ashlar::comm
