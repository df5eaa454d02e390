#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "tests/gpu_emulator/thread_clocks.h"

namespace ashlar::emulator {

/// Finds accesses to one byte, one of them writing, that nothing orders: between threads of a block, blocks of a
/// launch, and launches. Exact for the threads of a block: it keeps for each byte the last write and all reads since.
/// Blocks of a launch are ordered only by __threadfence and an atomic (the last-block pattern).
class RaceDetector {
 public:
  enum class Kind : uint8_t { kRead, kWrite, kAtomic };
  struct Access {
    uintptr_t address;
    int64_t bytes;
    Kind kind;
    int thread;
    uint32_t site;
  };
  /// Two accesses that nothing orders. The other one came first.
  struct Race {
    Kind other_kind;
    int other_thread;
    int64_t other_block;   ///< in the order in which blocks ran, of the same launch; -1: of this block
    int64_t other_launch;  ///< -1: of this launch
    uint32_t other_site;
    int64_t byte;  ///< of the access
  };

  /// Whether work of an earlier launch is over before a later one begins. By default it always is.
  using Ordered = std::function<bool(int64_t earlier, int64_t later)>;
  void set_ordered(Ordered ordered) { launches_ordered_ = std::move(ordered); }

  void begin_launch(int64_t launch, int num_threads);
  void begin_block();

  /// `address` is the offset into shared memory of that size.
  std::optional<Race> shared_access(const Access& access, int64_t arena_bytes);
  std::optional<Race> global_access(const Access& access);

  // Order.
  void sync_block();
  void sync_warp(int warp, uint32_t mask);
  void release(int thread, ThreadClocks::Message& message) { clocks_.release(thread, message); }
  void acquire(int thread, const ThreadClocks::Message& message) { clocks_.acquire(thread, message); }
  void fence(int thread);
  /// An atomic at the address: what was fenced before it in other blocks is ordered before what follows it here, and
  /// the other way round.
  void atomic(int thread, uintptr_t address);

 private:
  // An access, or a member of a set of readers: then `before` is the rest of the set.
  struct Record {
    uint32_t block;
    uint32_t epoch;
    uint32_t time;
    uint32_t site;
    uint32_t before;
    uint16_t thread;
    bool atomic;
  };
  // What is known of a byte, as numbers of records; 0 is none.
  struct Cell {
    uint32_t write = 0;
    uint32_t reads = 0;        // of one epoch of one block
    uint32_t other_reads = 0;  // of another block or launch, before those
    bool operator==(const Cell&) const = default;
  };
  static constexpr uintptr_t kPage = 4096;
  using Page = std::array<Cell, kPage>;

  // A thread's __threadfence: its past.
  struct Fence {
    uint32_t epoch = 0;  // 0: none in this block
    uint32_t time = 0;
    std::vector<uint32_t> known;  // of the others in this epoch; empty: nothing
  };
  // An atomic after a fence.
  struct Release {
    uint32_t block;
    uint32_t epoch;
    int thread;
    std::vector<Fence> fences;  // by thread
  };
  // How many releases of an address have been seen.
  using Acquired = std::unordered_map<uintptr_t, size_t>;

  std::optional<Race> access(Cell* cells, const Access& access);
  std::optional<Race> check(const Cell& cell, const Access& access) const;
  bool ordered(const Record& record, int thread) const;
  bool released(const Record& record, int thread) const;
  static bool covers(const Release& release, const Record& record);
  Cell after(const Cell& cell, const Access& access);
  uint32_t write_record(const Access& access);
  uint32_t reader(uint32_t set, const Access& access);
  Race race_with(const Record& record, Kind kind) const;
  int64_t launch_of(uint32_t block) const;

  ThreadClocks clocks_;
  std::vector<Record> records_{1};
  std::vector<Cell> shared_;
  int64_t shared_end_ = 0;  // of what this block has touched
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
  uintptr_t last_page_number_ = 0;
  Page* last_page_ = nullptr;
  uint32_t block_ = 0;        // counted over all launches
  uint32_t first_block_ = 1;  // of this launch
  int64_t launch_ = 0;
  std::vector<std::pair<uint32_t, int64_t>> launches_;  // first block, number
  Ordered launches_ordered_;
  mutable std::unordered_map<int64_t, bool> order_of_launch_;  // before this one, as asked

  struct LastWrite {
    uint32_t site = 0, epoch = 0, time = 0, record = 0;
    bool atomic = false;
  };
  std::vector<std::array<LastWrite, 4>> last_writes_;  // by thread
  // Readers that were added to sets in this epoch: a hash table that a new epoch empties at once.
  struct Added {
    uint32_t set = 0, time = 0, epoch = 0;  // epoch as counted by sets_epoch_, 0 for none
    int thread = 0;
    uint32_t result = 0;
  };
  Added& find_added(uint32_t set, uint32_t time, int thread);
  void new_sets();
  std::vector<Added> added_ = std::vector<Added>(1 << 12);
  size_t num_added_ = 0;
  uint32_t sets_epoch_ = 0;
  uint32_t sets_clock_epoch_ = 0;  // of clocks_

  std::vector<Fence> fences_;  // by thread, of this block
  bool fenced_ = false;
  std::unordered_map<uintptr_t, std::vector<Release>> releases_;  // of this launch, by address
  std::vector<Acquired> acquired_;                                // by thread
  Acquired acquired_by_all_;
};

}  // namespace ashlar::emulator
