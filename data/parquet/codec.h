#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace ashlar::data {

/// Compression of the pages of a column. The values are those of the format.
enum class ParquetCodec : uint8_t { kUncompressed = 0, kSnappy = 1, kGzip = 2, kBrotli = 4, kZstd = 6, kLz4Raw = 7 };

/// Returns the codec of this number. Throws ParquetFault, with the name of the column, if this reader does not have it.
ParquetCodec codec_numbered(int64_t number, std::string_view column);

/// Throws ParquetFault if `packed` cannot be `bytes` bytes, so that no memory is reserved for a size that a damaged
/// page declares.
void check_unpacked_size(ParquetCodec codec, std::string_view packed, int64_t bytes);

/// Decompresses `packed` to exactly the bytes of `out`. Throws ParquetFault if it has another size or is invalid.
void unpack_page(ParquetCodec codec, std::string_view packed, std::span<char> out);

}  // namespace ashlar::data
