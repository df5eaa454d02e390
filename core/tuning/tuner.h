#pragma once

#include <map>
#include <string>
#include <string_view>

namespace ashlar {

/// The algorithm chosen for each operation, e.g. for each shape of a matrix product, among those that the device's
/// libraries offer. Two algorithms may differ in the last bits of their results, so a run exchanges its choices between
/// ranks and stores them in its directory and in checkpoints.
struct TunedChoices {
  struct Section {
    std::string library;                         ///< name and version of the library, on which the meaning of a choice
                                                 ///< depends
    std::map<std::string, std::string> choices;  ///< operation -> choice; an empty choice: not chosen yet
    bool operator==(const Section&) const = default;
  };
  std::string device;                       ///< device model, e.g. "NVIDIA H100 80GB HBM3, sm_90"
  std::map<std::string, Section> sections;  ///< section name, e.g. "gemm" -> section

  bool operator==(const TunedChoices&) const = default;
};

/// Returns the choices as one JSON object.
std::string to_json(const TunedChoices& choices);
/// Parses a text that to_json has written. Throws a damaged-data error that names `source` if the text is not valid.
TunedChoices choices_from_json(std::string_view text, std::string_view source);

/// Returns why the choices `made` elsewhere cannot be used for the device and libraries of `here`: the first text of
/// reasons_against (joined_tuners.h), e.g. "device: X, made on Y". Empty if all choices can be used.
std::string why_not(const TunedChoices& here, const TunedChoices& made);
/// Returns the operations in `asked` for which `made` has no choice.
TunedChoices unanswered(const TunedChoices& asked, const TunedChoices& made);
/// Returns `first` plus the choices that only `second` has. Both must be for the same device and libraries.
TunedChoices united(TunedChoices first, const TunedChoices& second);
/// Returns the number of choices in all sections.
int64_t num_choices(const TunedChoices& choices);

/// Interface to the tunable choices of a backend (e.g. GEMM algorithms). An operation that has not been tuned yet uses
/// the library's default heuristic.
class Tuner {
 public:
  virtual ~Tuner() = default;
  /// Returns the device, the libraries, and every operation run so far with its active choice.
  virtual TunedChoices met() const = 0;
  /// Returns the best choice for each operation in `questions`, found by measurements for which the host waits. Ranks
  /// with the same device and libraries may use the choices of one rank, also for operations that they have not run
  /// themselves.
  virtual TunedChoices measure(const TunedChoices& questions) = 0;
  /// Activates these choices. Throws an input error if the library rejects a choice.
  virtual void use(const TunedChoices& choices) = 0;
};

/// Interface of a backend that may offer tunable choices.
class Tunable {
 public:
  virtual ~Tunable() = default;
  virtual Tuner* tuner() = 0;  ///< null if nothing can be tuned
};

}  // namespace ashlar
