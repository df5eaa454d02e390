#pragma once

#include <cstdint>
#include <string>

namespace ashlar {

/// What a backend tells besides computing, if its device is no part of the host: backends of such devices derive from
/// it too (dynamic_cast asks).
class DeviceFacts {
 public:
  virtual ~DeviceFacts() = default;

  /// Which hardware it is: "GPU-6173686c-6172-...". No two ranks may compute on the same.
  virtual std::string id() = 0;
  /// Its memory as the driver tells. What is not free is held by allocators, the driver's context, libraries and
  /// others.
  struct Memory {
    int64_t total_bytes = 0;
    int64_t free_bytes = 0;
  };
  virtual Memory memory() = 0;
  /// Of the memory for workspaces, what cuDNN's attention works in.
  virtual int64_t attention_workspace_bytes() const { return 0; }
};

}  // namespace ashlar
