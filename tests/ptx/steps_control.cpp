// Jumps, calls, barriers, and what lanes of a warp do together.
#include "tests/gpu_emulator/device_calls.h"
#include "tests/ptx/steps.h"

namespace ashlar::ptx {
namespace {

constexpr uint32_t kAllLanes = 0xffffffffU;

void jump(Thread& t, const Instruction& i) { t.jump(i.operands[0]); }
void call(Thread& t, const Instruction& i) { t.call(i); }
void leave(Thread& t, const Instruction&) { t.leave(); }
void end(Thread& t, const Instruction&) { t.end(); }
void trap(Thread& t, const Instruction&) { t.fault("trap"); }

// bar.sync id[, threads]
void barrier(Thread& t, const Instruction& i) {
  const auto id = static_cast<int>(t.get<uint32_t>(i.operands[0]));
  if (i.operands.size() > 1) {
    emulator::named_barrier_sync(id, static_cast<int>(t.get<uint32_t>(i.operands[1])), t.loc());
  } else if (id == 0) {
    emulator::sync_threads(emulator::Vote::kNone, 0, t.loc());
  } else {
    t.fault("bar.sync of another barrier than 0 without a number of threads");
  }
}
void barrier_arrive(Thread& t, const Instruction& i) {
  emulator::named_barrier_arrive(static_cast<int>(t.get<uint32_t>(i.operands[0])),
                                 static_cast<int>(t.get<uint32_t>(i.operands[1])), t.loc());
}
// bar.red.op d, id, p
template <emulator::Vote kVote>
void barrier_vote(Thread& t, const Instruction& i) {
  const int result = emulator::sync_threads(kVote, t.test(i.operands[2]) ? 1 : 0, t.loc());
  t.set<uint32_t>(i.operands[0], static_cast<uint32_t>(result));
}
// mbarrier.init [address], arrivals; .arrive _, [address]; .try_wait and .test_wait .parity p, [address], parity. A
// test that would fail waits: a thread may be late, and one that came back to ask again would keep the others from
// running.
uint32_t barrier_address(Thread& t, const Operand& operand) {
  return static_cast<uint32_t>(t.get<uint64_t>(operand) +
                               (operand.kind == Operand::Kind::kRegister ? operand.value : 0));
}
void mbarrier_init(Thread& t, const Instruction& i) {
  emulator::mbarrier_init(barrier_address(t, i.operands[0]), static_cast<int>(t.get<uint32_t>(i.operands[1])), t.loc());
}
void mbarrier_arrive(Thread& t, const Instruction& i) {
  if (i.operands[0].kind != Operand::Kind::kSink) t.fault("mbarrier.arrive with a result");
  emulator::mbarrier_arrive(barrier_address(t, i.operands[1]), t.loc());
}
void mbarrier_wait(Thread& t, const Instruction& i) {
  emulator::mbarrier_wait_parity(barrier_address(t, i.operands[1]), static_cast<int>(t.get<uint32_t>(i.operands[2])),
                                 t.loc());
  t.set<uint64_t>(i.operands[0], 1);
}
void warp_barrier(Thread& t, const Instruction& i) { emulator::sync_warp(t.get<uint32_t>(i.operands[0]), t.loc()); }

// shfl.sync.mode d[|p], a, b, c, mask
enum class Shuffle { kUp, kDown, kButterfly, kIndex };
template <Shuffle kMode>
void shuffle(Thread& t, const Instruction& i) {
  const size_t first = i.operands.size() - 4;
  const uint32_t b = t.get<uint32_t>(i.operands[first + 1]) & 31, c = t.get<uint32_t>(i.operands[first + 2]);
  const auto lane = static_cast<uint32_t>(emulator::lane_index());
  const uint32_t clamp = c & 31, segments = c >> 8 & 31;
  const uint32_t low = lane & segments, high = low | (clamp & ~segments);
  int64_t source = 0;
  bool valid = false;
  switch (kMode) {
    case Shuffle::kUp:
      source = static_cast<int64_t>(lane) - b;
      valid = source >= static_cast<int64_t>(high);
      break;
    case Shuffle::kDown:
      source = lane + b;
      valid = source <= high;
      break;
    case Shuffle::kButterfly:
      source = lane ^ b;
      valid = source <= high;
      break;
    case Shuffle::kIndex:
      source = low | (b & ~segments);
      valid = source <= high;
      break;
  }
  const auto value = t.get<uint32_t>(i.operands[first]);
  uint32_t out = 0;
  emulator::shuffle({.mask = t.get<uint32_t>(i.operands[first + 3]),
                     .in = &value,
                     .out = &out,
                     .bytes = sizeof(out),
                     .source = static_cast<int>(valid ? source : lane)},
                    t.loc());
  t.set<uint32_t>(i.operands[0], out);
  if (first == 2) t.set<uint64_t>(i.operands[1], valid);
}

// vote.sync.mode d, p, mask
enum class Ballot { kAny, kAll, kUniform, kLanes };
template <Ballot kMode>
void vote(Thread& t, const Instruction& i) {
  const uint32_t mask = t.get<uint32_t>(i.operands[2]);
  const uint32_t lanes = emulator::ballot(mask, t.test(i.operands[1]) ? 1 : 0, t.loc());
  if (kMode == Ballot::kLanes) return t.set<uint32_t>(i.operands[0], lanes);
  const bool result = kMode == Ballot::kAny   ? lanes != 0
                      : kMode == Ballot::kAll ? lanes == mask
                                              : lanes == 0 || lanes == mask;
  t.set<uint64_t>(i.operands[0], result);
}

template <emulator::Reduction kWhat>
void reduce(Thread& t, const Instruction& i) {
  t.set<uint32_t>(i.operands[0],
                  emulator::reduce(kWhat, t.get<uint32_t>(i.operands[2]), t.get<uint32_t>(i.operands[1]), t.loc()));
}

// ldmatrix {r...}, [a]
template <int kMatrices, bool kTransposed>
void load_matrices(Thread& t, const Instruction& i) {
  uint32_t r[kMatrices];
  const Operand& address = i.operands.back();
  emulator::ldmatrix(r, kMatrices, kTransposed, static_cast<uint32_t>(t.get<uint64_t>(address) + address.value),
                     t.loc());
  for (size_t k = 0; k < kMatrices; ++k) t.set<uint32_t>(i.operands[k], r[k]);
}
// mma {d0..3}, {a0..3}, {b0, b1}, {c0..3}
void multiply_matrices(Thread& t, const Instruction& i) {
  float d[4], c[4];
  uint32_t a[4], b[2];
  for (size_t k = 0; k < 4; ++k) a[k] = t.get<uint32_t>(i.operands[4 + k]);
  for (size_t k = 0; k < 2; ++k) b[k] = t.get<uint32_t>(i.operands[8 + k]);
  for (size_t k = 0; k < 4; ++k) c[k] = t.get<float>(i.operands[10 + k]);
  emulator::mma_m16n8k16_bf16(d, a, b, c, t.loc());
  for (size_t k = 0; k < 4; ++k) t.set<float>(i.operands[k], d[k]);
}

}  // namespace

Step control_step(const Parts& p, Instruction&) {
  const std::string_view name = p[0];
  if (name == "bra") return jump;
  if (name == "call") return call;
  if (name == "ret") return leave;
  if (name == "exit") return end;
  if (name == "trap") return trap;
  if (name == "mbarrier" && p.back() == "b64" && (has(p, "shared") || has(p, "shared::cta"))) {
    if (p[1] == "init") return mbarrier_init;
    if (p[1] == "arrive" && p.size() == 4) return mbarrier_arrive;
    if ((p[1] == "try_wait" || p[1] == "test_wait") && p[2] == "parity") return mbarrier_wait;
  }
  if (name == "bar" || name == "barrier") {
    if (has(p, "warp")) return warp_barrier;
    if (has(p, "sync")) return barrier;
    if (has(p, "arrive")) return barrier_arrive;
    if (has(p, "red") && has(p, "popc")) return barrier_vote<emulator::Vote::kCount>;
    if (has(p, "red") && has(p, "and")) return barrier_vote<emulator::Vote::kAll>;
    if (has(p, "red") && has(p, "or")) return barrier_vote<emulator::Vote::kAny>;
  }
  return nullptr;
}

Step warp_step(const Parts& p, Instruction& i) {
  const std::string_view name = p[0];
  const bool sync = has(p, "sync");
  if (name == "shfl" && sync && p.back() == "b32") {
    if (has(p, "up")) return shuffle<Shuffle::kUp>;
    if (has(p, "down")) return shuffle<Shuffle::kDown>;
    if (has(p, "bfly")) return shuffle<Shuffle::kButterfly>;
    if (has(p, "idx")) return shuffle<Shuffle::kIndex>;
  }
  if (name == "vote" && sync) {
    if (has(p, "any")) return vote<Ballot::kAny>;
    if (has(p, "all")) return vote<Ballot::kAll>;
    if (has(p, "uni")) return vote<Ballot::kUniform>;
    if (has(p, "ballot")) return vote<Ballot::kLanes>;
  }
  if (name == "redux" && sync) {
    const bool is_signed = p.back() == "s32";
    if (has(p, "add")) return reduce<emulator::Reduction::kAdd>;
    if (has(p, "min")) return is_signed ? reduce<emulator::Reduction::kMinSigned> : reduce<emulator::Reduction::kMin>;
    if (has(p, "max")) return is_signed ? reduce<emulator::Reduction::kMaxSigned> : reduce<emulator::Reduction::kMax>;
    if (has(p, "and")) return reduce<emulator::Reduction::kAnd>;
    if (has(p, "or")) return reduce<emulator::Reduction::kOr>;
    if (has(p, "xor")) return reduce<emulator::Reduction::kXor>;
  }
  constexpr std::string_view kMatrices = "ldmatrix.sync.aligned.m8n8.";
  if (i.opcode.starts_with(kMatrices) && p.back() == "b16") {
    const bool transposed = has(p, "trans");
    if (has(p, "x1")) return transposed ? load_matrices<1, true> : load_matrices<1, false>;
    if (has(p, "x2")) return transposed ? load_matrices<2, true> : load_matrices<2, false>;
    if (has(p, "x4")) return transposed ? load_matrices<4, true> : load_matrices<4, false>;
  }
  if (i.opcode == "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32") return multiply_matrices;
  return nullptr;
}

Step find_step(const Parts& parts, Instruction& instruction) {
  for (const auto family : {control_step, memory_step, convert_step, float_step, integer_step, warp_step}) {
    if (const Step step = family(parts, instruction)) return step;
  }
  return nullptr;
}

}  // namespace ashlar::ptx
