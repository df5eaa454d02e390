#include "data/sources/unpacker.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>

#include "core/base/error.h"

namespace ashlar::data {
namespace {

constexpr size_t kPackedBytes = size_t{256} << 10;
constexpr int kLargestWindowLog = 27;  // log2 of the largest zstd window in bytes; the default limit of zstd -d
constexpr size_t kFrameHead = 18;      // size of the longest zstd frame header in bytes

/// Returns the window size of a zstd frame in bytes; 0 if `head`, the first bytes of the frame, does not contain the
/// size.
/// Source: RFC 8878, 3.1.1.1.
uint64_t window_of(std::string_view head) {
  if (head.size() < 6 || !head.starts_with("\x28\xb5\x2f\xfd")) return 0;
  const auto byte = [&](size_t i) { return static_cast<uint64_t>(static_cast<uint8_t>(head[i])); };
  const uint64_t descriptor = byte(4);
  if ((descriptor & 0x20U) == 0) {
    const uint64_t base = uint64_t{1} << (10 + (byte(5) >> 3));
    return base + base / 8 * (byte(5) & 7U);
  }
  // If the frame has a single segment, the window is as large as the content.
  const size_t id_bytes = (descriptor & 3U) == 3 ? 4 : descriptor & 3U;
  const size_t size_bytes = descriptor >> 6 == 0 ? 1 : size_t{1} << (descriptor >> 6);
  uint64_t size = size_bytes == 2 ? 256 : 0;
  for (size_t i = 0; i < size_bytes && 5 + id_bytes + i < head.size(); ++i) size += byte(5 + id_bytes + i) << (8 * i);
  return size;
}

}  // namespace

Packing packing_of(std::string_view head) {
  if (head.starts_with("\x1f\x8b\x08")) return Packing::kGzip;
  if (head.size() < 4) return Packing::kNone;
  const bool skippable = (static_cast<uint8_t>(head[0]) & 0xF0U) == 0x50U && head.substr(1, 3) == "\x2a\x4d\x18";
  return head.starts_with("\x28\xb5\x2f\xfd") || skippable ? Packing::kZstd : Packing::kNone;
}

/// The decompressor of one format.
class Unpacker::Stream {
 public:
  virtual ~Stream() = default;
  /// Consumes bytes from `in`, writes to `out` and advances both. Returns an error text for invalid bytes, or "".
  virtual std::string step(std::string_view& in, std::span<char>& out) = 0;
  /// True if the file may end after the consumed bytes.
  virtual bool complete() const = 0;
  /// True if the decompressor can write more output without more input.
  virtual bool holds_more() const = 0;
};

class Unpacker::GzipStream : public Stream {
 public:
  GzipStream() {
    // 15: log2 of the window size; 16: gzip format only.
    ASHLAR_CHECK(inflateInit2(&z_, 15 + 16) == Z_OK, "zlib cannot begin");
  }
  ~GzipStream() override { inflateEnd(&z_); }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  std::string step(std::string_view& in, std::span<char>& out) override {
    if (between_members_) {
      if (in.empty()) return "";
      if (in.front() == '\0' || padding_) {
        padding_ = true;
        const size_t end = in.find_first_not_of('\0');
        in.remove_prefix(std::min(end, in.size()));
        return end == std::string_view::npos ? "" : "has other data after zeros after its last gzip member";
      }
      if (in.front() != '\x1f') return "has other data after its last gzip member";
      inflateReset(&z_);
      between_members_ = false;
    }
    z_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    z_.avail_in = static_cast<uInt>(in.size());
    z_.next_out = reinterpret_cast<Bytef*>(out.data());
    z_.avail_out = static_cast<uInt>(out.size());
    const int code = inflate(&z_, Z_NO_FLUSH);
    in.remove_prefix(in.size() - z_.avail_in);
    out = out.subspan(out.size() - z_.avail_out);
    full_ = z_.avail_out == 0;
    if (code == Z_STREAM_END) between_members_ = true;
    if (code == Z_OK || code == Z_BUF_ERROR || code == Z_STREAM_END) return "";
    if (code == Z_MEM_ERROR) throw resource_error("input", "no memory to decompress gzip; use fewer threads");
    return str_cat("is not a valid gzip file (", z_.msg == nullptr ? "broken" : z_.msg, ")");
  }
  bool complete() const override { return between_members_; }
  bool holds_more() const override { return full_ && !between_members_; }

 private:
  z_stream z_{};
  bool between_members_ = false, padding_ = false, full_ = false;
};

class Unpacker::ZstdStream : public Stream {
 public:
  ZstdStream() : z_(ZSTD_createDStream()) {
    if (z_ == nullptr) throw resource_error("input", "no memory to decompress zstd; use fewer threads");
    ZSTD_DCtx_setParameter(z_, ZSTD_d_windowLogMax, kLargestWindowLog);
  }
  ~ZstdStream() override { ZSTD_freeDStream(z_); }
  ZstdStream(const ZstdStream&) = delete;
  ZstdStream& operator=(const ZstdStream&) = delete;

  std::string step(std::string_view& in, std::span<char>& out) override {
    if (between_frames_) head_.clear();
    if (head_.size() < kFrameHead) head_ += in.substr(0, kFrameHead - head_.size());
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    const size_t left = ZSTD_decompressStream(z_, &to, &from);
    if (ZSTD_isError(left) != 0) {
      const uint64_t window = window_of(head_);
      if (window > uint64_t{1} << kLargestWindowLog) {
        return str_cat("needs a zstd window of ", window >> 20, " MiB, and at most ", 1 << (kLargestWindowLog - 20),
                       " MiB are allowed per file (compress it again: zstd -d --long=31 <FILE | zstd --long=27)");
      }
      if (out_of_memory(left)) throw resource_error("input", "no memory to decompress zstd; use fewer threads");
      return str_cat("is not a valid zstd file (", ZSTD_getErrorName(left), ")");
    }
    in.remove_prefix(from.pos);
    out = out.subspan(to.pos);
    full_ = to.pos == to.size;
    between_frames_ = left == 0;
    return "";
  }
  bool complete() const override { return between_frames_ && !head_.empty(); }
  bool holds_more() const override { return full_ && !between_frames_; }

 private:
  static bool out_of_memory(size_t code) {
    return std::string_view(ZSTD_getErrorName(code)).find("not enough memory") != std::string_view::npos;
  }

  ZSTD_DStream* z_;
  std::string head_;  ///< first bytes of the current frame
  bool between_frames_ = true, full_ = false;
};

Unpacker::Unpacker(const io::InputFile& file, Packing packing, std::string shown)
    : file_(file), shown_(std::move(shown)) {
  ASHLAR_CHECK(packing != Packing::kNone, shown_, " is not compressed");
  if (packing == Packing::kGzip) {
    stream_ = std::make_unique<GzipStream>();
  } else {
    stream_ = std::make_unique<ZstdStream>();
  }
}

Unpacker::~Unpacker() = default;

bool Unpacker::refill() {
  packed_.resize(kPackedBytes);
  const int64_t got = file_.read_at_most(next_offset_, std::as_writable_bytes(std::span(packed_)));
  packed_.resize(static_cast<size_t>(got));
  next_offset_ += got;
  used_ = 0;
  return got > 0;
}

size_t Unpacker::read(std::span<char> out) {
  std::span<char> left = out;
  while (!left.empty()) {
    if (used_ == packed_.size() && !stream_->holds_more() && !refill()) {
      if (stream_->complete()) break;
      throw input_error("input", shown_, " is truncated: its compressed data stops at byte ", next_offset_, ", after ",
                        unpacked_ + static_cast<int64_t>(out.size() - left.size()),
                        " bytes of text; copy or download the file again");
    }
    std::string_view in = std::string_view(packed_).substr(used_);
    const std::string wrong = stream_->step(in, left);
    used_ = packed_.size() - in.size();
    if (!wrong.empty()) {
      const bool refused = wrong.starts_with("needs");
      throw input_error("input", shown_, " ", wrong,
                        refused ? ""
                                : str_cat(" near byte ", next_offset_ - static_cast<int64_t>(in.size()),
                                          "; copy or download the file again"));
    }
  }
  const size_t given = out.size() - left.size();
  unpacked_ += static_cast<int64_t>(given);
  return given;
}

}  // namespace ashlar::data
