#pragma once

#include <functional>
#include <string_view>

#include "core/base/error.h"
#include "parallel/comm/control_plane.h"

namespace ashlar::comm {

/// An error that every rank throws at once, with the same code and text: rank 0 alone is to print it.
class AllRanksError : public Error {
 public:
  using Error::Error;
};

/// Runs `part` on every rank and waits for all of them. When it threw Error or std::bad_alloc anywhere, all ranks throw
/// an AllRanksError with the code and text of the lowest of those ranks: the text alone when all failed with it,
/// otherwise like `[io] rank 3 of 8 on node7: cannot write ...; ranks with other errors: 2`. With one rank exceptions
/// pass unchanged.
///   Where nobody fails it costs one reduction of a number. A part may communicate, but a rank that fails must not
///   leave others waiting for it, nor operations under way. Bug,
/// Error(kPeerLost) and other exceptions pass at once on their rank, whose process is expected to end.
void try_on_all_ranks(ControlPlane& ranks, const std::function<void()>& part);

}  // namespace ashlar::comm
