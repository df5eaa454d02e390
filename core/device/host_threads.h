#pragma once

namespace ashlar {

/// Statistics of a backend that computes with threads of this process (found with dynamic_cast).
class HostThreads {
 public:
  virtual ~HostThreads() = default;

  virtual int threads() const = 0;
  /// Total time in which threads have waited for each other inside parallel work.
  virtual double waited_sec() const = 0;
};

}  // namespace ashlar
