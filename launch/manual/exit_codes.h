#pragma once

namespace ashlar::manual {

/// Exit codes with the same meaning, as in launch/guide/when-it-fails.md: their numbers (ExitCode), the meaning, and
/// the short form of `ashlar --help`.
struct ExitCodeText {
  const char* codes;
  const char* meaning;
  const char* in_short;
};

inline constexpr ExitCodeText kExitCodes[] = {
    {"0", "done", "0 done"},
    {"2", "input or configuration that you can correct", "2 input"},
    {"3", "damaged data or checkpoint", "3 damaged data"},
    {"4", "loss, gradient or weights not finite; nothing of that step was saved", "4 non-finite"},
    {"5", "a rank was lost, or no rank makes progress; a bare `mpirun` may give 128 + the signal of a killed rank",
     "5 peer lost"},
    {"6", "out of memory or disk", "6 memory or disk"},
    {"70", "a bug of Ashlar", "70 bug"},
    {"75, 76, 77", "SIGUSR1; SIGTERM or SIGHUP; SIGINT: saved, and the same command resumes",
     "75 SIGUSR1, 76 SIGTERM, 77 SIGINT"},
};

}  // namespace ashlar::manual
