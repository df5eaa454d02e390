#include "tests/ptx/thread.h"

#include <algorithm>

#include "core/base/strings.h"
#include "tests/gpu_emulator/block.h"
#include "tests/gpu_emulator/device_calls.h"

namespace ashlar::ptx {

namespace {

uint64_t special_value(Special which) {
  using emulator::block_extent, emulator::block_index, emulator::grid_extent, emulator::thread_index;
  const uint32_t self = 1U << emulator::lane_index();
  switch (which) {
    case Special::kTidX: return thread_index().x;
    case Special::kTidY: return thread_index().y;
    case Special::kTidZ: return thread_index().z;
    case Special::kNtidX: return block_extent().x;
    case Special::kNtidY: return block_extent().y;
    case Special::kNtidZ: return block_extent().z;
    case Special::kCtaidX: return block_index().x;
    case Special::kCtaidY: return block_index().y;
    case Special::kCtaidZ: return block_index().z;
    case Special::kNctaidX: return grid_extent().x;
    case Special::kNctaidY: return grid_extent().y;
    case Special::kNctaidZ: return grid_extent().z;
    case Special::kLaneid: return static_cast<uint64_t>(emulator::lane_index());
    case Special::kLanemaskEq: return self;
    case Special::kLanemaskLt: return self - 1;
    case Special::kLanemaskLe: return self | (self - 1);
    case Special::kLanemaskGt: return ~(self | (self - 1));
    case Special::kLanemaskGe: return ~(self - 1);
  }
  return 0;
}

}  // namespace

void Thread::fault(const std::string& text) const { emulator::fault(text.c_str(), loc()); }

Thread::Frame Thread::make_frame(const Function& function) const {
  Frame frame{.function = &function, .registers = {}, .memory = {}};
  // What nobody has written is NaN, and no address.
  frame.registers.assign(static_cast<size_t>(function.num_registers), ~uint64_t{0});
  const auto bytes = static_cast<size_t>(std::max<int64_t>(function.frame_bytes, 1));
  frame.memory = std::make_unique<std::byte[]>(bytes);
  std::memset(frame.memory.get(), 0xff, bytes);
  return frame;
}

std::byte* Thread::variable(Frame& frame, int index) const {
  return frame.memory.get() + frame.function->variables[static_cast<size_t>(index)].offset;
}

void Thread::run(const Function& entry, const std::vector<std::vector<std::byte>>& arguments) {
  frames_.push_back(make_frame(entry));
  if (arguments.size() != entry.parameters.size()) {
    fault(str_cat(entry.name, " takes ", entry.parameters.size(), " parameters, got ", arguments.size()));
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Variable& parameter = entry.variables[static_cast<size_t>(entry.parameters[i])];
    if (parameter.bytes != static_cast<int64_t>(arguments[i].size())) {
      fault(str_cat(parameter.name, " has ", parameter.bytes, " bytes, got ", arguments[i].size()));
    }
    std::copy(arguments[i].begin(), arguments[i].end(), variable(frames_.back(), entry.parameters[i]));
  }
  while (!frames_.empty()) {
    Frame& frame = frames_.back();
    if (frame.next >= static_cast<int64_t>(frame.function->code.size())) {
      leave();
      continue;
    }
    const Instruction& instruction = frame.function->code[static_cast<size_t>(frame.next++)];
    line_ = instruction.line;
    if (instruction.predicate >= 0 &&
        ((frame.registers[static_cast<size_t>(instruction.predicate)] & 1U) != 0) == instruction.unless) {
      continue;
    }
    instruction.step(*this, instruction);
  }
}

void Thread::call(const Instruction& instruction) {
  // (results), function, (arguments), where lists may be absent
  const auto function = std::find_if(instruction.operands.begin(), instruction.operands.end(),
                                     [](const Operand& o) { return o.kind == Operand::Kind::kFunction; });
  const Function& callee = program_.function(function->index);
  Frame frame = make_frame(callee);
  auto argument = function + 1;
  for (const int parameter : callee.parameters) {
    const auto bytes = static_cast<size_t>(callee.variables[static_cast<size_t>(parameter)].bytes);
    std::memcpy(variable(frame, parameter), variable(frames_.back(), argument->index), bytes);
    ++argument;
  }
  frame.call = &instruction;
  frames_.push_back(std::move(frame));
}

void Thread::leave() {
  Frame done = std::move(frames_.back());
  frames_.pop_back();
  if (done.call == nullptr) return;
  auto result = done.call->operands.begin();
  for (const int from : done.function->results) {
    const auto bytes = static_cast<size_t>(done.function->variables[static_cast<size_t>(from)].bytes);
    std::memcpy(variable(frames_.back(), result->index), variable(done, from), bytes);
    ++result;
  }
}

uint64_t Thread::read(const Operand& operand) {
  switch (operand.kind) {
    case Operand::Kind::kRegister: return frames_.back().registers[static_cast<size_t>(operand.index)];
    case Operand::Kind::kSymbol: return address_of(operand.index) + operand.value;
    case Operand::Kind::kSpecial: return special_value(static_cast<Special>(operand.index));
    default: return operand.value;
  }
}

void Thread::write(const Operand& operand, uint64_t bits) {
  if (operand.kind == Operand::Kind::kSink) return;
  if (operand.kind != Operand::Kind::kRegister) fault("a result that is no register");
  frames_.back().registers[static_cast<size_t>(operand.index)] = bits;
}

uint64_t Thread::address_of(int index) {
  Frame& frame = frames_.back();
  const Variable& v = frame.function->variables[static_cast<size_t>(index)];
  switch (v.space) {
    case Space::kLocal:
    case Space::kParam: return reinterpret_cast<uint64_t>(variable(frame, index));
    case Space::kShared: {
      // The module's variables are the first of each function's, so that all functions agree on their key.
      const bool own = index >= program_.num_globals();
      const void* key = own ? static_cast<const void*>(&v) : program_.global(index);
      void* pointer =
          v.bytes == 0 ? emulator::dynamic_shared(loc()) : emulator::static_shared(key, v.bytes, v.align, loc());
      return emulator::shared_address(pointer, loc());
    }
    default: return reinterpret_cast<uint64_t>(program_.global(index));
  }
}

char* Thread::memory(const Instruction& instruction, const Operand& address, int64_t bytes) {
  uint64_t at = read(address);
  if (address.kind == Operand::Kind::kRegister) at += address.value;
  const Space space = instruction.space;
  if (space == Space::kShared) {
    return emulator::internal::current_block->shared_pointer(static_cast<uint32_t>(at), bytes, bytes, loc());
  }
  if (at % static_cast<uint64_t>(bytes) != 0) {
    fault(str_cat(instruction.opcode, " of ", bytes, " bytes at an address that is not a multiple of them"));
  }
  auto* pointer = reinterpret_cast<char*>(at);
  const auto within = [&](const Frame& frame) {
    const auto* base = reinterpret_cast<const char*>(frame.memory.get());
    return pointer >= base && pointer + bytes <= base + frame.function->frame_bytes;
  };
  const bool own = std::any_of(frames_.begin(), frames_.end(), within);
  const emulator::SharedMemory& shared = emulator::internal::current_block->shared();
  bool allowed = false;
  switch (space) {
    case Space::kLocal:
    case Space::kParam: allowed = own; break;
    case Space::kGeneric:
      if (shared.contains(pointer)) {
        return emulator::internal::current_block->shared_pointer(shared.address(pointer), bytes, bytes, loc());
      }
      allowed = own || program_.is_global(pointer, bytes) || may_touch_(pointer, bytes);
      break;
    default: allowed = program_.is_global(pointer, bytes) || (!own && may_touch_(pointer, bytes));
  }
  if (!allowed) fault(str_cat(instruction.opcode, " of ", bytes, " bytes outside of what it may touch"));
  return pointer;
}

uint64_t Thread::to_generic(Space space, uint64_t address) {
  if (space != Space::kShared) return address;
  return reinterpret_cast<uint64_t>(
      emulator::internal::current_block->shared().pointer(static_cast<uint32_t>(address)));
}

uint64_t Thread::from_generic(Space space, uint64_t address) {
  if (space != Space::kShared) return address;
  return emulator::shared_address(reinterpret_cast<const void*>(address), loc());
}

}  // namespace ashlar::ptx
