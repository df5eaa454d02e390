#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ashlar::data {

/// Reads the hybrid of run lengths and bit-packed groups that holds definition levels and dictionary indices.
/// Source: Apache Parquet, Encodings.md, RLE = 3.
class HybridReader {
 public:
  HybridReader() = default;
  /// `width` is the number of bits of a value, at most 32; of no bits, every value is 0 and needs no bytes.
  HybridReader(std::string_view bytes, int width);
  uint32_t next();  ///< throws ParquetFault behind the last value

 private:
  void open_run();

  std::string_view bytes_;
  int width_ = 0;
  size_t at_ = 0;
  uint64_t left_ = 0;  ///< number of values left in the run
  bool packed_ = false;
  uint32_t value_ = 0;    ///< value of a run of equal ones
  std::string_view run_;  ///< bytes of a bit-packed run
  uint64_t bit_ = 0;      ///< position in `run_`
};

/// Reads int32 numbers stored as differences, in blocks of several miniblocks. Holds no number but the last.
/// Source: Apache Parquet, Encodings.md, DELTA_BINARY_PACKED = 5.
class DeltaReader {
 public:
  DeltaReader() = default;
  explicit DeltaReader(std::string_view bytes);
  uint64_t left() const { return left_; }  ///< number of numbers not yet read
  int32_t next();                          ///< throws ParquetFault behind the last number
  size_t end() const;                      ///< returns where the numbers end, in bytes

 private:
  void open_miniblock();

  std::string_view bytes_;
  size_t at_ = 0;
  uint64_t miniblocks_ = 0, per_miniblock_ = 0, left_ = 0;
  bool first_ = true;        ///< the first number is in the header
  uint32_t value_ = 0;       ///< the last number, or the first before it is read; wraps around as int32 does
  uint32_t smallest_ = 0;    ///< the smallest difference of the block
  std::string_view widths_;  ///< widths of the block's miniblocks that are not yet open
  std::string_view run_;     ///< bytes of the open miniblock
  uint64_t bit_ = 0, in_miniblock_ = 0;
  int width_ = 0;
};

}  // namespace ashlar::data
