#pragma once

#include "tests/gpu_emulator/virtual_gpu.h"

namespace ashlar::testing {

/// From now on streams that stand-ins of vendors' libraries get work for (device_extension.h) are streams of `gpu`,
/// whose native handle is the stream. One device at a time.
void take_work_of_stand_ins(emulator::VirtualGpu& gpu);

}  // namespace ashlar::testing
