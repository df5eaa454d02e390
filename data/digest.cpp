#include "data/digest.h"

#include <xxhash.h>

#include <charconv>

#include "core/base/hex.h"

namespace ashlar::data {
namespace {

std::optional<uint64_t> word(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size() || hex64(value) != text) return std::nullopt;
  return value;
}

}  // namespace

Digest& Digest::operator+=(const Digest& other) {
  low += other.low;
  high += other.high + (low < other.low ? 1 : 0);
  return *this;
}

std::string Digest::hex() const { return hex64(high) + hex64(low); }

std::optional<Digest> digest_from_hex(std::string_view text) {
  if (text.size() != 32) return std::nullopt;
  const auto high = word(text.substr(0, 16)), low = word(text.substr(16));
  if (!high || !low) return std::nullopt;
  return Digest{*high, *low};
}

Digest digest_of(std::span<const std::byte> bytes, uint64_t seed) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
  return {hash.high64, hash.low64};
}

Digest digest_of(std::string_view text, uint64_t seed) { return digest_of(std::as_bytes(std::span(text)), seed); }

Digest chunk_digest(int64_t chunk_of_part, std::span<const uint32_t> ids) {
  return digest_of(std::as_bytes(ids), static_cast<uint64_t>(chunk_of_part));
}

Digest chunk_digest(int64_t chunk_of_part, std::span<const int32_t> ids) {
  return digest_of(std::as_bytes(ids), static_cast<uint64_t>(chunk_of_part));
}

}  // namespace ashlar::data
