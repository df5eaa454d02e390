#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ashlar::data {

/// A 128-bit digest of content: XXH3-128, whose values are the same in every xxHash release since 0.8.0. It detects
/// accidental changes: among a billion different contents, the probability that any two have the same digest is below
/// 1e-20. It does not detect forgery.
/// Source: https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md.
struct Digest {
  uint64_t high = 0, low = 0;

  bool operator==(const Digest&) const = default;
  Digest& operator+=(const Digest& other);  ///< adds modulo 2^128
  std::string hex() const;                  ///< 32 hex digits, lower case
};

/// Parses the text that Digest::hex returns. Returns nothing for any other text.
std::optional<Digest> digest_from_hex(std::string_view text);

Digest digest_of(std::span<const std::byte> bytes, uint64_t seed = 0);
Digest digest_of(std::string_view text, uint64_t seed = 0);

/// Returns the digest of one chunk of the token stream of a dataset part (train or validation): the hash of its ids as
/// uint32. The seed of the hash is the index of the chunk in the part. A chunk has kChunkTokens (65536) ids; the last
/// chunk may have fewer. The digest of a token stream is the sum of the digests of its chunks. Therefore the digests of
/// the shards of a part add up to the digest of the part, however the chunks are divided into shards. Since each chunk
/// has a different seed, the digest depends on the order of the chunks.
Digest chunk_digest(int64_t chunk_of_part, std::span<const uint32_t> ids);
Digest chunk_digest(int64_t chunk_of_part, std::span<const int32_t> ids);

}  // namespace ashlar::data
