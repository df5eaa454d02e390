#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "launch/watch/rank_page.h"

namespace ashlar::watch {

/// Report on a rank that its node sends to all other nodes when the job hangs.
struct RankReport {
  static constexpr uint32_t kForm = 2;  ///< version of the message format
  static const size_t kBytes;           ///< bytes of its message

  int64_t version = 0;            ///< increases per rank: time of creation, by its machine's clock
  char state = 'S';               ///< state of its main thread, as in ProcessStat
  bool answers = true;            ///< its watch thread has reported its stacks
  bool printed = false;           ///< its node has printed its own ranks
  std::array<char, 256> stall{};  ///< from describe_stall, zero-terminated
  RankPage page;                  ///< snapshot, without stacks and machine-local fields
};

/// Writes to `message`, of kBytes: the fields in order and a checksum.
void encode(const RankReport& report, std::span<std::byte> message);
/// Parses a message about one of `ranks` ranks. Nothing if invalid: wrong length or checksum, or impossible values.
/// Texts are terminated and contain no control characters.
std::optional<RankReport> decode(std::span<const std::byte> message, int64_t ranks);

}  // namespace ashlar::watch
