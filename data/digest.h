#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ashlar::data {

/// 128 bits that tell one content from another: XXH3-128, whose values are fixed for ever since release 0.8.0. Guards
/// against mistakes (a probability of 1e-20 for a billion contents), not against somebody who forges one.
/// Source: https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md.
struct Digest {
  uint64_t high = 0, low = 0;

  bool operator==(const Digest&) const = default;
  Digest& operator+=(const Digest& other);  ///< modulo 2^128
  std::string hex() const;                  ///< 32 digits, lower case
};

/// What hex() wrote; nothing for any other text.
std::optional<Digest> digest_from_hex(std::string_view text);

Digest digest_of(std::span<const std::byte> bytes, uint64_t seed = 0);
Digest digest_of(std::string_view text, uint64_t seed = 0);

/// The digest of tokens as a stream: the sum over chunks of kChunkTokens (the last may be shorter) of the digest of the
/// chunk's ids as uint32, seeded with the chunk's number in its part. A sum, so that the digest of a part is that of
/// its shards added up, however the part is cut into shards; seeded, so that chunks in another order give another one.
Digest chunk_digest(int64_t chunk_of_part, std::span<const uint32_t> ids);
Digest chunk_digest(int64_t chunk_of_part, std::span<const int32_t> ids);

}  // namespace ashlar::data
