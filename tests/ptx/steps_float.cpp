// Floating point, comparisons and choices. Compiled with -frounding-math: instructions round as they say.
#include <cfenv>
#include <cmath>
#include <limits>

#include "tests/gpu_emulator/approximate.h"
#include "tests/ptx/steps.h"

namespace ashlar::ptx {
namespace {

class Rounding {
 public:
  explicit Rounding(int mode) : other_(mode != FE_TONEAREST) {
    if (other_) std::fesetround(mode);
  }
  Rounding(const Rounding&) = delete;
  Rounding& operator=(const Rounding&) = delete;
  ~Rounding() {
    if (other_) std::fesetround(FE_TONEAREST);
  }

 private:
  bool other_;
};

template <typename T>
T flushed(const Instruction& i, T value) {
  return i.ftz && std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(T{0}, value) : value;
}
template <typename T>
T operand(Thread& t, const Instruction& i, size_t which) {
  return flushed(i, t.get<T>(i.operands[which]));
}
template <typename T>
void finish(Thread& t, const Instruction& i, T value) {
  value = flushed(i, value);
  if (i.saturate) value = std::isnan(value) ? T{0} : std::min(std::max(T{0}, value), T{1});
  t.set<T>(i.operands[0], value);
}

template <typename Op>
struct Binary {
  template <typename T>
  struct Of {
    static void step(Thread& t, const Instruction& i) {
      const volatile T a = operand<T>(t, i, 1), b = operand<T>(t, i, 2);
      T result;
      {
        const Rounding rounding(i.rounding);
        const volatile T r = Op::template of<T>(a, b);
        result = r;
      }
      finish(t, i, result);
    }
  };
};
template <typename Op>
struct Unary {
  template <typename T>
  struct Of {
    static void step(Thread& t, const Instruction& i) {
      const volatile T a = operand<T>(t, i, 1);
      T result;
      {
        const Rounding rounding(i.rounding);
        const volatile T r = Op::template of<T>(a);
        result = r;
      }
      finish(t, i, result);
    }
  };
};
template <typename T>
struct Fma {
  static void step(Thread& t, const Instruction& i) {
    const volatile T a = operand<T>(t, i, 1), b = operand<T>(t, i, 2), c = operand<T>(t, i, 3);
    T result;
    {
      const Rounding rounding(i.rounding);
      const volatile T r = std::fma(a, b, c);
      result = r;
    }
    finish(t, i, result);
  }
};

struct Add {
  template <typename T>
  static T of(T a, T b) {
    return a + b;
  }
};
struct Sub {
  template <typename T>
  static T of(T a, T b) {
    return a - b;
  }
};
struct Mul {
  template <typename T>
  static T of(T a, T b) {
    return a * b;
  }
};
struct Div {
  template <typename T>
  static T of(T a, T b) {
    return a / b;
  }
};
/// Of a number and a NaN the number; +0 is more than -0.
struct Min {
  template <typename T>
  static T of(T a, T b) {
    if (a == b) return std::signbit(a) ? a : b;
    return a < b || std::isnan(b) ? a : b;
  }
};
struct Max {
  template <typename T>
  static T of(T a, T b) {
    if (a == b) return std::signbit(a) ? b : a;
    return a > b || std::isnan(b) ? a : b;
  }
};
/// The sign of the first, the rest of the second.
struct Copysign {
  template <typename T>
  static T of(T a, T b) {
    return std::copysign(b, a);
  }
};
struct Neg {
  template <typename T>
  static T of(T a) {
    return -a;
  }
};
struct Abs {
  template <typename T>
  static T of(T a) {
    return std::fabs(a);
  }
};
struct Sqrt {
  template <typename T>
  static T of(T a) {
    return std::sqrt(a);
  }
};
struct Rcp {
  template <typename T>
  static T of(T a) {
    return T{1} / a;
  }
};

// Approximate ones: those of the emulator's table.
template <float (*kFunction)(float, bool)>
void approximation(Thread& t, const Instruction& i) {
  finish(t, i, kFunction(t.get<float>(i.operands[1]), i.ftz));
}
template <double (*kFunction)(double)>
void wide_approximation(Thread& t, const Instruction& i) {
  finish(t, i, kFunction(t.get<double>(i.operands[1])));
}
float tanh(float x, bool) { return emulator::approximate::tanh(x); }
void approximate_quotient(Thread& t, const Instruction& i) {
  finish(t, i, emulator::approximate::div(t.get<float>(i.operands[1]), t.get<float>(i.operands[2]), i.ftz));
}
Step approximate_step(std::string_view name, Type type) {
  namespace table = emulator::approximate;
  if (type == Type::kF64) {
    if (name == "rcp") return wide_approximation<table::rcp>;
    return name == "rsqrt" ? static_cast<Step>(wide_approximation<table::rsqrt>) : nullptr;
  }
  if (type != Type::kF32) return nullptr;
  if (name == "div") return approximate_quotient;
  if (name == "rcp") return approximation<table::rcp>;
  if (name == "sqrt") return approximation<table::sqrt>;
  if (name == "rsqrt") return approximation<table::rsqrt>;
  if (name == "ex2") return approximation<table::ex2>;
  if (name == "lg2") return approximation<table::lg2>;
  if (name == "sin") return approximation<table::sin>;
  if (name == "cos") return approximation<table::cos>;
  return name == "tanh" ? static_cast<Step>(approximation<tanh>) : nullptr;
}

// Comparisons.

enum class Compare { kEq, kNe, kLt, kLe, kGt, kGe, kEqu, kNeu, kLtu, kLeu, kGtu, kGeu, kNum, kNan };
constexpr std::pair<std::string_view, Compare> kCompares[] = {
    {"eq", Compare::kEq},   {"ne", Compare::kNe},   {"lt", Compare::kLt},   {"le", Compare::kLe},
    {"gt", Compare::kGt},   {"ge", Compare::kGe},   {"lo", Compare::kLt},   {"ls", Compare::kLe},
    {"hi", Compare::kGt},   {"hs", Compare::kGe},   {"equ", Compare::kEqu}, {"neu", Compare::kNeu},
    {"ltu", Compare::kLtu}, {"leu", Compare::kLeu}, {"gtu", Compare::kGtu}, {"geu", Compare::kGeu},
    {"num", Compare::kNum}, {"nan", Compare::kNan}};

template <typename T>
bool compare(Compare how, T a, T b) {
  bool unordered = false;
  if constexpr (std::is_floating_point_v<T>) unordered = std::isnan(a) || std::isnan(b);
  switch (how) {
    case Compare::kEq: return a == b;
    case Compare::kNe: return a != b && !unordered;
    case Compare::kLt: return a < b;
    case Compare::kLe: return a <= b;
    case Compare::kGt: return a > b;
    case Compare::kGe: return a >= b;
    case Compare::kEqu: return unordered || a == b;
    case Compare::kNeu: return unordered || a != b;
    case Compare::kLtu: return unordered || a < b;
    case Compare::kLeu: return unordered || a <= b;
    case Compare::kGtu: return unordered || a > b;
    case Compare::kGeu: return unordered || a >= b;
    case Compare::kNum: return !unordered;
    case Compare::kNan: return unordered;
  }
  return false;
}

/// What combines a comparison with a predicate.
enum class Combine { kNone, kAnd, kOr, kXor };
bool combined(Combine how, bool a, bool c) {
  switch (how) {
    case Combine::kNone: return a;
    case Combine::kAnd: return a && c;
    case Combine::kOr: return a || c;
    case Combine::kXor: return a != c;
  }
  return a;
}

// setp's modifiers travel in fields that floats alone use otherwise: `rounding` holds both.
int packed(Compare how, Combine with) { return static_cast<int>(how) * 4 + static_cast<int>(with); }

template <typename T>
T comparand(Thread& t, const Instruction& i, size_t which) {
  if constexpr (std::is_floating_point_v<T>) {
    return operand<T>(t, i, which);
  } else {
    return t.get<T>(i.operands[which]);
  }
}

/// p[|q], a, b[, c]: p = (a ? b) with c, q = not (a ? b) with c
template <typename T>
struct Setp {
  static void step(Thread& t, const Instruction& i) {
    const auto how = static_cast<Compare>(i.rounding / 4);
    const auto with = static_cast<Combine>(i.rounding % 4);
    const size_t sources = with == Combine::kNone ? 2 : 3;
    const size_t first = i.operands.size() - sources;
    const bool result = compare(how, comparand<T>(t, i, first), comparand<T>(t, i, first + 1));
    const bool c = with != Combine::kNone && t.test(i.operands.back());
    t.set<uint64_t>(i.operands[0], combined(with, result, c));
    if (first == 2) t.set<uint64_t>(i.operands[1], combined(with, !result, c));
  }
};

template <typename T>
struct Selp {
  static void step(Thread& t, const Instruction& i) {
    t.set<T>(i.operands[0], t.test(i.operands[3]) ? t.get<T>(i.operands[1]) : t.get<T>(i.operands[2]));
  }
};

enum class Test { kFinite, kInfinite, kNumber, kNotANumber, kNormal, kSubnormal };
template <Test kTest>
struct Testp {
  template <typename T>
  struct Of {
    static void step(Thread& t, const Instruction& i) {
      const T a = t.get<T>(i.operands[1]);
      const int kind = std::fpclassify(a);
      bool result = false;
      switch (kTest) {
        case Test::kFinite: result = kind != FP_NAN && kind != FP_INFINITE; break;
        case Test::kInfinite: result = kind == FP_INFINITE; break;
        case Test::kNumber: result = kind != FP_NAN; break;
        case Test::kNotANumber: result = kind == FP_NAN; break;
        case Test::kNormal: result = kind == FP_NORMAL || kind == FP_ZERO; break;
        case Test::kSubnormal: result = kind == FP_SUBNORMAL; break;
      }
      t.set<uint64_t>(i.operands[0], result);
    }
  };
};

Step comparison(const Parts& p, Instruction& i) {
  const auto* how =
      std::find_if(std::begin(kCompares), std::end(kCompares), [&](const auto& known) { return known.first == p[1]; });
  if (how == std::end(kCompares)) return nullptr;
  const Combine with = has(p, "and")   ? Combine::kAnd
                       : has(p, "or")  ? Combine::kOr
                       : has(p, "xor") ? Combine::kXor
                                       : Combine::kNone;
  i.rounding = packed(how->second, with);
  return of_any<Setp>(last_type(p));
}

}  // namespace

Step float_step(const Parts& p, Instruction& i) {
  const std::string_view name = p[0];
  const Type type = last_type(p);
  i.ftz = has(p, "ftz");
  i.saturate = has(p, "sat");
  if (name == "setp") return comparison(p, i);
  if (name == "selp") return of_any<Selp>(type);
  i.rounding = has(p, "rz") ? FE_TOWARDZERO : has(p, "rm") ? FE_DOWNWARD : has(p, "rp") ? FE_UPWARD : FE_TONEAREST;
  if ((type != Type::kF32 && type != Type::kF64) || has(p, "NaN") || has(p, "xorsign")) return nullptr;
  if (has(p, "approx") || has(p, "full")) return approximate_step(name, type);
  if (name == "add") return of_float<Binary<Add>::Of>(type);
  if (name == "sub") return of_float<Binary<Sub>::Of>(type);
  if (name == "mul") return of_float<Binary<Mul>::Of>(type);
  if (name == "fma" || name == "mad") return of_float<Fma>(type);
  if (name == "div") return of_float<Binary<Div>::Of>(type);
  if (name == "min") return of_float<Binary<Min>::Of>(type);
  if (name == "max") return of_float<Binary<Max>::Of>(type);
  if (name == "copysign") return of_float<Binary<Copysign>::Of>(type);
  if (name == "neg") return of_float<Unary<Neg>::Of>(type);
  if (name == "abs") return of_float<Unary<Abs>::Of>(type);
  if (name == "sqrt") return of_float<Unary<Sqrt>::Of>(type);
  if (name == "rcp") return of_float<Unary<Rcp>::Of>(type);
  if (name == "testp") {
    if (p[1] == "finite") return of_float<Testp<Test::kFinite>::Of>(type);
    if (p[1] == "infinite") return of_float<Testp<Test::kInfinite>::Of>(type);
    if (p[1] == "number") return of_float<Testp<Test::kNumber>::Of>(type);
    if (p[1] == "notanumber") return of_float<Testp<Test::kNotANumber>::Of>(type);
    if (p[1] == "normal") return of_float<Testp<Test::kNormal>::Of>(type);
    if (p[1] == "subnormal") return of_float<Testp<Test::kSubnormal>::Of>(type);
    return nullptr;
  }
  return nullptr;
}

}  // namespace ashlar::ptx
