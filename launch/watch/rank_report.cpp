#include "launch/watch/rank_report.h"

#include <cstring>
#include <type_traits>

#include "core/base/error.h"
#include "core/io/checksum.h"

namespace ashlar::watch {

namespace {

// Visits all fields that are sent, in order. A change here changes the message format: increase RankReport::kForm too.
template <typename Report, typename Visit>
constexpr void each_field(Report& report, const Visit& visit) {
  visit(report.version), visit(report.state), visit(report.answers), visit(report.printed), visit(report.stall);
  auto& page = report.page;
  visit(page.state), visit(page.phase), visit(page.machine), visit(page.rank), visit(page.ranks), visit(page.pid);
  visit(page.micro_batch), visit(page.at), visit(page.waiting);
  visit(page.step), visit(page.operations), visit(page.host);
  for (auto& record : page.recent) {
    auto& info = record.info;
    visit(info.kind), visit(info.op), visit(info.dtype), visit(info.size), visit(info.peer);
    visit(info.recv_dtype), visit(info.recv_size), visit(info.recv_peer), visit(info.number), visit(info.label);
    visit(record.communicator);
  }
}

constexpr size_t bytes_of_fields() {
  size_t bytes = 0;
  RankReport report;
  each_field(report, [&](const auto& field) { bytes += sizeof(field); });
  return bytes;
}
constexpr size_t kFields = bytes_of_fields();

template <size_t kSize>
void make_text(std::array<char, kSize>& text) {
  text.back() = '\0';
  for (char& c : text)
    if (c != '\0' && (static_cast<unsigned char>(c) < ' ' || c == 0x7f)) c = '?';
}

bool is_dtype(DType dtype) { return dtype <= DType::kUInt8; }

bool makes_sense(const RankReport& report, int64_t ranks) {
  const RankPage& page = report.page;
  bool good = page.ranks == ranks && page.rank >= 0 && page.rank < page.ranks && page.state <= RankState::kCrashed &&
              page.phase <= Phase::kEnding && report.version > 0;
  for (const OperationRecord& record : page.recent) {
    const comm::OperationInfo& info = record.info;
    good = good && info.kind <= comm::OperationKind::kHostUnite && info.op <= comm::ReduceOp::kMax &&
           is_dtype(info.dtype) && is_dtype(info.recv_dtype);
  }
  return good;
}

}  // namespace

const size_t RankReport::kBytes = kFields + sizeof(uint32_t);

void encode(const RankReport& report, std::span<std::byte> message) {
  ASHLAR_CHECK(message.size() == RankReport::kBytes, "expected a message of RankReport::kBytes, got ", message.size(),
               " bytes");
  std::byte* to = message.data();
  each_field(report, [&](const auto& field) {
    std::memcpy(to, &field, sizeof(field));
    to += sizeof(field);
  });
  const uint32_t sum = io::crc32(message.first(kFields));
  std::memcpy(to, &sum, sizeof(sum));
}

std::optional<RankReport> decode(std::span<const std::byte> message, int64_t ranks) {
  if (message.size() != RankReport::kBytes) return {};
  uint32_t sum = 0;
  std::memcpy(&sum, message.data() + kFields, sizeof(sum));
  if (sum != io::crc32(message.first(kFields))) return {};
  std::optional<RankReport> report(std::in_place);
  const std::byte* from = message.data();
  each_field(*report, [&]<typename Field>(Field& field) {
    if constexpr (std::is_same_v<Field, bool>) {
      field = *from != std::byte{0};  // any other value would not be a bool
    } else {
      std::memcpy(&field, from, sizeof(field));
    }
    from += sizeof(field);
  });
  if (!makes_sense(*report, ranks)) return {};
  if (report->state < 'A' || report->state > 'z') report->state = '?';
  make_text(report->stall);
  make_text(report->page.host);
  for (OperationRecord& record : report->page.recent) {
    make_text(record.info.label);
    make_text(record.communicator);
  }
  return report;
}

}  // namespace ashlar::watch
