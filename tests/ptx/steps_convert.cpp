// Conversions and moves. Compiled with -frounding-math.
#include <cfenv>
#include <cmath>
#include <limits>
#include <utility>

#include "tests/ptx/steps.h"

namespace ashlar::ptx {
namespace {

/// To an integer: rounded as asked, cut to what the type can hold; NaN is zero.
template <typename To, typename From>
To to_integer(From value, int rounding) {
  if (std::isnan(value)) return sizeof(To) == 8 ? static_cast<To>(uint64_t{1} << 63) : To{0};
  From whole = value;
  switch (rounding) {
    case FE_TOWARDZERO: whole = std::trunc(value); break;
    case FE_DOWNWARD: whole = std::floor(value); break;
    case FE_UPWARD: whole = std::ceil(value); break;
    default: whole = std::nearbyint(value);
  }
  // 2^k and -2^k are exact in every type that comes here.
  const auto top = std::ldexp(From{1}, std::numeric_limits<To>::digits);
  if (whole >= top) return std::numeric_limits<To>::max();
  if (whole < static_cast<From>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  return static_cast<To>(whole);
}

template <typename To, typename From>
To converted(const Instruction& i, From value) {
  if constexpr (std::is_integral_v<From> && std::is_integral_v<To>) {
    if (!i.saturate) return static_cast<To>(value);
    if (std::cmp_less(value, std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    return std::cmp_greater(value, std::numeric_limits<To>::max()) ? std::numeric_limits<To>::max()
                                                                   : static_cast<To>(value);
  } else if constexpr (std::is_integral_v<To>) {
    return to_integer<To>(value, i.rounding);
  } else {
    const int before = std::fegetround();
    std::fesetround(i.rounding);
    const volatile From from = value;
    volatile To to;
    if constexpr (std::is_same_v<To, From>) {
      to = i.whole ? std::nearbyint(from) : from;  // with an integer rounding: to a whole number
    } else {
      to = static_cast<To>(from);
    }
    std::fesetround(before);
    To result = to;
    if (i.ftz && std::fpclassify(result) == FP_SUBNORMAL) result = std::copysign(To{0}, result);
    if (i.saturate) result = std::isnan(result) ? To{0} : std::min(std::max(To{0}, result), To{1});
    return result;
  }
}

template <typename To, typename From>
void convert(Thread& t, const Instruction& i) {
  t.set<To>(i.operands[0], converted<To, From>(i, t.get<From>(i.operands[1])));
}

template <typename From>
Step to_type(Type to) {
  switch (to) {
    case Type::kU8:
    case Type::kB8: return convert<uint8_t, From>;
    case Type::kS8: return convert<int8_t, From>;
    case Type::kU16:
    case Type::kB16: return convert<uint16_t, From>;
    case Type::kS16: return convert<int16_t, From>;
    case Type::kU32:
    case Type::kB32: return convert<uint32_t, From>;
    case Type::kS32: return convert<int32_t, From>;
    case Type::kU64:
    case Type::kB64: return convert<uint64_t, From>;
    case Type::kS64: return convert<int64_t, From>;
    case Type::kF32: return convert<float, From>;
    case Type::kF64: return convert<double, From>;
    default: return nullptr;
  }
}
Step from_type(Type to, Type from) {
  switch (from) {
    case Type::kU8:
    case Type::kB8: return to_type<uint8_t>(to);
    case Type::kS8: return to_type<int8_t>(to);
    case Type::kU16:
    case Type::kB16: return to_type<uint16_t>(to);
    case Type::kS16: return to_type<int16_t>(to);
    case Type::kU32:
    case Type::kB32: return to_type<uint32_t>(to);
    case Type::kS32: return to_type<int32_t>(to);
    case Type::kU64:
    case Type::kB64: return to_type<uint64_t>(to);
    case Type::kS64: return to_type<int64_t>(to);
    case Type::kF32: return to_type<float>(to);
    case Type::kF64: return to_type<double>(to);
    default: return nullptr;
  }
}

void bf16_of_float(Thread& t, const Instruction& i) {
  t.set<uint16_t>(i.operands[0], BF16::round_bits(t.get<float>(i.operands[1])));
}
/// d, a, b: a is the upper half
void bf16_pair_of_floats(Thread& t, const Instruction& i) {
  const uint32_t upper = BF16::round_bits(t.get<float>(i.operands[1])),
                 lower = BF16::round_bits(t.get<float>(i.operands[2]));
  t.set<uint32_t>(i.operands[0], upper << 16 | lower);
}
void float_of_bf16(Thread& t, const Instruction& i) {
  t.set<uint32_t>(i.operands[0], uint32_t{t.get<uint16_t>(i.operands[1])} << 16);
}

/// One register, or parts of registers side by side, the lowest first.
template <typename T>
struct Move {
  static void step(Thread& t, const Instruction& i) {
    const int parts_to = i.groups[0], parts_from = i.groups[1];
    const Operand* from = i.operands.data() + parts_to;
    constexpr int kBits = static_cast<int>(sizeof(T)) * 8;
    uint64_t bits = 0;
    if (parts_from == 1) {
      const T value = t.get<T>(*from);
      std::memcpy(&bits, &value, sizeof(T));
    } else {
      const int width = kBits / parts_from;
      for (int part = 0; part < parts_from; ++part) {
        bits |= (t.get<uint64_t>(from[part]) & ((uint64_t{1} << width) - 1)) << (part * width);
      }
    }
    if (parts_to == 1) {
      t.set<uint64_t>(i.operands[0], bits);
      return;
    }
    const int width = kBits / parts_to;
    for (int part = 0; part < parts_to; ++part) {
      t.set<uint64_t>(i.operands[static_cast<size_t>(part)], bits >> (part * width) & ((uint64_t{1} << width) - 1));
    }
  }
};
void move_predicate(Thread& t, const Instruction& i) { t.set<uint64_t>(i.operands[0], t.test(i.operands[1])); }

}  // namespace

Step convert_step(const Parts& p, Instruction& i) {
  const Type type = last_type(p);
  if (p[0] == "mov") {
    if (type == Type::kPred) return move_predicate;
    return of_any<Move>(type);
  }
  if (p[0] == "cvta") {
    return nullptr;  // an address: steps_memory.cpp
  }
  if (p[0] != "cvt" || p.size() < 3) return nullptr;
  i.ftz = has(p, "ftz");
  i.saturate = has(p, "sat");
  const bool whole = has(p, "rni") || has(p, "rzi") || has(p, "rmi") || has(p, "rpi");
  i.whole = whole;
  i.rounding = has(p, "rz") || has(p, "rzi")   ? FE_TOWARDZERO
               : has(p, "rm") || has(p, "rmi") ? FE_DOWNWARD
               : has(p, "rp") || has(p, "rpi") ? FE_UPWARD
                                               : FE_TONEAREST;
  const Type to = type_of(p[p.size() - 2]);
  if (has(p, "relu") || has(p, "satfinite")) return nullptr;
  if (to == Type::kBF16 && type == Type::kF32) return has(p, "rn") ? bf16_of_float : nullptr;
  if (to == Type::kBF16x2 && type == Type::kF32) return has(p, "rn") ? bf16_pair_of_floats : nullptr;
  if (to == Type::kF32 && type == Type::kBF16) return float_of_bf16;
  return from_type(to, type);
}

}  // namespace ashlar::ptx
