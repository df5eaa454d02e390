#include "data/parquet/codec.h"

#include <brotli/decode.h>
#include <lz4.h>
#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "data/parquet/fault.h"

namespace ashlar::data {
namespace {

std::string_view name_of_codec(int64_t number) {
  constexpr std::string_view kNames[] = {"UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW"};
  return number >= 0 && number < 8 ? kNames[number] : "of an unknown number";
}

ParquetFault broken_page(ParquetCodec codec) {
  return damaged_parquet("a page is not valid ", name_of_codec(static_cast<int64_t>(codec)), " of its size");
}

/// The most bytes that one byte of the codec stands for; 0 if there is no useful bound.
int64_t most_per_byte(ParquetCodec codec) {
  switch (codec) {
    case ParquetCodec::kUncompressed: return 1;
    case ParquetCodec::kSnappy: return 64;   // a copy of 64 bytes takes at least 2
    case ParquetCodec::kLz4Raw: return 256;  // each further byte of a length stands for 255 bytes
    case ParquetCodec::kGzip: return 1100;   // 258 bytes in 2 bits
    case ParquetCodec::kBrotli:
    case ParquetCodec::kZstd: break;
  }
  return 0;
}

bool gunzip(std::string_view packed, std::span<char> out) {
  z_stream z{};
  ASHLAR_CHECK(inflateInit2(&z, 15 + 32) == Z_OK, "zlib cannot begin");  // 32: the headers of gzip and zlib
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  z.avail_in = static_cast<uInt>(packed.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  int code = inflate(&z, Z_FINISH);
  while (code == Z_STREAM_END && z.avail_in > 0 && z.avail_out > 0) {  // several members
    if (inflateReset(&z) != Z_OK) break;
    code = inflate(&z, Z_FINISH);
  }
  const bool whole = code == Z_STREAM_END && z.avail_out == 0;
  inflateEnd(&z);
  return whole;
}

}  // namespace

ParquetCodec codec_numbered(int64_t number, std::string_view column) {
  constexpr ParquetCodec kCodecs[] = {ParquetCodec::kUncompressed, ParquetCodec::kSnappy, ParquetCodec::kGzip,
                                      ParquetCodec::kBrotli,       ParquetCodec::kZstd,   ParquetCodec::kLz4Raw};
  for (const ParquetCodec codec : kCodecs)
    if (static_cast<int64_t>(codec) == number) return codec;
  throw ParquetFault{str_cat("is compressed with codec ", number, " (", name_of_codec(number), ") in column ",
                             printable(column),
                             ", expected none, SNAPPY, GZIP, ZSTD, LZ4_RAW or BROTLI; write it again,",
                             " for example with pyarrow: pq.write_table(pq.read_table(OLD), NEW, compression='zstd')")};
}

void check_unpacked_size(ParquetCodec codec, std::string_view packed, int64_t bytes) {
  const auto packed_bytes = static_cast<int64_t>(packed.size());
  bool fits = true;
  if (const int64_t most = most_per_byte(codec); most > 0) fits = bytes <= most * packed_bytes;
  if (codec == ParquetCodec::kUncompressed) fits = bytes == packed_bytes;
  if (codec == ParquetCodec::kSnappy && fits) {
    size_t length = 0;
    fits = snappy_uncompressed_length(packed.data(), packed.size(), &length) == SNAPPY_OK &&
           length == static_cast<size_t>(bytes);
  }
  if (codec == ParquetCodec::kZstd) {
    const unsigned long long length = ZSTD_getFrameContentSize(packed.data(), packed.size());
    fits = length != ZSTD_CONTENTSIZE_ERROR &&
           (length == ZSTD_CONTENTSIZE_UNKNOWN || length <= static_cast<unsigned long long>(bytes));
  }
  if (!fits) throw broken_page(codec);
}

void unpack_page(ParquetCodec codec, std::string_view packed, std::span<char> out) {
  bool whole = false;
  size_t length = out.size();
  switch (codec) {
    case ParquetCodec::kUncompressed:
      whole = packed.size() == out.size();
      if (whole) std::copy(packed.begin(), packed.end(), out.begin());
      break;
    case ParquetCodec::kSnappy:
      whole = snappy_uncompress(packed.data(), packed.size(), out.data(), &length) == SNAPPY_OK && length == out.size();
      break;
    case ParquetCodec::kGzip: whole = gunzip(packed, out); break;
    case ParquetCodec::kBrotli:
      whole = BrotliDecoderDecompress(packed.size(), reinterpret_cast<const uint8_t*>(packed.data()), &length,
                                      reinterpret_cast<uint8_t*>(out.data())) == BROTLI_DECODER_RESULT_SUCCESS &&
              length == out.size();
      break;
    case ParquetCodec::kZstd:
      whole = ZSTD_decompress(out.data(), out.size(), packed.data(), packed.size()) == out.size();
      break;
    case ParquetCodec::kLz4Raw:
      whole = LZ4_decompress_safe(packed.data(), out.data(), static_cast<int>(packed.size()),
                                  static_cast<int>(out.size())) == static_cast<int>(out.size());
      break;
  }
  if (!whole) throw broken_page(codec);
}

}  // namespace ashlar::data
