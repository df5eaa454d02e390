#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "core/base/log.h"

namespace ashlar::training {

/// A file to which a run appends: each entry is written by system calls before `append` returns.
///   A write error (e.g. a full disk) does not end a run, since checkpoints may still be saved. Entries are then held
/// in memory, up to kMostHeldBytes, and each later append tries again to write them. A warning is logged when entries
/// are first held, and a line of information when all held entries are written. Entries are lost if the memory is full
/// or the run ends before they are written; a warning then gives their number.
class HeldFile {
 public:
  static constexpr size_t kMostHeldBytes = size_t{16} << 20;

  struct Args {
    std::filesystem::path path;         ///< created if it does not exist
    std::string_view where;             ///< the place that errors name; must outlive the object
    std::string_view entries = "rows";  ///< what messages call entries; must outlive the object
    Log& log;
    std::function<void()> check;  ///< called before each append; may throw, like RunDirectory::check_owned
  };
  /// Input error if the file cannot be opened.
  explicit HeldFile(Args args);
  HeldFile(const HeldFile&) = delete;
  HeldFile& operator=(const HeldFile&) = delete;
  ~HeldFile();

  /// Appends an entry, or holds it until it can be written.
  void append(std::string entry);

 private:
  void flush();

  Args args_;
  int fd_ = -1;
  std::deque<std::string> held_;  ///< entries not written yet; of the first, the part that is not written
  size_t held_bytes_ = 0;
  std::string reason_;  ///< why entries are held; empty if none are held
  int64_t lost_ = 0;    ///< number of entries dropped because the memory was full
};

}  // namespace ashlar::training
