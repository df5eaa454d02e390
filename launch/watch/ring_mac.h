#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ashlar::watch {

/// What the ranks of a job know and nobody else: rank 0 draws it, the others get it over MPI.
struct RingSecret {
  std::array<uint8_t, 32> bytes{};
  static RingSecret random();  ///< from the kernel; resource error when it has none
};

using RingNonce = std::array<uint8_t, 16>;
using RingMac = std::array<uint8_t, 32>;

RingNonce random_nonce();

enum class RingDirection : uint8_t { kToListener, kToCaller };

/// One connection: what makes its packets ones that belong nowhere else.
struct RingSession {
  RingSecret secret;
  uint64_t job = 0;
  RingNonce caller{}, listener{};

  /// BLAKE2b with the secret as key, of both nonces, job, direction, counter and body.
  RingMac mac(RingDirection direction, uint64_t counter, std::span<const std::byte> body) const;
};

/// In a time that does not depend on where they differ.
bool same(const RingMac& a, const RingMac& b);

}  // namespace ashlar::watch
