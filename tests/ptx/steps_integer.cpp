// Integers, bits and predicates.
#include <bit>

#include "tests/ptx/steps.h"

namespace ashlar::ptx {
namespace {

template <typename T>
struct UnsignedOf {
  using type = std::make_unsigned_t<T>;
};
template <>
struct UnsignedOf<__int128> {
  using type = unsigned __int128;
};
template <>
struct UnsignedOf<unsigned __int128> {
  using type = unsigned __int128;
};
template <typename T>
using Unsigned = typename UnsignedOf<T>::type;
template <typename T>
constexpr int kBits = static_cast<int>(sizeof(T)) * 8;
/// Twice as wide: what a product needs.
template <typename T>
struct WideOf;
template <>
struct WideOf<uint16_t> {
  using type = uint32_t;
};
template <>
struct WideOf<int16_t> {
  using type = int32_t;
};
template <>
struct WideOf<uint32_t> {
  using type = uint64_t;
};
template <>
struct WideOf<int32_t> {
  using type = int64_t;
};
template <>
struct WideOf<uint64_t> {
  using type = unsigned __int128;
};
template <>
struct WideOf<int64_t> {
  using type = __int128;
};
template <typename T>
using Wide = typename WideOf<T>::type;

template <typename T>
T wrapped(Unsigned<Wide<T>> value) {
  return static_cast<T>(static_cast<Unsigned<T>>(value));
}

/// d = Op(a, b)
template <typename Op>
struct Binary {
  template <typename T>
  struct Of {
    static void step(Thread& t, const Instruction& i) {
      t.set<T>(i.operands[0], Op::template of<T>(t.get<T>(i.operands[1]), t.get<T>(i.operands[2])));
    }
  };
};
template <typename Op>
struct Unary {
  template <typename T>
  struct Of {
    static void step(Thread& t, const Instruction& i) {
      t.set<T>(i.operands[0], Op::template of<T>(t.get<T>(i.operands[1])));
    }
  };
};
/// Shifts: the amount is unsigned and stops at the width.
template <typename Op>
struct Shift {
  template <typename T>
  struct Of {
    static void step(Thread& t, const Instruction& i) {
      t.set<T>(i.operands[0], Op::template of<T>(t.get<T>(i.operands[1]), t.get<uint32_t>(i.operands[2])));
    }
  };
};

struct Add {
  template <typename T>
  static T of(T a, T b) {
    return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b));
  }
};
struct Sub {
  template <typename T>
  static T of(T a, T b) {
    return static_cast<T>(static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b));
  }
};
struct MulLow {
  template <typename T>
  static T of(T a, T b) {
    return wrapped<T>(static_cast<Unsigned<Wide<T>>>(a) * static_cast<Unsigned<Wide<T>>>(b));
  }
};
struct MulHigh {
  template <typename T>
  static T of(T a, T b) {
    return static_cast<T>((static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b)) >> kBits<T>);
  }
};
struct Div {
  template <typename T>
  static T of(T a, T b) {
    if (b == 0) return static_cast<T>(-1);  // not said by the ISA; what hardware gives
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return Sub::of<T>(0, a);
    return static_cast<T>(a / b);
  }
};
struct Rem {
  template <typename T>
  static T of(T a, T b) {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
  }
};
struct Min {
  template <typename T>
  static T of(T a, T b) {
    return std::min(a, b);
  }
};
struct Max {
  template <typename T>
  static T of(T a, T b) {
    return std::max(a, b);
  }
};
struct And {
  template <typename T>
  static T of(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <typename T>
  static T of(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <typename T>
  static T of(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};
struct Not {
  template <typename T>
  static T of(T a) {
    return static_cast<T>(~a);
  }
};
struct Neg {
  template <typename T>
  static T of(T a) {
    return Sub::of<T>(0, a);
  }
};
struct Abs {
  template <typename T>
  static T of(T a) {
    return a < 0 ? Sub::of<T>(0, a) : a;
  }
};
struct Brev {
  template <typename T>
  static T of(T a) {
    Unsigned<T> r = 0;
    for (int bit = 0; bit < kBits<T>; ++bit)
      r = static_cast<Unsigned<T>>(r << 1 | (static_cast<Unsigned<T>>(a) >> bit & 1));
    return static_cast<T>(r);
  }
};
struct ShiftLeft {
  template <typename T>
  static T of(T a, uint32_t by) {
    return by >= static_cast<uint32_t>(kBits<T>) ? T{0} : static_cast<T>(static_cast<Unsigned<T>>(a) << by);
  }
};
struct ShiftRight {
  template <typename T>
  static T of(T a, uint32_t by) {
    if (by >= static_cast<uint32_t>(kBits<T>)) return a < 0 ? static_cast<T>(-1) : T{0};
    return static_cast<T>(a >> by);
  }
};

// Counts: the result is 32 bits.
template <typename T>
struct Popc {
  static void step(Thread& t, const Instruction& i) {
    t.set<uint32_t>(i.operands[0],
                    static_cast<uint32_t>(std::popcount(static_cast<Unsigned<T>>(t.get<T>(i.operands[1])))));
  }
};
template <typename T>
struct Clz {
  static void step(Thread& t, const Instruction& i) {
    t.set<uint32_t>(i.operands[0],
                    static_cast<uint32_t>(std::countl_zero(static_cast<Unsigned<T>>(t.get<T>(i.operands[1])))));
  }
};
/// The highest bit that is not the sign; -1 when there is none. kShift: by how much to shift left to bring it up.
template <bool kShift>
struct Bfind {
  template <typename T>
  struct Of {
    static void step(Thread& t, const Instruction& i) {
      T a = t.get<T>(i.operands[1]);
      if (a < 0) a = static_cast<T>(~a);
      const int zeros = std::countl_zero(static_cast<Unsigned<T>>(a));
      const auto bit = static_cast<uint32_t>(kBits<T> - 1 - zeros);
      t.set<uint32_t>(i.operands[0], zeros == kBits<T> ? ~0U : kShift ? static_cast<uint32_t>(zeros) : bit);
    }
  };
};

// Products.

template <typename T>
struct MulWide {
  static void step(Thread& t, const Instruction& i) {
    if constexpr (sizeof(T) <= 4) {
      t.set<Wide<T>>(i.operands[0], static_cast<Wide<T>>(t.get<T>(i.operands[1])) * t.get<T>(i.operands[2]));
    } else {
      t.fault("mul.wide of 64 bits");
    }
  }
};
template <typename T>
struct MadWide {
  static void step(Thread& t, const Instruction& i) {
    if constexpr (sizeof(T) <= 4) {
      const Wide<T> product = static_cast<Wide<T>>(t.get<T>(i.operands[1])) * t.get<T>(i.operands[2]);
      t.set<Wide<T>>(i.operands[0], Add::of<Wide<T>>(product, t.get<Wide<T>>(i.operands[3])));
    } else {
      t.fault("mad.wide of 64 bits");
    }
  }
};

/// Sums with carries: of add, sub and mad, with one that comes in, goes out, or both.
template <typename T>
Unsigned<T> with_carry(Thread& t, Unsigned<T> a, Unsigned<T> b, bool in, bool out, bool minus) {
  const Unsigned<T> carry = in ? static_cast<Unsigned<T>>(t.carry) : Unsigned<T>{0};
  using W = Unsigned<Wide<T>>;
  const W sum = minus ? static_cast<W>(static_cast<W>(a) - b - carry) : static_cast<W>(static_cast<W>(a) + b + carry);
  if (out) t.carry = static_cast<uint64_t>(sum >> kBits<T>) & 1U;
  return static_cast<Unsigned<T>>(sum);
}
template <bool kIn, bool kOut, bool kMinus>
struct AddCarry {
  template <typename T>
  struct Of {
    static void step(Thread& t, const Instruction& i) {
      using U = Unsigned<T>;
      t.set<U>(i.operands[0], with_carry<T>(t, t.get<U>(i.operands[1]), t.get<U>(i.operands[2]), kIn, kOut, kMinus));
    }
  };
};
template <bool kHigh, bool kIn, bool kOut>
struct Mad {
  template <typename T>
  struct Of {
    static void step(Thread& t, const Instruction& i) {
      using U = Unsigned<T>;
      const T a = t.get<T>(i.operands[1]), b = t.get<T>(i.operands[2]);
      const T product = kHigh ? MulHigh::of<T>(a, b) : MulLow::of<T>(a, b);
      t.set<U>(i.operands[0], with_carry<T>(t, static_cast<U>(product), t.get<U>(i.operands[3]), kIn, kOut, false));
    }
  };
};

// Fields of bits.

template <typename T>
struct Bfe {
  static void step(Thread& t, const Instruction& i) {
    const T a = t.get<T>(i.operands[1]);
    const int begin = static_cast<int>(t.get<uint32_t>(i.operands[2]) & 0xff);
    const int size = static_cast<int>(t.get<uint32_t>(i.operands[3]) & 0xff);
    const int top = std::min(begin + size - 1, kBits<T> - 1);
    const bool sign = std::is_signed_v<T> && size > 0 && (static_cast<Unsigned<T>>(a) >> top & 1) != 0;
    Unsigned<T> result = 0;
    for (int bit = 0; bit < kBits<T>; ++bit) {
      const bool one =
          bit < size && begin + bit < kBits<T> ? (static_cast<Unsigned<T>>(a) >> (begin + bit) & 1) != 0 : sign;
      if (one) result = static_cast<Unsigned<T>>(result | Unsigned<T>{1} << bit);
    }
    t.set<T>(i.operands[0], static_cast<T>(result));
  }
};
template <typename T>
struct Bfi {
  static void step(Thread& t, const Instruction& i) {
    const T a = t.get<T>(i.operands[1]);
    T result = t.get<T>(i.operands[2]);
    const int begin = static_cast<int>(t.get<uint32_t>(i.operands[3]) & 0xff);
    const int size = static_cast<int>(t.get<uint32_t>(i.operands[4]) & 0xff);
    for (int bit = 0; bit < size && begin + bit < kBits<T>; ++bit) {
      const T mask = static_cast<T>(T{1} << (begin + bit));
      result = (a >> bit & 1) != 0 ? static_cast<T>(result | mask) : static_cast<T>(result & ~mask);
    }
    t.set<T>(i.operands[0], result);
  }
};
/// The upper (left) or lower (right) half of the 64 bits {b, a} after a shift.
template <bool kLeft, bool kWrap>
void funnel_shift(Thread& t, const Instruction& i) {
  const uint64_t both = uint64_t{t.get<uint32_t>(i.operands[2])} << 32 | t.get<uint32_t>(i.operands[1]);
  const uint32_t given = t.get<uint32_t>(i.operands[3]);
  const uint32_t by = kWrap ? given & 31 : std::min<uint32_t>(given, 32);
  t.set<uint32_t>(i.operands[0], static_cast<uint32_t>(kLeft ? both << by >> 32 : both >> by));
}
void permute_bytes(Thread& t, const Instruction& i) {
  const uint64_t both = uint64_t{t.get<uint32_t>(i.operands[2])} << 32 | t.get<uint32_t>(i.operands[1]);
  const uint32_t selector = t.get<uint32_t>(i.operands[3]);
  uint32_t result = 0;
  for (int byte = 0; byte < 4; ++byte) {
    const uint32_t choice = selector >> (4 * byte) & 15;
    uint32_t value = static_cast<uint32_t>(both >> (8 * (choice & 7)) & 0xff);
    if ((choice & 8) != 0) value = (value & 0x80) != 0 ? 0xff : 0;  // the sign, eight times
    result |= value << (8 * byte);
  }
  t.set<uint32_t>(i.operands[0], result);
}
void lookup_of_three(Thread& t, const Instruction& i) {
  const uint32_t a = t.get<uint32_t>(i.operands[1]), b = t.get<uint32_t>(i.operands[2]),
                 c = t.get<uint32_t>(i.operands[3]);
  const uint32_t table = t.get<uint32_t>(i.operands[4]);
  uint32_t result = 0;
  for (int bit = 0; bit < 32; ++bit) {
    const uint32_t row = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | (c >> bit & 1);
    result |= (table >> row & 1) << bit;
  }
  t.set<uint32_t>(i.operands[0], result);
}

// Predicates.

enum class Logic { kAnd, kOr, kXor };
template <Logic kLogic>
void of_predicates(Thread& t, const Instruction& i) {
  const bool a = t.test(i.operands[1]), b = t.test(i.operands[2]);
  t.set<uint64_t>(i.operands[0], kLogic == Logic::kAnd ? a && b : kLogic == Logic::kOr ? a || b : a != b);
}
void not_predicate(Thread& t, const Instruction& i) { t.set<uint64_t>(i.operands[0], !t.test(i.operands[1])); }

}  // namespace

Step integer_step(const Parts& p, Instruction&) {
  const std::string_view name = p[0];
  const Type type = last_type(p);
  if (type == Type::kPred) {
    if (name == "and") return of_predicates<Logic::kAnd>;
    if (name == "or") return of_predicates<Logic::kOr>;
    if (name == "xor") return of_predicates<Logic::kXor>;
    if (name == "not") return not_predicate;
    return nullptr;
  }
  const bool out = has(p, "cc");
  if (has(p, "sat") || has(p, "relu")) return nullptr;
  if (name == "add")
    return out ? of_integer<AddCarry<false, true, false>::Of>(type) : of_integer<Binary<Add>::Of>(type);
  if (name == "sub") return out ? of_integer<AddCarry<false, true, true>::Of>(type) : of_integer<Binary<Sub>::Of>(type);
  if (name == "addc") {
    return out ? of_integer<AddCarry<true, true, false>::Of>(type) : of_integer<AddCarry<true, false, false>::Of>(type);
  }
  if (name == "subc") {
    return out ? of_integer<AddCarry<true, true, true>::Of>(type) : of_integer<AddCarry<true, false, true>::Of>(type);
  }
  const bool low = has(p, "lo"), high = has(p, "hi"), wide = has(p, "wide");
  if (name == "mul" && low) return of_integer<Binary<MulLow>::Of>(type);
  if (name == "mul" && high) return of_integer<Binary<MulHigh>::Of>(type);
  if (name == "mul" && wide) return of_integer<MulWide>(type);
  if (name == "mad" && wide) return of_integer<MadWide>(type);
  if (name == "mad" && low)
    return out ? of_integer<Mad<false, false, true>::Of>(type) : of_integer<Mad<false, false, false>::Of>(type);
  if (name == "mad" && high)
    return out ? of_integer<Mad<true, false, true>::Of>(type) : of_integer<Mad<true, false, false>::Of>(type);
  if (name == "madc" && low)
    return out ? of_integer<Mad<false, true, true>::Of>(type) : of_integer<Mad<false, true, false>::Of>(type);
  if (name == "madc" && high)
    return out ? of_integer<Mad<true, true, true>::Of>(type) : of_integer<Mad<true, true, false>::Of>(type);
  if (name == "div") return of_integer<Binary<Div>::Of>(type);
  if (name == "rem") return of_integer<Binary<Rem>::Of>(type);
  if (name == "min") return of_integer<Binary<Min>::Of>(type);
  if (name == "max") return of_integer<Binary<Max>::Of>(type);
  if (name == "and") return of_integer<Binary<And>::Of>(type);
  if (name == "or") return of_integer<Binary<Or>::Of>(type);
  if (name == "xor") return of_integer<Binary<Xor>::Of>(type);
  if (name == "not") return of_integer<Unary<Not>::Of>(type);
  if (name == "neg") return of_integer<Unary<Neg>::Of>(type);
  if (name == "abs") return of_integer<Unary<Abs>::Of>(type);
  if (name == "brev") return of_integer<Unary<Brev>::Of>(type);
  if (name == "shl") return of_integer<Shift<ShiftLeft>::Of>(type);
  if (name == "shr") return of_integer<Shift<ShiftRight>::Of>(type);
  if (name == "popc") return of_integer<Popc>(type);
  if (name == "clz") return of_integer<Clz>(type);
  if (name == "bfind")
    return has(p, "shiftamt") ? of_integer<Bfind<true>::Of>(type) : of_integer<Bfind<false>::Of>(type);
  if (name == "bfe") return of_integer<Bfe>(type);
  if (name == "bfi") return of_integer<Bfi>(type);
  if (name == "shf" && has(p, "l")) return has(p, "wrap") ? funnel_shift<true, true> : funnel_shift<true, false>;
  if (name == "shf" && has(p, "r")) return has(p, "wrap") ? funnel_shift<false, true> : funnel_shift<false, false>;
  if (name == "prmt" && p.size() == 2) return permute_bytes;
  if (name == "lop3" && type == Type::kB32) return lookup_of_three;
  return nullptr;
}

}  // namespace ashlar::ptx
