#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ashlar::watch {

/// The shared secret of the ranks of a job: rank 0 draws it and sends it over MPI.
struct RingSecret {
  std::array<uint8_t, 32> bytes{};
  static RingSecret random();  ///< random bytes from the kernel; resource error on failure
};

using RingNonce = std::array<uint8_t, 16>;
using RingMac = std::array<uint8_t, 32>;

RingNonce random_nonce();

enum class RingDirection : uint8_t { kToListener, kToCaller };

/// Identity of a connection. The message authentication code (MAC) of each packet includes this identity, so that a
/// packet is valid only on its own connection.
struct RingSession {
  RingSecret secret;
  uint64_t job = 0;
  RingNonce caller{}, listener{};

  /// Returns BLAKE2b of both nonces, job, direction, counter and body, with the secret as key.
  RingMac mac(RingDirection direction, uint64_t counter, std::span<const std::byte> body) const;
};

/// Compares in constant time.
bool same(const RingMac& a, const RingMac& b);

}  // namespace ashlar::watch
