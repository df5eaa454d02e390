#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ashlar::emulator {

/// The shared memory of a block. Variables are exactly as large as asked, with gaps between them, aligned to what they
/// ask and no more; filled with 0xff bytes (NaN in every floating-point type) when they come to life. Addresses on the
/// GPU's side are offsets into it.
class SharedMemory {
 public:
  static constexpr int64_t kMaxBytes = 227 * 1024;       ///< static and dynamic of a block, sm_90
  static constexpr int64_t kMaxStaticBytes = 48 * 1024;  ///< what nvcc accepts of static variables
  static constexpr int64_t kDynamicAlign = 128;

  SharedMemory();
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  void begin_block(int64_t dynamic_bytes);
  void end_block();

  /// The block's variable of that key, or null.
  void* find(const void* key) const;
  /// Makes it. Null when static variables are then larger than they may be, or all together.
  void* add(const void* key, int64_t bytes, int64_t align);
  void* dynamic() const { return dynamic_.bytes == 0 ? nullptr : base_ + dynamic_.begin; }
  int64_t static_bytes() const { return static_bytes_; }
  int64_t dynamic_bytes() const { return dynamic_.bytes; }

  bool contains(const void* pointer) const { return pointer >= base_ && pointer < base_ + kArenaBytes; }
  uint32_t address(const void* pointer) const {
    return static_cast<uint32_t>(static_cast<const char*>(pointer) - base_);
  }
  char* pointer(uint32_t address) const { return base_ + address; }
  /// Whether [address, address + bytes) lies within one variable.
  bool allocated(uint32_t address, int64_t bytes) const;
  /// `4 bytes past the end of a variable of 128 bytes`
  std::string describe(uint32_t address) const;

  static constexpr int64_t kArenaBytes = 1 << 20;

 private:
  struct Variable {
    const void* key = nullptr;
    int64_t begin = 0;
    int64_t bytes = 0;
  };
  Variable carve(const void* key, int64_t bytes, int64_t align);

  char* base_ = nullptr;
  int64_t used_ = 0;
  int64_t static_bytes_ = 0;
  Variable dynamic_;
  std::vector<Variable> variables_;
};

}  // namespace ashlar::emulator
