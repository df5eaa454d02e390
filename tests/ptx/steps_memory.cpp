// Loads, stores, addresses, atomics, asynchronous copies.
#include "tests/gpu_emulator/device_calls.h"
#include "tests/ptx/steps.h"

namespace ashlar::ptx {
namespace {

bool find_space(const Parts& p, Instruction& i) {
  i.space = Space::kGeneric;
  for (const std::string_view part : p) {
    if (part == "global") i.space = Space::kGlobal;
    if (part == "shared" || part == "shared::cta") i.space = Space::kShared;
    if (part == "local") i.space = Space::kLocal;
    if (part == "param") i.space = Space::kParam;
    if (part == "const") i.space = Space::kConst;
    if (part == "shared::cluster") return false;
  }
  return true;
}

/// {d...}, [a]
template <typename T>
struct Load {
  static void step(Thread& t, const Instruction& i) {
    const int count = i.groups[0];
    const char* from = t.memory(i, i.operands.back(), count * static_cast<int64_t>(sizeof(T)));
    for (int k = 0; k < count; ++k) {
      T value;
      std::memcpy(&value, from + k * sizeof(T), sizeof(T));
      t.set<T>(i.operands[static_cast<size_t>(k)], value);
    }
  }
};
/// [a], {s...}
template <typename T>
struct Store {
  static void step(Thread& t, const Instruction& i) {
    const int count = i.groups[1];
    char* to = t.memory(i, i.operands[0], count * static_cast<int64_t>(sizeof(T)));
    for (int k = 0; k < count; ++k) {
      const T value = t.get<T>(i.operands[static_cast<size_t>(k) + 1]);
      std::memcpy(to + k * sizeof(T), &value, sizeof(T));
    }
  }
};
template <template <typename> class Family>
Step of_bytes_too(Type type) {
  if (type == Type::kB8 || type == Type::kU8) return Family<uint8_t>::step;
  if (type == Type::kS8) return Family<int8_t>::step;
  return of_any<Family>(type);
}

void to_generic(Thread& t, const Instruction& i) {
  t.set<uint64_t>(i.operands[0], t.to_generic(i.space, t.get<uint64_t>(i.operands[1])));
}
void from_generic(Thread& t, const Instruction& i) {
  t.set<uint64_t>(i.operands[0], t.from_generic(i.space, t.get<uint64_t>(i.operands[1])));
}

// Atomics: threads of the emulator change over only where they wait, so reading and writing is one.

enum class Atomic { kAdd, kMin, kMax, kAnd, kOr, kXor, kExchange };
template <Atomic kWhat>
struct Atomically {
  template <typename T>
  struct Of {
    static void step(Thread& t, const Instruction& i) {
      const bool returns = i.groups.size() == 3;  // atom d, [a], b; red [a], b
      const size_t address = returns ? 1 : 0;
      char* at = t.memory(i, i.operands[address], sizeof(T));
      T before;
      std::memcpy(&before, at, sizeof(T));
      const T b = t.get<T>(i.operands[address + 1]);
      T after = b;
      if constexpr (kWhat == Atomic::kAdd) {
        after = sum(before, b);
      } else if constexpr (kWhat == Atomic::kMin) {
        after = std::min(before, b);
      } else if constexpr (kWhat == Atomic::kMax) {
        after = std::max(before, b);
      } else if constexpr (std::is_integral_v<T> && kWhat != Atomic::kExchange) {
        after = kWhat == Atomic::kAnd  ? static_cast<T>(before & b)
                : kWhat == Atomic::kOr ? static_cast<T>(before | b)
                                       : static_cast<T>(before ^ b);
      }
      std::memcpy(at, &after, sizeof(T));
      if (returns) t.set<T>(i.operands[0], before);
    }
    static T sum(T a, T b) {
      if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b));
      } else {
        return a + b;
      }
    }
  };
};
template <typename T>
struct CompareExchange {
  static void step(Thread& t, const Instruction& i) {
    char* at = t.memory(i, i.operands[1], sizeof(T));
    T before;
    std::memcpy(&before, at, sizeof(T));
    if (before == t.get<T>(i.operands[2])) {
      const T after = t.get<T>(i.operands[3]);
      std::memcpy(at, &after, sizeof(T));
    }
    t.set<T>(i.operands[0], before);
  }
};

Step atomic(const Parts& p, Instruction& i) {
  const Type type = last_type(p);
  if (!find_space(p, i)) return nullptr;
  if (has(p, "add")) return of_any<Atomically<Atomic::kAdd>::Of>(type);
  if (has(p, "min")) return of_integer<Atomically<Atomic::kMin>::Of>(type);
  if (has(p, "max")) return of_integer<Atomically<Atomic::kMax>::Of>(type);
  if (has(p, "and")) return of_integer<Atomically<Atomic::kAnd>::Of>(type);
  if (has(p, "or")) return of_integer<Atomically<Atomic::kOr>::Of>(type);
  if (has(p, "xor")) return of_integer<Atomically<Atomic::kXor>::Of>(type);
  if (has(p, "exch")) return of_integer<Atomically<Atomic::kExchange>::Of>(type);
  if (has(p, "cas")) return of_integer<CompareExchange>(type);
  return nullptr;
}

// cp.async [shared], [global], bytes[, source bytes]
void cp_async(Thread& t, const Instruction& i) {
  const auto bytes = static_cast<int>(t.get<uint32_t>(i.operands[2]));
  const int source = i.operands.size() > 3 ? static_cast<int>(t.get<uint32_t>(i.operands[3])) : bytes;
  if (source < 0 || source > bytes) t.fault("cp.async reads more than it copies");
  Instruction global;  // the part that reads
  global.space = Space::kGlobal;
  global.opcode = i.opcode;
  const uint64_t from = t.get<uint64_t>(i.operands[1]) + i.operands[1].value;
  if (source == bytes) {
    t.memory(global, i.operands[1], bytes);
  } else if (source > 0) {  // nothing behind the bytes that it reads need be memory
    if (from % static_cast<uint64_t>(bytes) != 0) t.fault("cp.async of bytes at an address that is not a multiple");
    Operand last = i.operands[1];
    last.value += source - 1;
    t.memory(global, i.operands[1], 1);
    t.memory(global, last, 1);
  }
  emulator::cp_async({.to = static_cast<uint32_t>(t.get<uint64_t>(i.operands[0]) + i.operands[0].value),
                      .from = reinterpret_cast<const void*>(from),
                      .bytes = bytes,
                      .source_bytes = source},
                     t.loc());
}
void cp_async_commit(Thread&, const Instruction&) { emulator::cp_async_commit_group(); }
void cp_async_wait(Thread& t, const Instruction& i) {
  emulator::cp_async_wait_group(static_cast<int>(t.get<uint32_t>(i.operands[0])), t.loc());
}
void cp_async_wait_all(Thread& t, const Instruction&) { emulator::cp_async_wait_all(t.loc()); }

void nothing(Thread&, const Instruction&) {}
void fence(Thread& t, const Instruction&) { emulator::thread_fence(t.loc()); }

}  // namespace

Step memory_step(const Parts& p, Instruction& i) {
  const std::string_view name = p[0];
  if (name == "ld" || name == "st" || name == "ldu") {
    if (!find_space(p, i)) return nullptr;
    return name == "st" ? of_bytes_too<Store>(last_type(p)) : of_bytes_too<Load>(last_type(p));
  }
  if (name == "cvta") {
    if (!find_space(p, i) || p.back() != "u64") return nullptr;
    return has(p, "to") ? from_generic : to_generic;
  }
  if (name == "atom" || name == "red") return atomic(p, i);
  if (name == "cp" && p.size() > 2 && p[1] == "async") {
    if (p[2] == "commit_group") return cp_async_commit;
    if (p[2] == "wait_group") return cp_async_wait;
    if (p[2] == "wait_all") return cp_async_wait_all;
    const bool copies = p.size() >= 5 && (p[2] == "cg" || p[2] == "ca") && p[4] == "global" &&
                        (p[3] == "shared" || p[3] == "shared::cta");
    return copies ? cp_async : nullptr;
  }
  if (name == "prefetch") return nothing;
  if (name == "fence" || name == "membar") return fence;
  return nullptr;
}

}  // namespace ashlar::ptx
