#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "core/base/printable.h"
#include "core/base/strings.h"

namespace ashlar {

/// Exit codes of the process. They are part of the user interface: launch/guide/when-it-fails.md documents them, and
/// they are never renumbered.
enum class ExitCode : int {
  kDone = 0,
  kInput = 2,        ///< bad configuration, arguments or input; the user can correct it
  kDamagedData = 3,  ///< a dataset or checkpoint differs from what was written
  kNonFinite = 4,    ///< loss or gradient is NaN or infinite
  kPeerLost = 5,     ///< another rank failed or can no longer be reached
  kResource = 6,     ///< out of memory or disk space
  kBug = 70,         ///< an invariant of Ashlar itself is broken
  kSigusr1 = 75,
  kSigterm = 76,
  kSigint = 77,
};

/// An error to report to the user. `code` is the exit code if the error ends the process. The text is one line:
/// `[where] what was expected, what was got, how to fix it`. Control characters in names and file contents are escaped
/// (on_one_line), so that they cannot break the line or control a terminal.
class Error : public std::runtime_error {
 public:
  /// The complete text of an existing error. It already starts with `[where]`, is already escaped, and may have several
  /// lines.
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

/// Shorthands that make an Error with a common exit code. Example:
/// `throw input_error("config", "model.d_model = ", v, "...")`.
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

/// Checks an invariant. If the condition is false, throws a Bug whose message contains file, line, condition and the
/// given parts. Example: `ASHLAR_CHECK(n > 0, "n = ", n)`.
#define ASHLAR_CHECK(condition, ...)                                                                                   \
  do {                                                                                                                 \
    if (!(condition)) [[unlikely]]                                                                                     \
      ::ashlar::internal::throw_bug(__FILE__, __LINE__, #condition, ::ashlar::str_cat("" __VA_OPT__(, ) __VA_ARGS__)); \
  } while (false)
