#pragma once

#include "core/backend/backend.h"
#include "parallel/comm/control_plane.h"

namespace ashlar::training {

/// Ranks on devices with their own memory must have one device each. If two ranks have the same device
/// (DeviceFacts::id), every rank throws an input_error that names both ranks and the device. Called by all ranks.
void check_own_devices(comm::ControlPlane& ranks, Backend& backend);

}  // namespace ashlar::training
