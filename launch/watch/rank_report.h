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
  static constexpr uint32_t kForm = 3;  ///< version of the message format
  static const size_t kBytes;           ///< size of the encoded message

  int64_t version = 0;            ///< creation time by machine_ms(); increases with each report of the rank
  char state = 'S';               ///< state of the rank's main thread, as in ProcessStat::state
  bool answers = true;            ///< true if the rank's watch thread has reported its stacks
  bool printed = false;           ///< true if the rank's node has printed the states of its ranks
  std::array<char, 256> stall{};  ///< text of describe_stall, zero-terminated
  RankPage page;                  ///< snapshot, without stacks and machine-local fields
};

/// Writes the fields, in order, and a checksum to `message`, which has kBytes bytes.
void encode(const RankReport& report, std::span<std::byte> message);
/// Parses a report about a rank of a job with `ranks` ranks. Returns nothing if the message is invalid: wrong length or
/// checksum, or impossible values. The texts of the result are terminated and contain no control characters.
std::optional<RankReport> decode(std::span<const std::byte> message, int64_t ranks);

}  // namespace ashlar::watch
