#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "core/base/error.h"
#include "tests/ptx/program.h"

namespace ashlar::ptx {
namespace {

constexpr struct {
  std::string_view word;
  Type type;
  int bytes;
} kTypes[] = {{"pred", Type::kPred, 1},     {"b8", Type::kB8, 1},   {"u8", Type::kU8, 1},   {"s8", Type::kS8, 1},
              {"b16", Type::kB16, 2},       {"u16", Type::kU16, 2}, {"s16", Type::kS16, 2}, {"bf16", Type::kBF16, 2},
              {"b32", Type::kB32, 4},       {"u32", Type::kU32, 4}, {"s32", Type::kS32, 4}, {"f32", Type::kF32, 4},
              {"bf16x2", Type::kBF16x2, 4}, {"b64", Type::kB64, 8}, {"u64", Type::kU64, 8}, {"s64", Type::kS64, 8},
              {"f64", Type::kF64, 8}};

constexpr std::pair<std::string_view, Special> kSpecials[] = {{"%tid.x", Special::kTidX},
                                                              {"%tid.y", Special::kTidY},
                                                              {"%tid.z", Special::kTidZ},
                                                              {"%ntid.x", Special::kNtidX},
                                                              {"%ntid.y", Special::kNtidY},
                                                              {"%ntid.z", Special::kNtidZ},
                                                              {"%ctaid.x", Special::kCtaidX},
                                                              {"%ctaid.y", Special::kCtaidY},
                                                              {"%ctaid.z", Special::kCtaidZ},
                                                              {"%nctaid.x", Special::kNctaidX},
                                                              {"%nctaid.y", Special::kNctaidY},
                                                              {"%nctaid.z", Special::kNctaidZ},
                                                              {"%laneid", Special::kLaneid},
                                                              {"%lanemask_eq", Special::kLanemaskEq},
                                                              {"%lanemask_lt", Special::kLanemaskLt},
                                                              {"%lanemask_le", Special::kLanemaskLe},
                                                              {"%lanemask_gt", Special::kLanemaskGt},
                                                              {"%lanemask_ge", Special::kLanemaskGe}};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%'; }

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

}  // namespace

Type type_of(std::string_view word) {
  for (const auto& known : kTypes) {
    if (known.word == word) return known.type;
  }
  return Type::kNone;
}

int bytes_of(Type type) {
  for (const auto& known : kTypes) {
    if (known.type == type) return known.bytes;
  }
  return 0;
}

/// One pass over the text; labels and calls to functions further down are filled in at the end of what they belong to.
class Parser {
 public:
  explicit Parser(Program& program) : program_(program), text_(program.text_) {}

  void run() {
    skip_blanks();
    while (at_ < text_.size()) {
      directive();
      skip_blanks();
    }
    resolve_calls();
    for (const Variable& variable : program_.module_variables_) {
      const auto bytes = static_cast<size_t>(std::max<int64_t>(variable.bytes, 1));
      // Aligned as far as any variable is: make_unique gives 16.
      program_.globals_.push_back(std::make_unique<std::byte[]>(bytes));
      std::copy(variable.data.begin(), variable.data.end(), program_.globals_.back().get());
    }
  }

 private:
  struct PendingCall {
    size_t function, instruction, operand;
    std::string name;
  };

  // Characters and words.

  [[noreturn]] void fail(const std::string& expected) const {
    const size_t end = std::min(text_.find('\n', at_), text_.size());
    throw input_error("ptx", program_.name_, ":", line(), ": expected ", expected, ", got '",
                      text_.substr(at_, std::min<size_t>(end - at_, 80)), "'");
  }
  int line() const {
    if (at_ < counted_to_) return counted_lines_;
    counted_lines_ += static_cast<int>(
        std::count(text_.begin() + static_cast<int64_t>(counted_to_), text_.begin() + static_cast<int64_t>(at_), '\n'));
    counted_to_ = at_;
    return counted_lines_;
  }
  void skip_blanks() {
    while (at_ < text_.size()) {
      if (std::isspace(static_cast<unsigned char>(text_[at_])) != 0) {
        ++at_;
      } else if (text_.substr(at_, 2) == "//") {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (text_.substr(at_, 2) == "/*") {
        at_ = std::min(text_.find("*/", at_) + 2, text_.size());
      } else {
        return;
      }
    }
  }
  bool take(char c) {
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void need(char c) {
    if (!take(c)) fail(std::string("'") + c + "'");
  }
  bool next_is(char c) {
    skip_blanks();
    return at_ < text_.size() && text_[at_] == c;
  }
  /// Letters, digits, _ $ % and dots.
  std::string_view word() {
    skip_blanks();
    const size_t begin = at_;
    while (at_ < text_.size() && (is_word(text_[at_]) || text_[at_] == '.' || (text_[at_] == ':' && colons()))) {
      at_ += text_[at_] == ':' ? 2 : 1;
    }
    if (begin == at_) fail("a word");
    return text_.substr(begin, at_ - begin);
  }
  bool colons() const { return text_.substr(at_, 2) == "::"; }  // as in shared::cta
  void skip_to_line_end() { at_ = std::min(text_.find('\n', at_), text_.size()); }

  std::optional<uint64_t> number(std::string_view w) const {
    bool minus = false;
    if (!w.empty() && w[0] == '-') {
      minus = true;
      w.remove_prefix(1);
    }
    if (w.empty() || std::isdigit(static_cast<unsigned char>(w[0])) == 0) return std::nullopt;
    int base = 10;
    if (w.size() > 2 && w[0] == '0' &&
        (w[1] == 'x' || w[1] == 'X' || w[1] == 'f' || w[1] == 'F' || w[1] == 'd' || w[1] == 'D')) {
      base = 16;  // 0f and 0d: the bits of a float or double
      w.remove_prefix(2);
    }
    if (w.back() == 'U') w.remove_suffix(1);
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(w.data(), w.data() + w.size(), value, base);
    if (error != std::errc() || end != w.data() + w.size()) return std::nullopt;
    return minus ? ~value + 1 : value;
  }
  uint64_t need_number() {
    skip_blanks();
    const bool minus = take('-');
    const auto value = number(word());
    if (!value) fail("a number");
    return minus ? ~*value + 1 : *value;
  }

  // What stands outside of functions.

  void directive() {
    if (!next_is('.')) fail("a directive");
    const size_t begin = at_;
    const std::string_view w = word();
    if (w == ".version" || w == ".target" || w == ".address_size" || w == ".file") return skip_to_line_end();
    if (w == ".visible" || w == ".extern" || w == ".weak" || w == ".common") {
      extern_ = w == ".extern";
      return;
    }
    if (w == ".entry" || w == ".func") return function(w == ".entry");
    at_ = begin;
    program_.module_variables_.push_back(variable());
    extern_ = false;
  }

  /// .global .align 4 .b8 name[24] = {1, 2, ...};  and its like, the last ; included
  Variable variable() {
    Variable v;
    Type type = Type::kNone;
    bool of_target = false;  // behind .ptr: where the variable points to, and how that is aligned
    while (next_is('.')) {
      const std::string_view w = word();
      if (w == ".ptr") {
        of_target = true;
      } else if (w == ".align") {
        const auto align = static_cast<int64_t>(need_number());
        if (!of_target) v.align = align;
      } else if (of_target && (w == ".global" || w == ".const" || w == ".shared" || w == ".local")) {
        continue;
      } else if (w == ".global" || w == ".const" || w == ".shared" || w == ".local" || w == ".param") {
        v.space = w == ".global"   ? Space::kGlobal
                  : w == ".const"  ? Space::kConst
                  : w == ".shared" ? Space::kShared
                  : w == ".local"  ? Space::kLocal
                                   : Space::kParam;
      } else if (type_of(w.substr(1)) != Type::kNone) {
        type = type_of(w.substr(1));
      } else {
        at_ -= w.size();
        fail("a variable");
      }
    }
    if (type == Type::kNone) fail("the type of a variable");
    v.name = word();
    v.bytes = bytes_of(type);
    v.align = std::max<int64_t>(v.align, v.bytes);
    while (take('[')) {
      v.bytes = next_is(']') ? 0 : v.bytes * static_cast<int64_t>(need_number());
      need(']');
    }
    if (take('=')) {
      need('{');
      do {
        const uint64_t value = need_number();
        const auto* bytes = reinterpret_cast<const std::byte*>(&value);
        v.data.insert(v.data.end(), bytes, bytes + bytes_of(type));
      } while (take(','));
      need('}');
    }
    if (!in_list_) need(';');
    return v;
  }

  // Functions.

  void function(bool entry) {
    Function f;
    f.entry = entry;
    f.variables = program_.module_variables_;
    registers_.clear();
    num_registers_ = 0;
    labels_.clear();
    jumps_.clear();
    if (!entry && next_is('(')) f.results = parameter_list(f);
    f.name = word();
    if (next_is('(')) f.parameters = parameter_list(f);
    while (next_is('.')) {  // .maxntid 128, 1, 1 and other hints
      word();
      do need_number();
      while (take(','));
    }
    if (take(';')) return;  // a declaration
    need('{');
    hidden_.assign(1, {});
    while (!hidden_.empty()) {
      skip_blanks();
      if (take('{')) {
        hidden_.emplace_back();
      } else if (take('}')) {
        leave_scope();
      } else if (next_is('.')) {
        declaration(f);
      } else {
        statement(f);
      }
    }
    for (const auto& [instruction, operand, name] : jumps_) {
      const auto label = labels_.find(name);
      if (label == labels_.end()) throw input_error("ptx", program_.name_, ": no label '", name, "' in ", f.name);
      f.code[instruction].operands[operand].value = static_cast<uint64_t>(label->second);
    }
    f.num_registers = static_cast<int>(num_registers_);
    program_.functions_.push_back(std::move(f));
  }

  std::vector<int> parameter_list(Function& f) {
    std::vector<int> all;
    need('(');
    in_list_ = true;
    while (!take(')')) {
      all.push_back(add_variable(f, variable()));
      take(',');
    }
    in_list_ = false;
    return all;
  }

  int add_variable(Function& f, Variable v) {
    if (v.space == Space::kLocal || v.space == Space::kParam) {
      v.offset = round_up(f.frame_bytes, std::max<int64_t>(v.align, 8));
      f.frame_bytes = v.offset + v.bytes;
    }
    f.variables.push_back(std::move(v));
    return static_cast<int>(f.variables.size()) - 1;
  }

  /// A name hides that of the scope around it.
  void add_register(const std::string& name) {
    const auto hidden = registers_.find(name);
    hidden_.back().emplace_back(name, hidden == registers_.end() ? kNoRegister : hidden->second);
    registers_[name] = num_registers_++;
  }
  void leave_scope() {
    for (const auto& [name, before] : hidden_.back()) {
      if (before == kNoRegister) {
        registers_.erase(name);
      } else {
        registers_[name] = before;
      }
    }
    hidden_.pop_back();
  }

  void declaration(Function& f) {
    const size_t begin = at_;
    const std::string_view w = word();
    if (w == ".reg") {
      word();  // the type: every register has 64 bits here
      do {
        const std::string name(word());
        if (take('<')) {
          const uint64_t count = need_number();
          need('>');
          for (uint64_t i = 0; i < count; ++i) add_register(name + std::to_string(i));
        } else {
          add_register(name);
        }
      } while (take(','));
      return need(';');
    }
    if (w == ".pragma") {
      at_ = text_.find(';', at_) + 1;
      return;
    }
    if (w == ".loc" || w == ".file") return skip_to_line_end();
    at_ = begin;
    add_variable(f, variable());
  }

  void statement(Function& f) {
    Instruction i;
    i.line = line();
    if (take('@')) {
      i.unless = take('!');
      i.predicate = need_register(word());
    } else {
      const size_t begin = at_;
      const std::string_view w = word();
      if (take(':')) {
        labels_[std::string(w)] = f.code.size();
        return;
      }
      at_ = begin;
    }
    i.opcode = word();
    std::vector<std::string_view> parts;
    for (size_t from = 0; from <= i.opcode.size();) {
      size_t to = std::min(i.opcode.find('.', from), i.opcode.size());
      parts.push_back(i.opcode.substr(from, to - from));
      from = to + 1;
    }
    i.step = find_step(parts, i);
    if (i.step == nullptr) {
      throw input_error("ptx", program_.name_, ":", i.line, ": unknown instruction '", i.opcode,
                        "'; teach it to tests/ptx/steps_*.cpp");
    }
    while (!take(';')) {
      operand(f, i);
      if (!take(',')) take('|');  // setp writes p|q
    }
    f.code.push_back(std::move(i));
  }

  /// One as written: a register, a number, {a, b}, [address], or the lists of a call.
  void operand(const Function& f, Instruction& i) {
    const auto before = i.operands.size();
    if (take('{') || take('(')) {
      while (!take('}') && !take(')')) {
        single(f, i);
        take(',');
      }
    } else if (take('[')) {
      single(f, i);
      if (take('+')) i.operands.back().value += need_number();
      need(']');
    } else {
      single(f, i);
    }
    i.groups.push_back(static_cast<int>(i.operands.size() - before));
  }

  void single(const Function& f, Instruction& i) {
    Operand o;
    o.negated = take('!');
    skip_blanks();
    if (next_is('-')) {
      o.value = need_number();
      i.operands.push_back(o);
      return;
    }
    const std::string_view w = word();
    if (const auto reg = registers_.find(std::string(w)); reg != registers_.end()) {
      o.kind = Operand::Kind::kRegister;
      o.index = static_cast<int32_t>(reg->second);
    } else if (const auto value = number(w)) {
      o.value = *value;
    } else if (w == "_") {
      o.kind = Operand::Kind::kSink;
    } else if (w == "WARP_SZ") {
      o.value = 32;
    } else if (const auto* special = std::find_if(std::begin(kSpecials), std::end(kSpecials),
                                                  [&](const auto& known) { return known.first == w; });
               special != std::end(kSpecials)) {
      o.kind = Operand::Kind::kSpecial;
      o.index = static_cast<int32_t>(special->second);
    } else if (const int variable = find_variable(f, w); variable >= 0) {
      o.kind = Operand::Kind::kSymbol;
      o.index = variable;
    } else if (i.opcode.starts_with("bra")) {
      o.kind = Operand::Kind::kLabel;
      jumps_.push_back({f.code.size(), i.operands.size(), std::string(w)});
    } else if (i.opcode.starts_with("call")) {
      o.kind = Operand::Kind::kFunction;
      calls_.push_back({program_.functions_.size(), f.code.size(), i.operands.size(), std::string(w)});
    } else {
      at_ -= w.size();
      fail("an operand");
    }
    i.operands.push_back(o);
  }

  static int find_variable(const Function& f, std::string_view name) {
    for (size_t v = f.variables.size(); v-- > 0;) {  // the innermost scope's is the last
      if (f.variables[v].name == name) return static_cast<int>(v);
    }
    return -1;
  }

  int32_t need_register(std::string_view name) {
    const auto found = registers_.find(std::string(name));
    if (found == registers_.end()) fail("a register");
    return static_cast<int32_t>(found->second);
  }

  void resolve_calls() {
    for (const PendingCall& call : calls_) {
      Operand& operand = program_.functions_[call.function].code[call.instruction].operands[call.operand];
      const auto& all = program_.functions_;
      const auto callee = std::find_if(all.begin(), all.end(), [&](const Function& f) { return f.name == call.name; });
      if (callee == all.end()) throw input_error("ptx", program_.name_, ": no function '", call.name, "' to call");
      operand.index = static_cast<int32_t>(callee - all.begin());
    }
  }

  Program& program_;
  std::string_view text_;
  size_t at_ = 0;
  mutable size_t counted_to_ = 0;
  mutable int counted_lines_ = 1;
  bool extern_ = false;
  bool in_list_ = false;
  static constexpr size_t kNoRegister = ~size_t{0};
  std::map<std::string, size_t> registers_;                          // what names mean now
  std::vector<std::vector<std::pair<std::string, size_t>>> hidden_;  // of each open scope: what they meant before
  size_t num_registers_ = 0;
  std::map<std::string, size_t> labels_;
  struct Jump {
    size_t instruction, operand;
    std::string name;
  };
  std::vector<Jump> jumps_;
  std::vector<PendingCall> calls_;
};

Program::Program(std::string name, std::string text) : name_(std::move(name)), text_(std::move(text)) {
  Parser(*this).run();
}

const Function* Program::find(std::string_view name) const {
  for (const Function& f : functions_) {
    if (f.entry && f.name == name) return &f;
  }
  return nullptr;
}

bool Program::is_global(const void* at, int64_t bytes) const {
  const auto* begin = static_cast<const std::byte*>(at);
  for (size_t i = 0; i < globals_.size(); ++i) {
    const std::byte* base = globals_[i].get();
    if (begin >= base && begin + bytes <= base + module_variables_[i].bytes) return true;
  }
  return false;
}

}  // namespace ashlar::ptx
