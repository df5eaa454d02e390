#pragma once

#include <cstdint>
#include <string>

namespace ashlar {

/// Properties of a device with its own memory; backends of such devices also derive from it (found with dynamic_cast).
class DeviceFacts {
 public:
  virtual ~DeviceFacts() = default;

  /// Hardware id: "GPU-6173686c-6172-...". Two ranks must not compute on the same device.
  virtual std::string id() = 0;
  /// Its memory according to the driver. Memory that is not free is used by allocators, the driver's context, libraries
  /// and other processes.
  struct Memory {
    int64_t total_bytes = 0;
    int64_t free_bytes = 0;
  };
  virtual Memory memory() = 0;
  /// The part of the workspace memory used by cuDNN's attention.
  virtual int64_t attention_workspace_bytes() const { return 0; }
};

}  // namespace ashlar
