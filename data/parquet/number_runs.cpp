#include "data/parquet/number_runs.h"

#include <algorithm>
#include <cstring>

#include "data/parquet/thrift_compact.h"

namespace ashlar::data {
namespace {

constexpr int kMaxWidth = 32;
constexpr uint64_t kMaxMiniblocks = 4096, kMaxBlock = uint64_t{1} << 20;

/// Returns `width` bits from bit `bit` on, the lowest first. Bits behind the end are 0.
uint32_t bits_at(std::string_view bytes, uint64_t bit, int width) {
  uint64_t word = 0;
  const size_t at = bit / 8;
  std::memcpy(&word, bytes.data() + at, std::min<size_t>(sizeof(word), bytes.size() - at));
  return static_cast<uint32_t>((word >> (bit % 8)) & ((uint64_t{1} << width) - 1));
}

uint64_t number_of(std::string_view bytes, size_t& at) {
  uint64_t value = 0;
  if (!read_varint(bytes, at, value)) throw damaged_parquet("a page ends inside a number");
  return value;
}

}  // namespace

HybridReader::HybridReader(std::string_view bytes, int width) : bytes_(bytes), width_(width) {
  if (width < 0 || width > kMaxWidth) throw damaged_parquet("a page has numbers of ", width, " bits");
}

void HybridReader::open_run() {
  while (left_ == 0) {
    const uint64_t head = number_of(bytes_, at_);
    packed_ = (head & 1U) != 0;
    const uint64_t rest = bytes_.size() - at_;
    if (packed_) {
      const uint64_t groups = std::min(head >> 1, rest);  // a group has at least one byte
      const uint64_t bytes = std::min(groups * static_cast<uint64_t>(width_), rest);
      run_ = bytes_.substr(at_, bytes);
      at_ += bytes;
      bit_ = 0;
      left_ = std::min(groups * 8, bytes * 8 / static_cast<uint64_t>(width_));
      continue;
    }
    const auto bytes = static_cast<size_t>((width_ + 7) / 8);
    if (bytes > rest) throw damaged_parquet("a page ends inside a run of equal numbers");
    value_ = 0;
    std::memcpy(&value_, bytes_.data() + at_, bytes);
    at_ += bytes;
    left_ = head >> 1;
  }
}

uint32_t HybridReader::next() {
  if (width_ == 0) return 0;
  if (left_ == 0) open_run();
  --left_;
  if (!packed_) return value_;
  const uint32_t value = bits_at(run_, bit_, width_);
  bit_ += static_cast<uint64_t>(width_);
  return value;
}

DeltaReader::DeltaReader(std::string_view bytes) : bytes_(bytes) {
  const uint64_t block = number_of(bytes_, at_);
  miniblocks_ = number_of(bytes_, at_);
  left_ = number_of(bytes_, at_);
  value_ = static_cast<uint32_t>(from_zigzag(number_of(bytes_, at_)));
  if (miniblocks_ == 0 || miniblocks_ > kMaxMiniblocks || block > kMaxBlock || block == 0 ||
      block % (miniblocks_ * 8) != 0)
    throw damaged_parquet("a page has blocks of ", block, " differences in ", miniblocks_, " parts");
  per_miniblock_ = block / miniblocks_;
}

void DeltaReader::open_miniblock() {
  if (widths_.empty()) {
    smallest_ = static_cast<uint32_t>(from_zigzag(number_of(bytes_, at_)));
    if (miniblocks_ > bytes_.size() - at_) throw damaged_parquet("a page ends inside the head of a block");
    widths_ = bytes_.substr(at_, miniblocks_);
    at_ += miniblocks_;
  }
  width_ = static_cast<uint8_t>(widths_[0]);
  widths_.remove_prefix(1);
  if (width_ > kMaxWidth) throw damaged_parquet("a page has differences of ", width_, " bits");
  const uint64_t bytes = per_miniblock_ / 8 * static_cast<uint64_t>(width_);
  if (bytes > bytes_.size() - at_) throw damaged_parquet("a page ends inside a block of differences");
  run_ = bytes_.substr(at_, bytes);
  at_ += bytes;
  bit_ = 0;
  in_miniblock_ = per_miniblock_;
}

int32_t DeltaReader::next() {
  if (left_ == 0) throw damaged_parquet("a page has fewer lengths than values");
  --left_;
  if (first_) {
    first_ = false;
    return static_cast<int32_t>(value_);
  }
  if (in_miniblock_ == 0) open_miniblock();
  --in_miniblock_;
  value_ += smallest_ + (width_ == 0 ? 0 : bits_at(run_, bit_, width_));
  bit_ += static_cast<uint64_t>(width_);
  return static_cast<int32_t>(value_);
}

size_t DeltaReader::end() const {
  DeltaReader rest = *this;
  uint64_t left = left_ - std::min<uint64_t>(left_, first_ ? 1 : 0);
  left -= std::min(left, in_miniblock_);
  while (left > 0) {
    rest.open_miniblock();
    left -= std::min(left, per_miniblock_);
  }
  return rest.at_;
}

}  // namespace ashlar::data
