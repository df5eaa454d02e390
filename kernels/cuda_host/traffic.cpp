#include "kernels/cuda_host/traffic.h"

#include <algorithm>

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
}

void TrafficCounter::count(const Access& access) {
  if (access.site >= places_.size()) places_.resize(access.site + 1);
  Place& place = places_[access.site];
  if (place.times.empty()) {
    place.times.resize(num_threads_);
    place.instructions.resize(num_threads_ / 32);
  }
  const uint32_t time = place.times[access.thread]++;
  std::vector<Instruction>& instructions = place.instructions[access.thread / 32];
  if (time >= instructions.size()) instructions.resize(time + 1);
  Instruction& instruction = instructions[time];
  instruction.kind = access.kind;
  instruction.lanes.push_back({.address = access.address,
                               .bytes = static_cast<uint16_t>(access.bytes),
                               .lane = static_cast<uint8_t>(access.thread % 32)});
  if (instruction.lanes.size() == 32) {
    finish(instruction);
    instruction.lanes = {};
  }
}

void TrafficCounter::end_block() {
  for (Place& place : places_) {
    for (std::vector<Instruction>& instructions : place.instructions) {
      for (const Instruction& instruction : instructions) {
        if (!instruction.lanes.empty()) finish(instruction);
      }
      instructions.clear();
    }
    std::fill(place.times.begin(), place.times.end(), 0);
  }
}

void TrafficCounter::finish(const Instruction& instruction) {
  int64_t bytes = 0;
  for (const Lane& lane : instruction.lanes) bytes += lane.bytes;
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
}

void TrafficCounter::finish_global(const Instruction& instruction, int64_t& sectors, int64_t& ideal) const {
  std::vector<std::pair<uintptr_t, uintptr_t>> ranges;  // begin, end
  ranges.reserve(instruction.lanes.size());
  for (const Lane& lane : instruction.lanes) ranges.emplace_back(lane.address, lane.address + lane.bytes);
  std::sort(ranges.begin(), ranges.end());
  uintptr_t bytes = 0, next_byte = 0, next_sector = 0;
  for (const auto& [begin, end] : ranges) {
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
  int64_t widest = 4;
  for (const Lane& lane : instruction.lanes) widest = std::max<int64_t>(widest, lane.bytes);
  const int lanes_a_pass = std::max<int>(static_cast<int>(128 / widest), 1);
  for (int first = 0; first < 32; first += lanes_a_pass) {
    std::array<std::vector<uintptr_t>, kBanks> words;
    for (const Lane& lane : instruction.lanes) {
      if (lane.lane < first || lane.lane >= first + lanes_a_pass) continue;
      for (uintptr_t word = lane.address / kBank; word <= (lane.address + lane.bytes - 1) / kBank; ++word) {
        std::vector<uintptr_t>& bank = words[word % kBanks];
        if (std::find(bank.begin(), bank.end(), word) == bank.end()) bank.push_back(word);
      }
    }
    size_t passes = 0;
    for (const std::vector<uintptr_t>& bank : words) passes = std::max(passes, bank.size());
    now_->shared_passes += static_cast<int64_t>(passes);
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
