#pragma once

namespace ashlar {

/// Marks a point in the work of a stream. `native` returns the driver's handle (cudaEvent_t), or null on the CPU.
class Event {
 public:
  virtual ~Event() = default;
  virtual void synchronize() = 0;  ///< the host waits until the point is reached
  virtual bool reached() = 0;      ///< true if the point is reached; does not wait
  virtual void* native() = 0;
};

/// An ordered queue of kernels and copies. On the CPU, the work of each call is done when the call returns.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void synchronize() = 0;           ///< the host waits until all queued work is done
  virtual void record(Event& event) = 0;    ///< makes `event` mark the current end of the queue
  virtual void wait_for(Event& event) = 0;  ///< makes later work wait for the point that `event` marks now
  virtual void* native() = 0;
  /// True if calls return only after their work is done, as on the CPU.
  virtual bool synchronous() const { return false; }
};

/// The CPU's stream: every operation is complete when its call returns, so waiting is free.
class SynchronousStream final : public Stream {
 public:
  void synchronize() override {}
  void record(Event&) override {}
  void wait_for(Event&) override {}
  void* native() override { return nullptr; }
  bool synchronous() const override { return true; }
};

class SynchronousEvent final : public Event {
 public:
  void synchronize() override {}
  bool reached() override { return true; }
  void* native() override { return nullptr; }
};

}  // namespace ashlar
