#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "core/base/printable.h"
#include "core/base/strings.h"

namespace ashlar {

/// Process exit codes. They are part of the user interface: documented in README.md, never renumbered.
enum class ExitCode : int {
  kDone = 0,
  kInput = 2,        ///< bad configuration, arguments or input; the user can correct it
  kDamagedData = 3,  ///< a dataset or checkpoint differs from what was written
  kNonFinite = 4,    ///< loss or gradient is NaN or infinite
  kPeerLost = 5,     ///< another rank failed or vanished
  kResource = 6,     ///< out of memory or disk
  kBug = 70,         ///< an invariant of Ashlar itself is broken
  kSigusr1 = 75,
  kSigterm = 76,
  kSigint = 77,
};

/// An error that the user can correct. Text: `[where] expected, got, how to fix`, with values, on one line: names and
/// bytes from files are escaped, so they cannot break the line or control a terminal (on_one_line).
class Error : public std::runtime_error {
 public:
  /// The text of an existing error. It has its `[where]`, is escaped already, and may have several lines.
  struct FullText {
    std::string text;
  };

  Error(ExitCode code, std::string_view where, std::string_view text)
      : Error(code, FullText{on_one_line(str_cat("[", where, "] ", text))}) {}
  Error(ExitCode code, const FullText& full) : std::runtime_error(full.text), code_(code) {}

  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// A broken invariant of Ashlar. Never thrown for user input.
class Bug : public std::logic_error {
 public:
  explicit Bug(const std::string& text) : std::logic_error(text) {}
};

/// Shorthands for the common codes: `throw input_error("config", "model.d_model = ", v, " ...")`.
template <typename... Parts>
Error input_error(std::string_view where, const Parts&... parts) {
  return Error(ExitCode::kInput, where, str_cat(parts...));
}
template <typename... Parts>
Error damaged_error(std::string_view where, const Parts&... parts) {
  return Error(ExitCode::kDamagedData, where, str_cat(parts...));
}
template <typename... Parts>
Error resource_error(std::string_view where, const Parts&... parts) {
  return Error(ExitCode::kResource, where, str_cat(parts...));
}

namespace internal {
[[noreturn]] void throw_bug(const char* file, int line, const char* condition, const std::string& text);
}  // namespace internal

}  // namespace ashlar

/// Invariant check: throws Bug with file, line and the given parts. `ASHLAR_CHECK(n > 0, "n = ", n)`.
#define ASHLAR_CHECK(condition, ...)                                                                                   \
  do {                                                                                                                 \
    if (!(condition)) [[unlikely]]                                                                                     \
      ::ashlar::internal::throw_bug(__FILE__, __LINE__, #condition, ::ashlar::str_cat("" __VA_OPT__(, ) __VA_ARGS__)); \
  } while (false)
