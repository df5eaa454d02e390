#pragma once

#include <cstdint>
#include <string>

namespace ashlar {

/// Properties of a device with its own memory, such as a GPU. The backend of such a device also derives from this
/// class; callers find it with dynamic_cast.
class DeviceFacts {
 public:
  virtual ~DeviceFacts() = default;

  /// Returns the hardware id, e.g. "GPU-6173686c-6172-...". Two ranks must not use devices with the same id.
  virtual std::string id() = 0;
  /// The device's memory as the driver reports it. Memory that is not free is used by allocators, the driver's context,
  /// libraries or other processes.
  struct Memory {
    int64_t total_bytes = 0;
    int64_t free_bytes = 0;
  };
  virtual Memory memory() = 0;
  /// Locks host memory, so that copies between it and the device run beside the host. Returns false if the system
  /// refuses (ulimit -l, or too little memory): the host then waits for such copies.
  virtual bool lock_host_memory(void* memory, int64_t bytes) = 0;
  virtual void unlock_host_memory(void* memory) = 0;  ///< before the memory is freed
  /// Returns how many bytes of the workspace memory cuDNN's attention uses.
  virtual int64_t attention_workspace_bytes() const { return 0; }
};

}  // namespace ashlar
