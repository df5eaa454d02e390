#pragma once

namespace ashlar {

/// A point in a stream's work. `native` is the driver's handle, null on CPU.
class Event {
 public:
  virtual ~Event() = default;
  virtual void synchronize() = 0;  ///< the host waits until the point is reached
  virtual bool reached() = 0;      ///< polls without waiting
  virtual void* native() = 0;
};

/// An ordered queue of kernels and copies. On CPU each call has finished when it returns.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void synchronize() = 0;           ///< the host waits for everything queued
  virtual void record(Event& event) = 0;    ///< records the current end of the queue
  virtual void wait_for(Event& event) = 0;  ///< later work waits for the point currently recorded in the event
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
