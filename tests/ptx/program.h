#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

/// PTX as nvcc emits it, read from its text.
namespace ashlar::ptx {

enum class Type : uint8_t {
  kNone,
  kPred,
  kB8,
  kU8,
  kS8,
  kB16,
  kU16,
  kS16,
  kBF16,
  kB32,
  kU32,
  kS32,
  kF32,
  kBF16x2,
  kB64,
  kU64,
  kS64,
  kF64,
};
/// kNone for a word that is no type of ours.
Type type_of(std::string_view word);
int bytes_of(Type type);

enum class Space : uint8_t { kGeneric, kGlobal, kShared, kLocal, kParam, kConst };

struct Operand {
  enum class Kind : uint8_t {
    kRegister,
    kImmediate,  ///< `value` is its bits
    kSymbol,     ///< the address of a variable, and `value` bytes
    kSpecial,    ///< a special register
    kSink,       ///< _: a result that nobody wants
    kLabel,      ///< `value` is the instruction to go on with
    kFunction,
  };
  Kind kind = Kind::kImmediate;
  bool negated = false;  ///< !%p
  int32_t index = 0;     ///< of the register, the variable, the special register or the function
  uint64_t value = 0;
};

enum class Special : int32_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneid,
  kLanemaskEq,
  kLanemaskLt,
  kLanemaskLe,
  kLanemaskGt,
  kLanemaskGe,
};

class Thread;
struct Instruction;
/// What an instruction does to a thread, chosen when the text is read.
using Step = void (*)(Thread&, const Instruction&);

struct Instruction {
  Step step = nullptr;
  int32_t predicate = -1;  ///< register; -1: always
  bool unless = false;     ///< @!%p
  Space space = Space::kGeneric;
  bool ftz = false;               ///< subnormal operands and results are zero
  bool saturate = false;          ///< results of floats are cut to [0, 1], of integers to their type
  bool whole = false;             ///< cvt.rni and its like
  int rounding = 0;               ///< FE_TONEAREST and so on
  int line = 0;                   ///< of the text
  std::string_view opcode;        ///< whole, with its modifiers
  std::vector<Operand> operands;  ///< vectors element by element
  std::vector<int> groups;        ///< elements of each operand as written
};

/// A variable: of the module, of a function's stack or of its parameters.
struct Variable {
  std::string name;
  Space space = Space::kGlobal;
  int64_t bytes = 0;  ///< 0: `.extern .shared`, as long as the launch says
  int64_t align = 1;
  int64_t offset = 0;           ///< in its function's frame: local and parameters
  std::vector<std::byte> data;  ///< of the module's: initial content
};

struct Function {
  std::string name;
  bool entry = false;
  int num_registers = 0;
  int64_t frame_bytes = 0;
  std::vector<Variable> variables;  ///< the module's first, then its own
  std::vector<int> parameters;      ///< which of them, in order
  std::vector<int> results;
  std::vector<Instruction> code;
};

/// A module. Throws input_error on text that it does not know, naming line and instruction.
class Program {
 public:
  Program(std::string name, std::string text);

  /// By mangled name; null when there is none.
  const Function* find(std::string_view name) const;
  const Function& function(int index) const { return functions_[static_cast<size_t>(index)]; }
  const std::vector<Function>& functions() const { return functions_; }
  const std::string& name() const { return name_; }
  /// The module's variables in global and constant memory, as the host sees them.
  std::byte* global(int variable) const { return globals_[static_cast<size_t>(variable)].get(); }
  int64_t num_globals() const { return static_cast<int64_t>(globals_.size()); }
  bool is_global(const void* at, int64_t bytes) const;

 private:
  friend class Parser;

  std::string name_, text_;
  std::vector<Function> functions_;
  std::vector<Variable> module_variables_;
  std::vector<std::unique_ptr<std::byte[]>> globals_;
};

/// The step of an opcode, taken apart at its dots; null for one that this interpreter does not know. Sets what else the
/// modifiers say.
Step find_step(const std::vector<std::string_view>& parts, Instruction& instruction);

}  // namespace ashlar::ptx
