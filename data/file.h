#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ashlar::data {

/// The text of an errno value.
std::string errno_text(int error);

/// An open file, read at offsets; safe to use from several threads. Every failure is an error that names the path.
class InputFile {
 public:
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const;  ///< now
  /// Up to n bytes from offset into `out` (replaced); fewer only at the end of the file.
  void read_at(int64_t offset, int64_t n, std::string& out) const;

 private:
  std::string path_;
  int fd_;
};

/// Makes what was written to a file or directory durable.
void sync_path(const std::string& path);

/// fsync, rename over `to`, fsync of the directory: `to` is the old file or the whole new one, whatever happens.
void publish_file(const std::string& from, const std::string& to);

/// Writes a small file whole: temporary name beside it, then publish_file.
void write_file_atomically(const std::string& path, std::string_view bytes);

/// Appends and fsyncs.
void append_durably(const std::string& path, std::string_view bytes);

}  // namespace ashlar::data
