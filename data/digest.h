#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ashlar::data {

/// A 128-bit digest of content: XXH3-128, whose values are stable since release 0.8.0. It detects accidental changes
/// (collision probability 1e-20 for a billion contents), not forgery.
/// Source: https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md.
struct Digest {
  uint64_t high = 0, low = 0;

  bool operator==(const Digest&) const = default;
  Digest& operator+=(const Digest& other);  ///< modulo 2^128
  std::string hex() const;                  ///< 32 digits, lower case
};

/// Parses hex(); nothing for any other text.
std::optional<Digest> digest_from_hex(std::string_view text);

Digest digest_of(std::span<const std::byte> bytes, uint64_t seed = 0);
Digest digest_of(std::string_view text, uint64_t seed = 0);

/// The digest of a token stream: the sum, over chunks of kChunkTokens (the last may be shorter), of the digest of the
/// chunk's ids as uint32, seeded with the chunk's number in its part. As it is a sum, the digests of the shards of a
/// part add up to the digest of the part, for any division into shards. As it is seeded, the order of the chunks
/// matters.
Digest chunk_digest(int64_t chunk_of_part, std::span<const uint32_t> ids);
Digest chunk_digest(int64_t chunk_of_part, std::span<const int32_t> ids);

}  // namespace ashlar::data
