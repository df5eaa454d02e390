#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ashlar::emulator {

/// Memory of a device: an address range of its own, in a window that holds nothing else, so that an address says whose
/// it is. The host may touch it only while it is open; a touch while it is closed ends the process with one line that
/// says what is known about the place. So does work of a device at an address that nothing lies at.
/// Blocks are aligned to 256, first fit, so that the same calls give the same addresses. Around them lie gaps of NaN
/// that nobody may write (check) and that the address sanitizer knows, where it is there. Fresh and released memory is
/// NaN as well, as soon as no queued work uses it; memory written after its release is found when it is handed out
/// again. Not thread-safe.
class DeviceMemory {
 public:
  struct Options {
    const char* owner = "device";  ///< for errors: "device 0", "test memory"
    bool for_kernels = true;       ///< false: pinned memory of the host, which lies here for its checks
    int64_t max_bytes = 0;         ///< 0 = the address range is the limit (64 GiB)
    std::function<std::string(const void*)> describe = {};  ///< more about a place, for errors
    std::function<bool(const void*, int64_t)> in_use = {};  ///< whether queued work uses a range
    std::function<std::string()> running = {};              ///< the work that runs now, for errors; empty: none
  };

  explicit DeviceMemory(Options options);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void open();
  void close();

  /// Throws resource_error when memory is out.
  void* allocate(int64_t bytes);
  void release(void* block);
  int64_t used_bytes() const { return used_; }
  int64_t high_water_bytes() const { return high_water_; }
  /// Of every allocation and release since the last call: equal when the addresses repeat.
  uint64_t take_hash();

  /// Throws a Bug that names the block and `after` if a gap has been written to.
  void check(std::string_view after);
  /// The same for all memory of the process that is open, and so may have been written to.
  static void check_all(std::string_view after);

  /// The memory whose range holds the address; null for the host's.
  static const DeviceMemory* of(const void* at);
  /// The work that some device runs now; empty: none.
  static std::string running();
  bool for_kernels() const { return options_.for_kernels; }
  /// Whether all of it lies in one block that is handed out.
  bool holds(const void* at, int64_t bytes) const;
  /// "byte 12 of block 3 (400 bytes) of device 0", "8 bytes past the end of ...", and what `describe` adds.
  std::string describe(const void* at) const;

 private:
  struct Block {
    int64_t bytes;         ///< as asked for
    int64_t size;          ///< with the gap behind it
    int64_t number;        ///< counted from 1
    bool has_gap = false;  ///< the gap is NaN
  };
  using Blocks = std::map<int64_t, Block>;

  Blocks::const_iterator block_before(const void* at) const;
  bool used_by_queue(int64_t offset, int64_t bytes) const;
  void set_gap(int64_t offset, Block& block);
  void fill_nan(int64_t offset, int64_t bytes);
  void check_untouched(int64_t offset, int64_t size);
  /// What no queued work uses any more becomes NaN: released blocks and gaps.
  void settle();

  Options options_;
  int slot_ = 0;
  char* base_ = nullptr;
  Blocks blocks_;                         ///< by offset
  Blocks released_;                       ///< not yet NaN
  std::map<int64_t, int64_t> untouched_;  ///< offset -> bytes: released, NaN, and to stay so
  int64_t used_ = 0, high_water_ = 0, num_allocations_ = 0;
  uint64_t hash_ = 0;
  bool open_ = true;
};

/// Whether a kernel may touch the bytes: all of them in one block that is handed out, of a device or managed.
bool is_device_memory(const void* at, int64_t bytes);

}  // namespace ashlar::emulator
