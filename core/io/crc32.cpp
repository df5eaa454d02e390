// CRC-32 by carry-less multiplication if the processor supports it, at about twice zlib's speed. Speed matters because
// checkpoints are checked when they are written and when they are read back, while training needs the same cores.
// Source: Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009). The
// constants are x^k mod P for the folding distances k, where P is the reflected polynomial 0xEDB88320.
#include <zlib.h>

#include "core/io/checksum.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ashlar::io {
namespace {

uint32_t crc32_zlib(std::span<const std::byte> bytes, uint32_t crc) {
  return static_cast<uint32_t>(
      ::crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<z_size_t>(bytes.size())));
}

#if defined(__x86_64__)
constexpr size_t kLane = 16, kBlock = 4 * kLane;

__attribute__((target("pclmul,sse4.1"))) __m128i load(const std::byte* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}

/// Folds the 128 bits of `x` forward and adds (XOR) the result to `next`. The constants in `k` determine the distance.
__attribute__((target("pclmul,sse4.1"))) __m128i fold(__m128i x, __m128i k, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(x, k, 0x00), high = _mm_clmulepi64_si128(x, k, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/// Computes the CRC of `bytes`, whose size must be at least 64 and a multiple of 16. `crc` and the result are bitwise
/// inverted.
__attribute__((target("pclmul,sse4.1"))) uint32_t crc32_folded(std::span<const std::byte> bytes, uint32_t crc) {
  const __m128i by_512 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
  const __m128i by_128 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
  const __m128i by_64 = _mm_set_epi64x(0, 0x0163cd6124);
  const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);
  const __m128i low_32_of_64 = _mm_setr_epi32(~0, 0, ~0, 0);
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  // 1. Fold in 64 bytes at a time: four lanes of 128 bits, each folded by 512 bits.
  __m128i x1 = _mm_xor_si128(load(at), _mm_cvtsi32_si128(static_cast<int>(crc)));
  __m128i x2 = load(at + kLane), x3 = load(at + 2 * kLane), x4 = load(at + 3 * kLane);
  for (at += kBlock, left -= kBlock; left >= kBlock; at += kBlock, left -= kBlock) {
    // The hardware prefetcher stops at page boundaries. With this prefetch, memory is read at 13 GB/s instead of 7.8
    // GB/s.
    _mm_prefetch(reinterpret_cast<const char*>(at) + 4096, _MM_HINT_T0);
    x1 = fold(x1, by_512, load(at));
    x2 = fold(x2, by_512, load(at + kLane));
    x3 = fold(x3, by_512, load(at + 2 * kLane));
    x4 = fold(x4, by_512, load(at + 3 * kLane));
  }
  // 2. Fold the four lanes into one, then fold in the remaining bytes, 128 bits at a time.
  x1 = fold(x1, by_128, x2);
  x1 = fold(x1, by_128, x3);
  x1 = fold(x1, by_128, x4);
  for (; left >= kLane; at += kLane, left -= kLane) x1 = fold(x1, by_128, load(at));
  // 3. Reduce 128 bits to 64, then to the 32 bits of the CRC (Barrett reduction).
  x1 = _mm_xor_si128(_mm_srli_si128(x1, 8), _mm_clmulepi64_si128(x1, by_128, 0x10));
  x1 = _mm_xor_si128(_mm_srli_si128(x1, 4), _mm_clmulepi64_si128(_mm_and_si128(x1, low_32_of_64), by_64, 0x00));
  __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(x1, low_32_of_64), barrett, 0x10);
  quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_32_of_64), barrett, 0x00);
  return static_cast<uint32_t>(_mm_extract_epi32(_mm_xor_si128(x1, quotient), 1));
}
#endif

}  // namespace

uint32_t crc32(std::span<const std::byte> bytes, uint32_t crc) {
#if defined(__x86_64__)
  if (bytes.size() >= kBlock && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) {
    const size_t folded = bytes.size() / kLane * kLane;
    crc = ~crc32_folded(bytes.first(folded), ~crc);
    bytes = bytes.subspan(folded);
  }
#endif
  return bytes.empty() ? crc : crc32_zlib(bytes, crc);
}

uint32_t crc32(std::string_view text, uint32_t crc) { return crc32(std::as_bytes(std::span(text)), crc); }

}  // namespace ashlar::io
