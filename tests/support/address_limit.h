#pragma once

#include <cstdint>

namespace ashlar::testing {

/// Lets this process have so many more bytes of addresses than it has, for the rest of its life: for the child of a
/// death test. False where the system sets no such limit.
bool limit_addresses_to(int64_t more_bytes);

}  // namespace ashlar::testing
