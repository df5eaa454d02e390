#pragma once

#include "core/backend/backend.h"
#include "parallel/comm/control_plane.h"

namespace ashlar::training {

/// Ranks whose devices are no part of the host have one each: where two have the same (DeviceFacts::id), every rank
/// throws an input_error that names both and the device. Called by all ranks.
void check_own_devices(comm::ControlPlane& ranks, Backend& backend);

}  // namespace ashlar::training
