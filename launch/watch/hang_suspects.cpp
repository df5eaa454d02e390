#include "launch/watch/hang_suspects.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "core/base/fixed_text.h"
#include "core/base/mesh_axis.h"
#include "core/base/strings.h"

namespace ashlar::watch {

namespace {

std::string who(const RankPage& page) {
  return str_cat("rank ", page.rank, " of ", page.ranks, " on ", page.host.data());
}

std::string action_of(const RankPage& page) {
  std::array<char, 96> memory;
  FixedText text(memory);
  return std::string(add_action(text, page).text());
}

std::string text_of(const OperationRecord& record) {
  std::array<char, 256> memory;
  return std::string(comm::describe(record.info, record.communicator.data(), memory));
}

bool is_message(comm::OperationKind kind) {
  using enum comm::OperationKind;
  return kind == kSend || kind == kRecv || kind == kSendRecv;
}

// Identifies a group of ranks that share a communicator: the communicator's name, and the mesh coordinates or the
// machine that the ranks have in common.
using Group = std::tuple<std::string, std::array<int32_t, kNumAxes>, uint64_t>;
Group group_of(const RankPage& page, std::string_view full_name) {
  // A name may have a suffix: "tensor check" belongs to the tensor group.
  const std::string_view name = full_name.substr(0, full_name.find(' '));
  const std::string parts = str_cat("+", name, "+");  // "+replica+tensor+" for a group along these axes
  AxisSet axes;
  for (const auto& [axis, axis_name] : kAxisNames)
    if (parts.find(str_cat("+", axis_name, "+")) != std::string::npos) axes = axes | axis;
  std::array<int32_t, kNumAxes> common = page.at;
  for (const auto& [axis, axis_name] : kAxisNames)
    if (axes.empty() || axes.has(axis)) common[static_cast<size_t>(axis)] = -2;
  return {std::string(full_name), common, name == "machine" ? page.machine : 0};
}

// Returns the last operations of a rank on all communicators, newest first.
std::vector<const OperationRecord*> records_of(const RankPage& page) {
  std::vector<const OperationRecord*> records;
  const uint64_t count = look_at(page.operations);
  for (uint64_t i = count; i > 0 && count - i < RankPage::kRecords; --i)
    records.push_back(&page.recent[(i - 1) % RankPage::kRecords]);
  return records;
}

bool agree(const comm::OperationInfo& a, const comm::OperationInfo& b) {
  const bool root = a.kind == comm::OperationKind::kBroadcast;
  const bool own_size = a.kind == comm::OperationKind::kAllToAll;
  return a.kind == b.kind && a.op == b.op && a.dtype == b.dtype && (own_size || a.size == b.size) &&
         a.label == b.label && (!root || a.peer == b.peer);
}

struct Issued {
  const RankPage* page;
  const OperationRecord* record;
};

// Finds operations with the same number on one communicator that differ between ranks.
std::vector<Suspect> mismatches(std::span<const RankSnapshot> ranks) {
  std::map<std::pair<Group, uint64_t>, std::vector<Issued>> places;
  for (const RankSnapshot& rank : ranks) {
    for (const OperationRecord* record : records_of(rank.page)) {
      if (!is_message(record->info.kind))
        places[{group_of(rank.page, record->communicator.data()), record->info.number}].push_back({&rank.page, record});
    }
  }
  for (const auto& [place, issued] : places) {
    std::vector<std::pair<Issued, size_t>> kinds;  // first operation of each kind, and how many ranks issued that kind
    for (const Issued& one : issued) {
      const auto known = std::ranges::find_if(
          kinds, [&](const auto& kind) { return agree(kind.first.record->info, one.record->info); });
      known == kinds.end() ? kinds.emplace_back(one, 1) : * known = {known->first, known->second + 1};
    }
    if (kinds.size() == 1) continue;
    const auto most = std::ranges::max_element(kinds, [](const auto& a, const auto& b) { return a.second < b.second; });
    std::vector<Suspect> odd;
    const Issued& usual = most->first;
    const bool tie = 2 * most->second == issued.size();
    for (const Issued& one : issued) {
      const bool same = agree(one.record->info, usual.record->info);
      if (same && !tie) continue;
      const Issued& other = same ? kinds[most == kinds.begin() ? 1 : 0].first : usual;
      odd.push_back({Suspicion::kMismatch, one.page->rank,
                     str_cat(who(*one.page), " issued ", text_of(*one.record), ", where rank ", other.page->rank,
                             " issued ", text_of(*other.record))});
    }
    if (!odd.empty()) return odd;  // the first mismatch by communicator and number; later ones are consequences
  }
  return {};
}

// Finds ranks that have not issued an operation that another rank of their group has issued.
std::vector<Suspect> left_behind(std::span<const RankSnapshot> ranks) {
  std::map<Group, std::vector<Issued>> last;
  for (const RankSnapshot& rank : ranks) {
    std::map<Group, const OperationRecord*> newest;
    for (const OperationRecord* record : records_of(rank.page))
      newest.try_emplace(group_of(rank.page, record->communicator.data()), record);
    for (const auto& [group, record] : newest) {
      if (!is_message(record->info.kind)) last[group].push_back({&rank.page, record});
    }
  }
  std::vector<Suspect> behind;
  std::set<int32_t> known;
  for (const auto& [group, issued] : last) {
    const auto number = [](const Issued& one) { return one.record->info.number; };
    const Issued& most =
        *std::ranges::max_element(issued, [&](const Issued& a, const Issued& b) { return number(a) < number(b); });
    for (const Issued& one : issued) {
      if (number(one) == number(most) || !known.insert(one.page->rank).second) continue;
      behind.push_back({Suspicion::kBehind, one.page->rank,
                        str_cat(who(*one.page), " is behind: its last operation on ", std::get<0>(group), " is number ",
                                number(one), ", rank ", most.page->rank, " has issued ", text_of(*most.record))});
    }
  }
  return behind;
}

}  // namespace

std::vector<Suspect> find_suspects(std::span<const RankSnapshot> ranks) {
  std::vector<Suspect> found;
  for (const RankSnapshot& rank : ranks) {
    if (!rank.stall.empty()) {
      found.push_back({Suspicion::kSuspended, rank.page.rank,
                       str_cat(who(rank.page), " in ", action_of(rank.page), ": ", rank.stall)});
      continue;
    }
    const char* why = rank.state == 'T' || rank.state == 't'   ? " is stopped (state T)"
                      : rank.state == 'D'                      ? " is in an uninterruptible system call (state D)"
                      : rank.state == 'X' || rank.state == 'Z' ? " has ended"
                      : !rank.answers                          ? " does not answer"
                                                               : nullptr;
    if (why == nullptr) continue;
    found.push_back(
        {Suspicion::kSuspended, rank.page.rank, str_cat(who(rank.page), why, " in ", action_of(rank.page))});
  }
  if (!found.empty()) return found;
  found = mismatches(ranks);
  if (!found.empty()) return found;
  const bool some_wait = std::ranges::any_of(ranks, [](const auto& r) { return look_at(r.page.waiting) != 0; });
  if (!some_wait) {  // e.g. devices wait for each other, and hosts for their devices
    found = left_behind(ranks);
    if (!found.empty()) return found;
  }
  for (const RankSnapshot& rank : ranks) {
    if (look_at(rank.page.waiting) != 0 || rank.page.state != RankState::kRunning) continue;
    found.push_back(
        {Suspicion::kBusy, rank.page.rank,
         str_cat(who(rank.page), some_wait ? ", for which others wait, is in " : " is in ", action_of(rank.page))});
  }
  if (!found.empty()) return found;
  return left_behind(ranks);
}

std::string describe_action(const RankPage& page, int64_t now_ms) {
  const uint64_t operations = look_at(page.operations);
  std::array<char, 256> memory;
  return str_cat(page.step < 0 ? "before the first step" : str_cat("step ", page.step), ", ", action_of(page), " for ",
                 (now_ms - look_at(page.phase_since_ms)) / 1000, " s",
                 look_at(page.waiting) != 0 ? ", waits for other ranks" : "", ", last operation ",
                 last_operation(page, memory), operations == 0 ? "" : str_cat(", operations in total: ", operations));
}

std::string describe_hung(const RankSnapshot& rank, int64_t now_ms, const std::string& prefix) {
  std::string text = str_cat(prefix, "[", who(rank.page), "] ", describe_action(rank.page, now_ms), "\n");
  const std::vector<const OperationRecord*> records = records_of(rank.page);
  std::string before;
  for (size_t i = 1; i < records.size() && i < 4; ++i) before += str_cat(i == 1 ? "" : "; ", text_of(*records[i]));
  if (!before.empty()) text += str_cat(prefix, "    before that: ", before, "\n");
  size_t begin = 0;
  while (begin < rank.threads.size()) {
    const size_t end = std::min(rank.threads.find('\n', begin), rank.threads.size());
    text += str_cat(prefix, "    ", rank.threads.substr(begin, end - begin), "\n");
    begin = end + 1;
  }
  return text;
}

std::string list_ranks(std::span<const int32_t> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t first = 0; first < ranks.size();) {
    size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += str_cat(first == 0 ? "" : ", ", ranks[first], last == first ? "" : str_cat("-", ranks[last]));
    first = last + 1;
  }
  return text;
}

int64_t hang_limit_ms(std::span<const RankPage> pages, double hang_after_seconds) {
  int64_t longest = 0;
  for (const RankPage& page : pages) longest = std::max(longest, look_at(page.longest_step_ms));
  return longest + static_cast<int64_t>(hang_after_seconds * 1e3);
}

int64_t quiet_ms(std::span<const RankPage> pages, int64_t now_ms) {
  int64_t newest = -1;
  for (const RankPage& page : pages)
    if (takes_part(page)) newest = std::max(newest, look_at(page.progress_ms));
  return newest < 0 ? 0 : now_ms - newest;
}

}  // namespace ashlar::watch
