#include "launch/watch/ring_mac.h"

#include <blake2.h>
#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "core/base/error.h"

namespace ashlar::watch {

namespace {

void fill_random(std::span<uint8_t> bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = getrandom(bytes.data() + done, bytes.size() - done, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      throw resource_error("ranks", "expected random bytes from the kernel for the secret of the heartbeats, got: ",
                           std::strerror(errno), " (getrandom); use another machine");
    done += static_cast<size_t>(n);
  }
}

}  // namespace

RingSecret RingSecret::random() {
  RingSecret secret;
  fill_random(secret.bytes);
  return secret;
}

RingNonce random_nonce() {
  RingNonce nonce{};
  fill_random(nonce);
  return nonce;
}

RingMac RingSession::mac(RingDirection direction, uint64_t counter, std::span<const std::byte> body) const {
  RingMac mac{};
  blake2b_state state;
  blake2b_init_key(&state, mac.size(), secret.bytes.data(), secret.bytes.size());
  const auto add = [&](const void* from, size_t bytes) {
    blake2b_update(&state, static_cast<const uint8_t*>(from), bytes);
  };
  add(caller.data(), caller.size());
  add(listener.data(), listener.size());
  add(&job, sizeof(job));
  add(&direction, sizeof(direction));
  add(&counter, sizeof(counter));
  add(body.data(), body.size());
  blake2b_final(&state, mac.data(), mac.size());
  return mac;
}

bool same(const RingMac& a, const RingMac& b) {
  volatile uint8_t differs = 0;  // keeps the compiler from returning early
  for (size_t i = 0; i < a.size(); ++i) differs = static_cast<uint8_t>(differs | (a[i] ^ b[i]));
  return differs == 0;
}

}  // namespace ashlar::watch
