// Collectives of a warp: each lane of the mask waits with its operands; the last one to come computes for all.
#include <algorithm>
#include <cstring>

#include "core/base/strings.h"
#include "tests/gpu_emulator/block.h"

namespace ashlar::emulator {
namespace {

std::string mask_text(uint32_t mask) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "0x";
  for (int shift = 28; shift >= 0; shift -= 4) text += kDigits[mask >> shift & 15];
  return text;
}

}  // namespace

void Block::check_warp_call(const WarpCall& call, const Warp& warp, Loc loc) const {
  if ((call.mask >> lane() & 1) == 0) {
    fault(str_cat("lane ", lane(), " calls ", call.name, " with mask ", mask_text(call.mask),
                  ", which leaves it out: a lane names itself"),
          loc);
  }
  if (call.aligned && call.mask != kAllLanes) fault(str_cat(call.name, " needs all lanes of the warp"), loc);
  if ((warp.ended & call.mask) != 0) {
    fault(str_cat(call.name, " with mask ", mask_text(call.mask),
                  " names lanes that have ended: ", mask_text(warp.ended & call.mask)),
          loc);
  }
}

// Lanes that wait for this one in another call, while this one would wait for them. (A lane that is in a call of its
// part of the warp may come later.)
void Block::fault_if_divergent(const WarpCall& call, const PendingCall& pending, Loc loc) const {
  const WarpOperands& operands = pending.operands;
  if ((operands.mask >> lane() & 1) == 0 || (pending.arrived & call.mask) == 0) return;
  if (operands.loc == loc && operands.mask != call.mask) {
    fault(str_cat(call.name, ": lane ", lane(), " names the lanes ", mask_text(call.mask), ", lanes ",
                  mask_text(pending.arrived), " named ", mask_text(operands.mask)),
          loc);
  }
  fault(str_cat("divergent warp: lane ", lane(), " is in ", call.name, " at ", loc.text(), ", lanes ",
                mask_text(pending.arrived), " wait for it in ", pending.name, " at ", operands.loc.text()),
        loc);
}

void Block::warp_call(const WarpCall& call, Loc loc) {
  Warp& warp = warps_[running_ / 32];
  check_warp_call(call, warp, loc);
  const auto same = [&](const PendingCall& pending) {
    return pending.operands.mask == call.mask && pending.operands.loc == loc &&
           std::strcmp(pending.name, call.name) == 0;
  };
  const auto found = std::find_if(warp.calls.begin(), warp.calls.end(), same);
  const auto at = found - warp.calls.begin();
  if (found == warp.calls.end()) {
    for (const PendingCall& pending : warp.calls) fault_if_divergent(call, pending, loc);
    warp.calls.push_back(
        {.operands = {.mask = call.mask, .in = {}, .out = {}, .loc = loc}, .arrived = 0, .name = call.name});
  }
  PendingCall& pending = warp.calls[at];
  WarpOperands& operands = pending.operands;
  const uint32_t self = 1U << lane();
  pending.arrived |= self;
  operands.in[lane()] = call.in;
  operands.out[lane()] = call.out;
  if (pending.arrived != call.mask) {
    wait(call.name, loc);
    return;
  }
  if (call.compute != nullptr) call.compute(operands);
  if (watch_ != nullptr && call.orders) watch_->races().sync_warp(running_ / 32, call.mask);
  if (at + 1 < std::ssize(warp.calls)) std::swap(warp.calls[at], warp.calls.back());
  warp.calls.pop_back();
  const int first = running_ / 32 * 32;
  for (int other = 0; other < 32; ++other) {
    if (((call.mask & ~self) >> other & 1) != 0) make_ready(first + other);
  }
  if (call.mask != self) let_others_run(loc);
}

void sync_warp(uint32_t mask, Loc loc) {
  current_block().warp_call({.mask = mask, .name = "__syncwarp", .orders = true}, loc);
}

namespace {

void take_from_sources(const WarpOperands& lanes) {
  for (int lane = 0; lane < 32; ++lane) {
    if ((lanes.mask >> lane & 1) == 0) continue;
    const auto* const own = static_cast<const Shuffle*>(lanes.in[lane]);
    if ((lanes.mask >> own->source & 1) == 0) {
      current_block().fault(str_cat("a shuffle reads lane ", own->source, ", which its mask leaves out"), lanes.loc);
    }
    std::memcpy(own->out, static_cast<const Shuffle*>(lanes.in[own->source])->in, own->bytes);
  }
}

}  // namespace

void shuffle(const Shuffle& shuffle, Loc loc) {
  current_block().warp_call({.mask = shuffle.mask, .name = "a shuffle", .in = &shuffle, .compute = take_from_sources},
                            loc);
}

uint32_t ballot(uint32_t mask, int value, Loc loc) {
  uint32_t lanes = 0;
  const auto compute = [](const WarpOperands& all) {
    uint32_t set = 0;
    for (int lane = 0; lane < 32; ++lane) {
      if ((all.mask >> lane & 1) != 0 && *static_cast<const int*>(all.in[lane]) != 0) set |= 1U << lane;
    }
    for (int lane = 0; lane < 32; ++lane) {
      if ((all.mask >> lane & 1) != 0) *static_cast<uint32_t*>(all.out[lane]) = set;
    }
  };
  current_block().warp_call({.mask = mask, .name = "a vote", .in = &value, .out = &lanes, .compute = +compute}, loc);
  return lanes;
}

namespace {

struct ReduceInput {
  Reduction reduction;
  uint32_t value;
};

uint32_t combine(Reduction reduction, uint32_t a, uint32_t b) {
  const auto sa = static_cast<int32_t>(a), sb = static_cast<int32_t>(b);
  switch (reduction) {
    case Reduction::kAdd: return a + b;
    case Reduction::kMin: return a < b ? a : b;
    case Reduction::kMax: return a < b ? b : a;
    case Reduction::kMinSigned: return sa < sb ? a : b;
    case Reduction::kMaxSigned: return sa < sb ? b : a;
    case Reduction::kAnd: return a & b;
    case Reduction::kOr: return a | b;
    case Reduction::kXor: return a ^ b;
  }
  return 0;
}

void reduce_lanes(const WarpOperands& all) {
  const int first = __builtin_ctz(all.mask);
  uint32_t result = static_cast<const ReduceInput*>(all.in[first])->value;
  for (int lane = first + 1; lane < 32; ++lane) {
    if ((all.mask >> lane & 1) == 0) continue;
    const auto* in = static_cast<const ReduceInput*>(all.in[lane]);
    result = combine(in->reduction, result, in->value);
  }
  for (int lane = first; lane < 32; ++lane) {
    if ((all.mask >> lane & 1) != 0) *static_cast<uint32_t*>(all.out[lane]) = result;
  }
}

}  // namespace

uint32_t reduce(Reduction reduction, uint32_t mask, uint32_t value, Loc loc) {
  const ReduceInput in{reduction, value};
  uint32_t result = 0;
  current_block().warp_call({.mask = mask, .name = "a reduction", .in = &in, .out = &result, .compute = reduce_lanes},
                            loc);
  return result;
}

}  // namespace ashlar::emulator
