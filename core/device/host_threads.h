#pragma once

namespace ashlar {

/// Statistics of a backend that computes with threads of this process. Callers find it with dynamic_cast from Backend.
class HostThreads {
 public:
  virtual ~HostThreads() = default;

  virtual int threads() const = 0;
  /// Returns the total time, in seconds, in which threads have waited for each other inside parallel work.
  virtual double waited_sec() const = 0;
};

}  // namespace ashlar
