#include "tests/gpu_emulator/traffic.h"

#include <algorithm>
#include <utility>

namespace ashlar::emulator {
namespace {

constexpr uintptr_t kSector = 32;
constexpr uintptr_t kBank = 4;
constexpr int kBanks = 32;

}  // namespace

Traffic& Traffic::operator+=(const Traffic& other) {
  launches += other.launches;
  read_bytes += other.read_bytes;
  write_bytes += other.write_bytes;
  read_sectors += other.read_sectors;
  write_sectors += other.write_sectors;
  ideal_read_sectors += other.ideal_read_sectors;
  ideal_write_sectors += other.ideal_write_sectors;
  atomics += other.atomics;
  shared_passes += other.shared_passes;
  ideal_shared_passes += other.ideal_shared_passes;
  return *this;
}

double Traffic::sector_ratio() const {
  const int64_t ideal = ideal_read_sectors + ideal_write_sectors;
  return ideal == 0 ? 1 : static_cast<double>(read_sectors + write_sectors) / static_cast<double>(ideal);
}

void TrafficCounter::begin_launch(const char* kernel, int num_threads) {
  now_ = &by_kernel_[kernel];
  ++now_->launches;
  num_threads_ = num_threads;
  places_.clear();
  pool_.resize(1);
  free_.clear();
}

uint32_t TrafficCounter::open_instruction(Kind kind) {
  uint32_t instruction = 0;
  if (free_.empty()) {
    instruction = static_cast<uint32_t>(pool_.size());
    pool_.emplace_back();
  } else {
    instruction = free_.back();
    free_.pop_back();
  }
  pool_[instruction].kind = kind;
  pool_[instruction].lanes = 0;
  return instruction;
}

void TrafficCounter::count(const Access& access) {
  // A cp.async reads and writes at one place; a lane that has nothing to read only writes.
  const bool shared = access.kind == Kind::kSharedRead || access.kind == Kind::kSharedWrite;
  const size_t at = 2 * size_t{access.site} + (shared ? 1 : 0);
  if (at >= places_.size()) places_.resize(at + 1);
  Place& place = places_[at];
  if (place.times.empty()) {
    place.times.resize(num_threads_);
    place.open.resize(num_threads_ / 32);
  }
  const uint32_t time = place.times[access.thread]++;
  std::vector<uint32_t>& open = place.open[access.thread / 32];
  if (time >= open.size()) open.resize(time + 1);
  if (open[time] == 0) open[time] = open_instruction(access.kind);
  Instruction& instruction = pool_[open[time]];
  const int lane = access.thread % 32;
  instruction.lanes |= 1U << lane;
  instruction.bytes[lane] = static_cast<uint8_t>(access.bytes);
  instruction.addresses[lane] = access.address;
  if (instruction.lanes == 0xffffffffU) finish(std::exchange(open[time], 0));
}

void TrafficCounter::end_block() {
  for (Place& place : places_) {
    for (std::vector<uint32_t>& open : place.open) {
      for (const uint32_t instruction : open) {
        if (instruction != 0) finish(instruction);
      }
      open.clear();
    }
    std::fill(place.times.begin(), place.times.end(), 0);
  }
}

void TrafficCounter::finish(uint32_t number) {
  const Instruction& instruction = pool_[number];
  int64_t bytes = 0;
  for (int lane = 0; lane < 32; ++lane) bytes += (instruction.lanes >> lane & 1) != 0 ? instruction.bytes[lane] : 0;
  switch (instruction.kind) {
    case Kind::kRead:
      now_->read_bytes += bytes;
      finish_global(instruction, now_->read_sectors, now_->ideal_read_sectors);
      break;
    case Kind::kWrite:
      now_->write_bytes += bytes;
      finish_global(instruction, now_->write_sectors, now_->ideal_write_sectors);
      break;
    case Kind::kSharedRead:
    case Kind::kSharedWrite: finish_shared(instruction); break;
  }
  free_.push_back(number);
}

void TrafficCounter::finish_global(const Instruction& instruction, int64_t& sectors, int64_t& ideal) const {
  std::array<std::pair<uintptr_t, uintptr_t>, 32> ranges;  // begin, end
  int count = 0;
  for (int lane = 0; lane < 32; ++lane) {
    if ((instruction.lanes >> lane & 1) == 0) continue;
    ranges[count++] = {instruction.addresses[lane], instruction.addresses[lane] + instruction.bytes[lane]};
  }
  if (!std::is_sorted(ranges.begin(), ranges.begin() + count)) std::sort(ranges.begin(), ranges.begin() + count);
  uintptr_t bytes = 0, next_byte = 0, next_sector = 0;
  for (int i = 0; i < count; ++i) {
    const auto [begin, end] = ranges[i];
    const uintptr_t from = std::max(begin, next_byte);
    if (from < end) bytes += end - from;
    next_byte = std::max(next_byte, end);
    const uintptr_t first = std::max(begin / kSector, next_sector), after = (end - 1) / kSector + 1;
    if (first < after) sectors += static_cast<int64_t>(after - first);
    next_sector = std::max(next_sector, after);
  }
  ideal += static_cast<int64_t>((bytes + kSector - 1) / kSector);
}

// 32 lanes of up to 4 bytes pass together, 16 of 8, 8 of 16. A bank gives one word of 4 bytes a pass, to all that ask.
void TrafficCounter::finish_shared(const Instruction& instruction) {
  int widest = 4;
  for (int lane = 0; lane < 32; ++lane) {
    if ((instruction.lanes >> lane & 1) != 0) widest = std::max<int>(widest, instruction.bytes[lane]);
  }
  const int lanes_a_pass = std::max(128 / widest, 1);
  std::array<uintptr_t, 64> words;  // that differ; two for a lane where 4 bytes lie across two
  for (int first = 0; first < 32; first += lanes_a_pass) {
    int count = 0;
    std::array<int, kBanks> in_bank{};
    int passes = 0;
    for (int lane = first; lane < std::min(first + lanes_a_pass, 32); ++lane) {
      if ((instruction.lanes >> lane & 1) == 0) continue;
      const uintptr_t begin = instruction.addresses[lane], last = begin + instruction.bytes[lane] - 1;
      for (uintptr_t word = begin / kBank; word <= last / kBank; ++word) {
        int& bank = in_bank[word % kBanks];
        if (bank > 0 && std::find(words.begin(), words.begin() + count, word) != words.begin() + count) continue;
        words[count++] = word;
        passes = std::max(passes, ++bank);
      }
    }
    now_->shared_passes += passes;
    now_->ideal_shared_passes += static_cast<int64_t>(passes > 0);
  }
}

void TrafficCounter::count_matrix(const std::array<uint32_t, 8>& rows) {
  std::array<std::vector<uint32_t>, 8> groups;  // of four banks
  size_t passes = 0;
  for (const uint32_t row : rows) {
    std::vector<uint32_t>& group = groups[row / 16 % 8];
    if (std::find(group.begin(), group.end(), row) == group.end()) group.push_back(row);
    passes = std::max(passes, group.size());
  }
  now_->shared_passes += static_cast<int64_t>(passes);
  ++now_->ideal_shared_passes;
}

}  // namespace ashlar::emulator
