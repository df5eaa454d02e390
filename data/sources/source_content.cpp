#include "data/sources/source_content.h"

#include <algorithm>

#include "core/io/lfs_pointer.h"

namespace ashlar::data {
namespace {

using namespace std::string_view_literals;

constexpr int64_t kWindow = 4096;
constexpr int64_t kTextPerControl = 64;
/// A window with fewer than kShortWindow bytes is treated as if it had kShortWindow bytes, so that one control
/// character does not make the window binary. The first window of the file is an exception: its real size counts.
constexpr int64_t kShortWindow = 1024;

struct Magic {
  size_t offset;
  std::string_view bytes;
  std::string_view what;
  bool always = false;  ///< true if such a file is never text, although `bytes` are printable
};
constexpr Magic kMagics[] = {
    {0, "\177ELF"sv, "an ELF program or library"},
    {0, "\x89PNG\r\n"sv, "a PNG image"},
    {0, "\xff\xd8\xff"sv, "a JPEG image"},
    {0, "GIF8"sv, "a GIF image"},
    {0, "%PDF-"sv, "a PDF document", true},
    {0, "PK\x03\x04"sv, "a zip archive"},
    {0, "PK\x05\x06"sv, "a zip archive"},
    {0, "BZh"sv, "compressed with bzip2"},
    {0, "\3757zXZ\0"sv, "compressed with xz"},
    {0, "\x04\x22\x4d\x18"sv, "compressed with lz4"},
    {0, "7z\xbc\xaf"sv, "a 7z archive"},
    {0, "Rar!\x1a"sv, "a RAR archive"},
    {0, "\x1f\x9d"sv, "compressed with compress (.Z)"},
    {257, "ustar"sv, "a tar archive"},
    {0, "!<arch>\n"sv, "an ar archive (.a, .deb)"},
    {0, "\xed\xab\xee\xdb"sv, "an RPM package"},
    {0, io::kLfsPointerBegin, "a pointer of git-lfs, without the file itself (git lfs pull)", true},
    {0, "PAR1"sv, kParquetForm},
    {0, "PARE"sv, "an encrypted Parquet file"},
    {0, "ARROW1\0"sv, "an Arrow file"},
    {0, "Obj\x01"sv, "an Avro file"},
    {0, "\x89HDF\r\n"sv, "an HDF5 file"},
    {0, "SQLite format 3\0"sv, "an SQLite database"},
    {0, "GGUF"sv, "a GGUF model"},
    {0, "\x93NUMPY"sv, "a NumPy array"},
    {0, "TNTIDX\0\0"sv, "an old fairseq index"},
    {0, "MMIDIDX\0\0"sv, "a Megatron index without its .bin"},
    {0, "\xff\xfe"sv, "UTF-16 text"},
    {0, "\xfe\xff"sv, "UTF-16 text"},
    {0, "\xca\xfe\xba\xbe"sv, "a Java class or Mach-O program"},
    {0, "\0asm"sv, "a WebAssembly program"},
};

bool control(char c) {
  const auto byte = static_cast<uint8_t>(c);
  return (byte < 0x20 && !(byte >= 0x08 && byte <= 0x0d) && byte != 0x1b) || byte == 0x7f;
}

/// Recognises safetensors: a 64-bit length, then JSON.
bool safetensors(std::string_view head) {
  return head.size() > 10 && head.substr(5, 3) == "\0\0\0"sv && head.substr(8, 2) == "{\"";
}

}  // namespace

BinaryForm known_binary(std::string_view head) {
  for (const Magic& magic : kMagics) {
    if (head.size() < magic.offset || !head.substr(magic.offset).starts_with(magic.bytes)) continue;
    const bool plain = std::all_of(magic.bytes.begin(), magic.bytes.end(), [](char c) { return c >= ' ' && c < 0x7f; });
    return {magic.what, magic.always || !plain};
  }
  if (safetensors(head)) return {"a safetensors file", true};
  return {};
}

void TextCheck::close_window() {
  const int64_t bytes = window_begin_ == 0 ? window_bytes_ : std::max(window_bytes_, kShortWindow);
  if (binary_ < 0 && controls_ * kTextPerControl > bytes) binary_ = window_begin_;
  window_begin_ += window_bytes_;
  window_bytes_ = controls_ = 0;
}

void TextCheck::look(int64_t offset, std::string_view bytes) {
  if (offset != window_begin_ + window_bytes_) {
    close_window();
    window_begin_ = offset;
  }
  while (!bytes.empty()) {
    const auto n = std::min(bytes.size(), static_cast<size_t>(kWindow - window_bytes_));
    controls_ += std::count_if(bytes.begin(), bytes.begin() + static_cast<int64_t>(n), control);
    window_bytes_ += static_cast<int64_t>(n);
    bytes.remove_prefix(n);
    if (window_bytes_ == kWindow) close_window();
  }
}

int64_t TextCheck::first_binary() const {
  TextCheck whole = *this;
  whole.close_window();
  return whole.binary_;
}

}  // namespace ashlar::data
