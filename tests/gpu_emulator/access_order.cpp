#include "tests/gpu_emulator/access_order.h"

#include <algorithm>

#include "core/base/error.h"

namespace ashlar::emulator {

namespace {

constexpr uintptr_t kPage = 4096;

}  // namespace

// Column slices of one matrix lie between each other.
bool AccessOrder::apart(const Access& a, const Access& b) {
  if (a.end <= b.begin || b.end <= a.begin) return true;
  if (a.stride_bytes != b.stride_bytes || a.row_bytes == a.stride_bytes) return false;
  const auto stride = static_cast<uintptr_t>(a.stride_bytes);
  const uintptr_t offset = a.begin < b.begin ? (b.begin - a.begin) % stride : (a.begin - b.begin) % stride;
  const Access& first = a.begin < b.begin ? a : b;
  const Access& second = a.begin < b.begin ? b : a;
  return offset >= static_cast<uintptr_t>(first.row_bytes) &&
         offset + static_cast<uintptr_t>(second.row_bytes) <= stride;
}

void AccessOrder::touch(const ConstView& view, bool writes) {
  if (view.size() == 0) return;
  const auto begin = reinterpret_cast<uintptr_t>(view.data);
  const int64_t element = size_of(view.dtype), row = view.cols * element;
  const int64_t stride = view.rows > 1 ? view.stride * element : row;
  const Access now{.begin = begin,
                   .end = begin + static_cast<uintptr_t>((view.rows - 1) * stride + row),
                   .row_bytes = row,
                   .stride_bytes = stride,
                   .writes = writes,
                   .call = queues_.call()};
  const auto known = [this](const Access& before) { return queues_.known(before.call.stream, before.call.time); };
  for (uintptr_t page = now.begin / kPage; page <= (now.end - 1) / kPage; ++page) {
    std::vector<Access>& accesses = pages_[page];
    for (const Access& before : accesses) {
      if ((!before.writes && !writes) || apart(before, now) || known(before)) continue;
      throw Bug(str_cat("[streams] ", now.call.name, writes ? " writes" : " reads", " what ", before.call.name,
                        before.writes ? " writes" : " reads", ": no event, and no wait of the host, orders them"));
    }
    // What a later access of the same kind covers says nothing more.
    std::erase_if(accesses, [&](const Access& before) {
      const bool covers = now.begin <= before.begin && before.end <= now.end && now.row_bytes == now.stride_bytes;
      return covers && known(before) && (writes || (!before.writes && before.call.stream == now.call.stream));
    });
    accesses.push_back(now);
  }
}

bool AccessOrder::in_use(const void* begin, int64_t bytes) const {
  const auto from = reinterpret_cast<uintptr_t>(begin), to = from + static_cast<uintptr_t>(bytes);
  for (uintptr_t page = from / kPage; bytes > 0 && page <= (to - 1) / kPage; ++page) {
    const auto found = pages_.find(page);
    if (found == pages_.end()) continue;
    for (const Access& a : found->second)
      if (a.begin < to && from < a.end && !queues_.done(a.call.stream, a.call.time)) return true;
  }
  return false;
}

std::string AccessOrder::known_of(const void* at) const {
  const auto address = reinterpret_cast<uintptr_t>(at);
  const auto page = pages_.find(address / kPage);
  std::string last = "that no call has touched";
  if (page != pages_.end()) {
    for (const Access& a : page->second)
      if (a.begin <= address && address < a.end) last = str_cat("that ", a.call.name, a.writes ? " writes" : " reads");
  }
  return str_cat(last, "; the last calls queued: ", queues_.last_calls());
}

}  // namespace ashlar::emulator
