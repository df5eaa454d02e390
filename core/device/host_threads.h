#pragma once

namespace ashlar {

/// What a backend that computes with threads of this process tells of them (dynamic_cast asks).
class HostThreads {
 public:
  virtual ~HostThreads() = default;

  virtual int threads() const = 0;
  /// How long they have waited for each other, all together, while they had work in common.
  virtual double waited_sec() const = 0;
};

}  // namespace ashlar
