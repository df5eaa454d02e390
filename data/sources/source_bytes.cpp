#include "data/sources/source_bytes.h"

#include <algorithm>
#include <cstring>

namespace ashlar::data {
namespace {

constexpr int64_t kPiece = int64_t{256} << 10;
/// Reading a block may need up to this many bytes before the block: one for a line break, at most 8 for an id.
constexpr int64_t kLookBack = 8;

}  // namespace

SourceBytes::SourceBytes(const SourceFile& file)
    : source_(file), base_(file.tokens ? file.tokens->offset : 0), file_(file.path) {}

int64_t SourceBytes::read_at_most(int64_t offset, std::span<std::byte> out) {
  if (source_.packing == Packing::kNone) return file_.read_at_most(base_ + offset, out);
  const std::lock_guard lock(mutex_);
  const int64_t begin = base_ + offset;
  if (unpacker_ == nullptr || begin < window_begin_) {
    unpacker_ = std::make_unique<Unpacker>(file_, source_.packing, source_.shown);
    window_.clear();
    window_begin_ = 0;
  }
  unpack_until(begin + static_cast<int64_t>(out.size()));
  const int64_t there = window_begin_ + static_cast<int64_t>(window_.size()) - begin;
  const int64_t n = std::clamp<int64_t>(there, 0, static_cast<int64_t>(out.size()));
  if (n > 0) std::memcpy(out.data(), window_.data() + (begin - window_begin_), static_cast<size_t>(n));
  return n;
}

void SourceBytes::unpack_until(int64_t end) {
  while (window_begin_ + static_cast<int64_t>(window_.size()) < end) {
    const int64_t kept = std::max(window_begin_, base_ + released_ - kLookBack);
    const int64_t droppable = std::min(kept - window_begin_, static_cast<int64_t>(window_.size()));
    if (droppable >= std::max(kPiece, static_cast<int64_t>(window_.size()) / 2)) {
      window_.erase(0, static_cast<size_t>(droppable));
      window_begin_ += droppable;
    }
    const size_t old = window_.size();
    window_.resize(old + kPiece);
    const size_t got = unpacker_->read(std::span(window_).subspan(old));
    window_.resize(old + got);
    if (got == 0) return;
  }
}

bool SourceBytes::release(int64_t begin, int64_t end) {
  if (source_.packing == Packing::kNone) return true;
  const std::lock_guard lock(mutex_);
  ahead_[begin] = end;
  while (!ahead_.empty() && ahead_.begin()->first <= released_) {
    released_ = std::max(released_, ahead_.begin()->second);
    ahead_.erase(ahead_.begin());
  }
  return released_ >= source_.bytes;
}

}  // namespace ashlar::data
