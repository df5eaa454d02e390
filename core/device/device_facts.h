#pragma once

#include <cstdint>
#include <string>

namespace ashlar {

/// Properties of a device with its own memory. Backends of such devices also derive from this class (found with
/// dynamic_cast).
class DeviceFacts {
 public:
  virtual ~DeviceFacts() = default;

  /// Hardware id: "GPU-6173686c-6172-...". Two ranks must not compute on the same device.
  virtual std::string id() = 0;
  /// The device's memory according to the driver. Allocators, the driver's context, libraries and other processes use
  /// what is not free.
  struct Memory {
    int64_t total_bytes = 0;
    int64_t free_bytes = 0;
  };
  virtual Memory memory() = 0;
  /// The part of the workspace memory used by cuDNN's attention.
  virtual int64_t attention_workspace_bytes() const { return 0; }
};

}  // namespace ashlar
