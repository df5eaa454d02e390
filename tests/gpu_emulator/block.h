#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/gpu_emulator/device_calls.h"
#include "tests/gpu_emulator/emulator.h"
#include "tests/gpu_emulator/fiber.h"
#include "tests/gpu_emulator/memory_watch.h"
#include "tests/gpu_emulator/scheduler.h"
#include "tests/gpu_emulator/shared_memory.h"

namespace ashlar::emulator {

inline constexpr uint32_t kAllLanes = 0xffffffffU;  ///< the mask of a whole warp

/// Runs the threads of one block after the other, block by block. What the functions of device_calls.h do for the
/// thread that runs is here: scheduling in block.cpp, barriers, warps, copies and mbarriers in files of their names.
class Block {
 public:
  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  void begin_grid(const Grid& grid, const Schedule& schedule);
  /// Runs all threads of the grid's block of that number. Throws Error, and whatever a kernel throws.
  void run(int64_t number);
  void end_grid();

  /// Judges and counts accesses to memory; null for none.
  void set_watch(MemoryWatch* watch) { watch_ = watch; }
  /// An access of instrumented code. Its fault does not come back to that code, which has no way for exceptions.
  void watched_access(const MemoryWatch::Access& access, const void* return_address);

  int running() const { return running_; }
  bool stack_contains(const void* address) const {
    return static_cast<size_t>(static_cast<const char*>(address) - stack_) < Fiber::kStackBytes;
  }
  uint3 thread_index() const { return threads_[running_].index; }
  uint3 block_index() const { return index_; }
  const Grid& grid() const { return *grid_; }
  int lane() const { return running_ % 32; }
  SharedMemory& shared() { return shared_; }
  const SharedMemory& shared() const { return shared_; }

  [[noreturn]] void fault(const std::string& text, Loc loc) const;

  int sync_threads(Vote vote, int value, Loc loc);
  void named_barrier(int id, int threads, bool wait, Loc loc);
  void warp_call(const WarpCall& call, Loc loc);
  void* static_shared(const void* key, int64_t bytes, int64_t align, Loc loc);
  void* dynamic_shared(Loc loc);
  /// The shared memory at a 32-bit address. Faults unless it is aligned and lies within one variable.
  char* shared_pointer(uint32_t address, int64_t bytes, int64_t align, Loc loc);
  void cp_async(const AsyncCopy& copy, Loc loc);
  void cp_async_commit_group();
  void cp_async_wait(int pending, bool uncommitted_too, Loc loc);
  void mbarrier_init(uint32_t address, int arrivals, Loc loc);
  void mbarrier_arrive(uint32_t address, int arrivals, int64_t bytes, Loc loc);
  void mbarrier_wait(uint32_t address, int parity, Loc loc);
  void fence();
  void atomic(const void* address, int64_t bytes, Loc loc);
  /// A row of a matrix, for the lane that brought its address.
  void ldmatrix_row(uint32_t address, int lane, Loc loc);
  void ldmatrix_passes(const std::array<uint32_t, 8>& rows);

 private:
  enum class State : uint8_t { kNotBegun, kRunnable, kWaiting, kEnded };
  struct StartedCopy {
    AsyncCopy copy;
    Loc loc;
  };
  struct Thread {
    uint3 index{};
    State state = State::kNotBegun;
    Fiber* fiber = nullptr;
    const char* waits_for = "";
    Loc waits_at;
    std::vector<StartedCopy> copies;  // in the order of their start
    std::vector<int> groups;          // copies of each committed group, the oldest first
    int uncommitted = 0;              // copies of no group yet
  };
  struct Barrier {
    int expected = 0;
    int arrived = 0;
    Loc loc;  // of the first to come
    std::vector<int> waiting;
    int votes = 0;
    int last_votes = 0;  // of the round that ended
    int last_count = 0;
    ThreadClocks::Message past;
  };
  struct PendingCall {
    WarpOperands operands;
    uint32_t arrived;
    const char* name;
  };
  struct Warp {
    std::vector<PendingCall> calls;
    uint32_t ended = 0;  // lanes
  };
  struct Mbarrier {
    int arrivals = 0;
    int missing = 0;    // arrivals
    int64_t bytes = 0;  // expected less come
    int phase = 0;      // parity of the one that runs
    std::vector<int> waiting;
    ThreadClocks::Message past, last_past;  // of the phase that runs, of the one that ended
  };

  // Scheduling.
  static void work_on_fiber(void* block) { static_cast<Block*>(block)->work(); }
  [[noreturn]] void work();
  void end_thread();
  void wait(const char* what, Loc loc);  // the running thread stops until made ready
  void let_others_run(Loc loc);          // unless the policy is kFifo
  void make_ready(int thread);
  void go_on();  // runs whichever thread is next
  void set_running(int thread, Fiber* fiber);
  Fiber* spare_fiber();
  std::string deadlock_text() const;
  std::string thread_text(int thread) const;

  void arrive(Barrier& barrier, const char* what, int expected, bool wait_too, Loc loc);
  void check_warp_call(const WarpCall& call, const Warp& warp, Loc loc) const;
  void fault_if_divergent(const WarpCall& call, const PendingCall& pending, Loc loc) const;
  void finish(const StartedCopy& copy);
  Mbarrier& mbarrier_at(uint32_t address, Loc loc);
  Error error(const std::string& place, const std::string& text) const;
  void check_copy(const AsyncCopy& copy, Loc loc);
  void watch_access(const MemoryWatch::Access& access, int thread, Loc loc);

  const Grid* grid_ = nullptr;
  Policy policy_ = Policy::kFifo;
  Random random_{0};
  uint3 index_{};
  SharedMemory shared_;
  Scheduler scheduler_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::array<Barrier, 16> barriers_;  // 0 is __syncthreads
  std::map<uint32_t, Mbarrier> mbarriers_;
  MemoryWatch* watch_ = nullptr;
  const char* stack_ = nullptr;  // of the running thread
  int running_ = 0;
  int alive_ = 0;
  std::exception_ptr error_;
  Fiber* host_ = nullptr;  // the stack that called run
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> spare_;
};

/// The block of the running thread. Throws Bug outside of kernels.
Block& current_block();

}  // namespace ashlar::emulator
