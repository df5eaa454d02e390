#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "launch/watch/rank_page.h"

namespace ashlar::watch {

/// What the node of a rank tells all other nodes of it when the job hangs.
struct RankReport {
  static constexpr uint32_t kForm = 2;  ///< of what nodes send each other; changes with it
  static const size_t kBytes;           ///< of its message

  int64_t version = 0;            ///< grows with each of this rank: when it was made, by the clock of its machine
  char state = 'S';               ///< of its main thread, as in ProcessStat
  bool answers = true;            ///< its watch has said where its threads are
  bool told = false;              ///< its node has written its own report
  std::array<char, 256> stall{};  ///< of describe_stall, ends in a zero
  RankPage page;                  ///< as it stood then, without stacks and what only its own machine can use
};

/// Into `message`, of kBytes: fields one after the other and a checksum.
void encode(const RankReport& report, std::span<std::byte> message);
/// A message about one of `ranks` ranks. Nothing when it is no such message: another length, another sum, or values
/// that no rank has. Texts end, and hold nothing that a terminal would obey.
std::optional<RankReport> decode(std::span<const std::byte> message, int64_t ranks);

}  // namespace ashlar::watch
