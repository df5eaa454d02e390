#include "tests/gpu_emulator/race_detector.h"

#include <algorithm>
#include <utility>

namespace ashlar::emulator {
namespace {

constexpr size_t kMaxRecords = 1 << 24;  // then what earlier launches did is forgotten

}  // namespace

void RaceDetector::begin_launch(int64_t launch, int num_threads) {
  if (records_.size() > kMaxRecords) {
    records_.resize(1);
    pages_.clear();
    last_page_ = nullptr;
    launches_.clear();
  }
  launch_ = launch;
  first_block_ = block_ + 1;
  launches_.emplace_back(first_block_, launch);
  order_of_launch_.clear();
  releases_.clear();
  last_writes_.assign(num_threads, {});
  fences_.assign(num_threads, {});
  acquired_.assign(num_threads, {});
}

void RaceDetector::begin_block() {
  ++block_;
  const int num_threads = static_cast<int>(fences_.size());
  clocks_.begin_block(num_threads);
  std::fill(shared_.begin(), shared_.begin() + shared_end_, Cell{});
  shared_end_ = 0;
  for (auto& writes : last_writes_) writes = {};
  new_sets();
  if (fenced_) fences_.assign(num_threads, {});
  fenced_ = false;
  for (Acquired& acquired : acquired_) acquired.clear();
  acquired_by_all_.clear();
}

std::optional<RaceDetector::Race> RaceDetector::shared_access(const Access& access, int64_t arena_bytes) {
  if (shared_.empty()) shared_.resize(arena_bytes);
  shared_end_ = std::max(shared_end_, static_cast<int64_t>(access.address) + access.bytes);
  return this->access(shared_.data() + access.address, access);
}

std::optional<RaceDetector::Race> RaceDetector::global_access(const Access& access) {
  Access part = access;
  for (int64_t done = 0; done < access.bytes; done += part.bytes) {
    part.address = access.address + static_cast<uintptr_t>(done);
    const uintptr_t number = part.address / kPage, offset = part.address % kPage;
    part.bytes = std::min(access.bytes - done, static_cast<int64_t>(kPage - offset));
    if (last_page_ == nullptr || number != last_page_number_) {
      std::unique_ptr<Page>& page = pages_[number];
      if (page == nullptr) page = std::make_unique<Page>();
      last_page_ = page.get();
      last_page_number_ = number;
    }
    if (std::optional<Race> race = this->access(last_page_->data() + offset, part)) {
      race->byte += done;
      return race;
    }
  }
  return std::nullopt;
}

// Bytes side by side mostly have the same past: it is judged once.
std::optional<RaceDetector::Race> RaceDetector::access(Cell* cells, const Access& access) {
  Cell before, now;
  for (int64_t i = 0; i < access.bytes; ++i) {
    Cell& cell = cells[i];
    if (i == 0 || !(cell == before)) {
      before = cell;
      if (std::optional<Race> race = check(cell, access)) {
        race->byte = i;
        return race;
      }
      now = after(cell, access);
    }
    cell = now;
  }
  return std::nullopt;
}

std::optional<RaceDetector::Race> RaceDetector::check(const Cell& cell, const Access& access) const {
  if (cell.write != 0) {
    const Record& write = records_[cell.write];
    const bool both_atomic = write.atomic && access.kind == Kind::kAtomic;
    if (!both_atomic && !ordered(write, access.thread)) {
      return race_with(write, write.atomic ? Kind::kAtomic : Kind::kWrite);
    }
  }
  if (access.kind == Kind::kRead) return std::nullopt;
  for (const uint32_t set : {cell.reads, cell.other_reads}) {
    for (uint32_t member = set; member != 0; member = records_[member].before) {
      if (!ordered(records_[member], access.thread)) return race_with(records_[member], Kind::kRead);
    }
  }
  return std::nullopt;
}

bool RaceDetector::ordered(const Record& record, int thread) const {
  if (record.block == block_) return clocks_.knows(thread, record.thread, record.epoch, record.time);
  if (record.block >= first_block_) return released(record, thread);
  if (!launches_ordered_) return true;
  const int64_t launch = launch_of(record.block);
  const auto [found, added] = order_of_launch_.try_emplace(launch, true);
  if (added) found->second = launches_ordered_(launch, launch_);
  return found->second;
}

bool RaceDetector::released(const Record& record, int thread) const {
  for (const Acquired* const acquired : {&acquired_[thread], &acquired_by_all_}) {
    for (const auto& [address, count] : *acquired) {
      const std::vector<Release>& releases = releases_.at(address);
      for (size_t i = 0; i < count; ++i) {
        if (releases[i].block == record.block && covers(releases[i], record)) return true;
      }
    }
  }
  return false;
}

// The thread of the atomic passes on what it knew at its own fence; and what others had fenced before a barrier.
bool RaceDetector::covers(const Release& release, const Record& record) {
  const Fence& own = release.fences[release.thread];
  if (own.epoch != 0) {
    if (record.epoch < own.epoch) return true;
    if (record.epoch == own.epoch) {
      if (record.thread == release.thread && record.time <= own.time) return true;
      if (!own.known.empty() && record.time <= own.known[record.thread]) return true;
    }
  }
  const Fence& theirs = release.fences[record.thread];
  const bool before_barrier = theirs.epoch != 0 && theirs.epoch < release.epoch;
  return before_barrier &&
         (record.epoch < theirs.epoch || (record.epoch == theirs.epoch && record.time <= theirs.time));
}

RaceDetector::Cell RaceDetector::after(const Cell& cell, const Access& access) {
  if (access.kind != Kind::kRead) return {.write = write_record(access), .reads = 0, .other_reads = 0};
  Cell now = cell;
  uint32_t set = cell.reads;
  if (set != 0) {
    const Record& last = records_[set];
    if (last.block != block_) now.other_reads = set;
    if (last.block != block_ || last.epoch != clocks_.epoch()) set = 0;
  }
  now.reads = reader(set, access);
  return now;
}

uint32_t RaceDetector::write_record(const Access& access) {
  const uint32_t epoch = clocks_.epoch(), time = clocks_.time(access.thread);
  const bool atomic = access.kind == Kind::kAtomic;
  LastWrite& last = last_writes_[access.thread][access.site % 4];
  if (last.record != 0 && last.site == access.site && last.epoch == epoch && last.time == time &&
      last.atomic == atomic) {
    return last.record;
  }
  const auto record = static_cast<uint32_t>(records_.size());
  records_.push_back({.block = block_,
                      .epoch = epoch,
                      .time = time,
                      .site = access.site,
                      .before = 0,
                      .thread = static_cast<uint16_t>(access.thread),
                      .atomic = atomic});
  last = {.site = access.site, .epoch = epoch, .time = time, .record = record, .atomic = atomic};
  return record;
}

// The set with this reader in it. Sets are shared between bytes: the same readers in the same order are the same set.
// A reader that knows of all members replaces them.
uint32_t RaceDetector::reader(uint32_t set, const Access& access) {
  if (sets_clock_epoch_ != clocks_.epoch()) new_sets();
  const uint32_t time = clocks_.time(access.thread);
  if (set != 0 && records_[set].thread == access.thread && records_[set].time == time) return set;
  Added& added = find_added(set, time, access.thread);
  if (added.epoch == sets_epoch_) return added.result;
  added = {.set = set, .time = time, .epoch = sets_epoch_, .thread = access.thread, .result = set};
  ++num_added_;
  bool member_already = false, knows_all = true;
  for (uint32_t member = set; member != 0; member = records_[member].before) {
    const Record& record = records_[member];
    member_already = member_already || (record.thread == access.thread && record.time == time);
    knows_all = knows_all && clocks_.knows(access.thread, record.thread, record.epoch, record.time);
  }
  if (member_already) return set;
  added.result = static_cast<uint32_t>(records_.size());
  records_.push_back({.block = block_,
                      .epoch = clocks_.epoch(),
                      .time = time,
                      .site = access.site,
                      .before = knows_all ? 0 : set,
                      .thread = static_cast<uint16_t>(access.thread),
                      .atomic = false});
  return added.result;
}

void RaceDetector::new_sets() {
  ++sets_epoch_;
  sets_clock_epoch_ = clocks_.epoch();
  num_added_ = 0;
}

// Where it is, or where it may be put.
RaceDetector::Added& RaceDetector::find_added(uint32_t set, uint32_t time, int thread) {
  if (2 * num_added_ > added_.size()) {
    const std::vector<Added> before = std::exchange(added_, std::vector<Added>(2 * added_.size()));
    for (const Added& added : before) {
      if (added.epoch == sets_epoch_) find_added(added.set, added.time, added.thread) = added;
    }
  }
  const uint64_t mixed = (uint64_t{set} << 32 | time << 10 | static_cast<uint32_t>(thread)) * 0x9e3779b97f4a7c15ULL;
  for (size_t at = mixed >> 32;; ++at) {
    Added& added = added_[at & (added_.size() - 1)];
    if (added.epoch != sets_epoch_) return added;
    if (added.set == set && added.time == time && added.thread == thread) return added;
  }
}

RaceDetector::Race RaceDetector::race_with(const Record& record, Kind kind) const {
  Race race{.other_kind = kind,
            .other_thread = record.thread,
            .other_block = -1,
            .other_launch = -1,
            .other_site = record.site,
            .byte = 0};
  if (record.block < first_block_) {
    race.other_launch = launch_of(record.block);
  } else if (record.block != block_) {
    race.other_block = record.block - first_block_;
  }
  return race;
}

int64_t RaceDetector::launch_of(uint32_t block) const {
  const auto after = std::upper_bound(launches_.begin(), launches_.end(), block,
                                      [](uint32_t b, const auto& launch) { return b < launch.first; });
  return std::prev(after)->second;
}

void RaceDetector::sync_block() {
  clocks_.sync_block();
  for (Acquired& acquired : acquired_) {
    for (const auto& [address, count] : acquired) {
      size_t& all = acquired_by_all_[address];
      all = std::max(all, count);
    }
    acquired.clear();
  }
}

void RaceDetector::sync_warp(int warp, uint32_t mask) {
  clocks_.sync_warp(warp, mask);
  Acquired joined;
  for (int pass = 0; pass < 2; ++pass) {
    for (int lane = 0; lane < 32; ++lane) {
      if ((mask >> lane & 1) == 0) continue;
      Acquired& own = acquired_[warp * 32 + lane];
      if (pass == 1 && !joined.empty()) own = joined;
      for (const auto& [address, count] : own) joined[address] = std::max(joined[address], count);
    }
  }
}

void RaceDetector::fence(int thread) {
  fenced_ = true;
  Fence& fence = fences_[thread];
  fence.epoch = clocks_.epoch();
  fence.time = clocks_.time(thread);
  const uint32_t* const known = clocks_.known(thread);
  fence.known.clear();
  if (known != nullptr) fence.known.assign(known, known + std::ssize(fences_));
  clocks_.advance(thread);
}

void RaceDetector::atomic(int thread, uintptr_t address) {
  const auto found = releases_.find(address);
  if (found != releases_.end()) acquired_[thread][address] = found->second.size();
  if (fenced_) {
    releases_[address].push_back({.block = block_, .epoch = clocks_.epoch(), .thread = thread, .fences = fences_});
  }
}

}  // namespace ashlar::emulator
