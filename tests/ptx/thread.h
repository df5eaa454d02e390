#pragma once

#include <bit>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "tests/gpu_emulator/loc.h"
#include "tests/ptx/program.h"

namespace ashlar::ptx {

/// Whether a kernel may touch these bytes outside of shared and local memory.
using MayTouch = std::function<bool(const void* at, int64_t bytes)>;

/// One thread of a kernel: registers, stack, place in the code. Barriers, shuffles, shared memory and tensor cores are
/// the emulator's, so it runs as a thread of a grid there.
class Thread {
 public:
  Thread(const Program& program, const MayTouch& may_touch) : program_(program), may_touch_(may_touch) {}

  /// Runs a kernel to its end. One argument each parameter, as bytes.
  void run(const Function& entry, const std::vector<std::vector<std::byte>>& arguments);

  template <typename T>
  T get(const Operand& operand) {
    const uint64_t bits = read(operand);
    T value;
    std::memcpy(&value, &bits, sizeof(T));
    return value;
  }
  template <typename T>
  void set(const Operand& operand, T value) {
    static_assert(sizeof(T) <= 8);
    uint64_t bits = 0;
    if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
      bits = static_cast<uint64_t>(static_cast<int64_t>(value));
    } else {
      std::memcpy(&bits, &value, sizeof(T));
    }
    write(operand, bits);
  }
  bool test(const Operand& operand) { return ((read(operand) & 1U) != 0) != operand.negated; }

  /// The memory at an operand's address. Faults where the thread may not go, or where the address is not aligned.
  char* memory(const Instruction& instruction, const Operand& address, int64_t bytes);
  /// The host's pointer for an address of a space, and the other way.
  uint64_t to_generic(Space space, uint64_t address);
  uint64_t from_generic(Space space, uint64_t address);

  void jump(const Operand& label) { frames_.back().next = static_cast<int64_t>(label.value); }
  void call(const Instruction& instruction);
  void leave();
  void end() { frames_.clear(); }
  [[noreturn]] void fault(const std::string& text) const;
  emulator::Loc loc() const { return {program_.name().c_str(), line_}; }

  uint64_t carry = 0;  ///< of add.cc and its like

 private:
  struct Frame {
    const Function* function;
    std::vector<uint64_t> registers;
    std::unique_ptr<std::byte[]> memory;  ///< stack and parameters
    int64_t next = 0;
    const Instruction* call = nullptr;  ///< what waits for its results
  };

  Frame make_frame(const Function& function) const;
  std::byte* variable(Frame& frame, int index) const;
  uint64_t read(const Operand& operand);
  void write(const Operand& operand, uint64_t bits);
  uint64_t address_of(int variable);

  const Program& program_;
  const MayTouch& may_touch_;
  std::vector<Frame> frames_;
  int line_ = 0;
};

}  // namespace ashlar::ptx
