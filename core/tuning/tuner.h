#pragma once

#include <map>
#include <string>
#include <string_view>

namespace ashlar {

/// Choices that a device's libraries leave open, such as the algorithm of a matrix product. Two algorithms may differ
/// in the last bits of their results, so a run saves its choices: they are exchanged between ranks and stored in the
/// run's directory and in checkpoints.
struct TunedChoices {
  struct Section {
    std::string library;                         ///< name and version; the meaning of a choice depends on the library
    std::map<std::string, std::string> choices;  ///< the choice of each operation; empty: not chosen yet
    bool operator==(const Section&) const = default;
  };
  std::string device;                       ///< device model: "NVIDIA H100 80GB HBM3, sm_90"
  std::map<std::string, Section> sections;  ///< by name: "gemm"

  bool operator==(const TunedChoices&) const = default;
};

/// Returns the choices as one JSON object.
std::string to_json(const TunedChoices& choices);
/// Damaged-data error that names `source` when the text was not written by to_json.
TunedChoices choices_from_json(std::string_view text, std::string_view source);

/// Returns why the choices `made` elsewhere cannot be used here: "device: X, made on Y" or "gemm: cublasLt 13.1.0, made
/// with cublasLt 12.8.4". Empty if they can be used. A section that only one side has is not a reason.
std::string why_not(const TunedChoices& here, const TunedChoices& made);
/// Returns the operations of `asked` that have no choice in `made`.
TunedChoices unanswered(const TunedChoices& asked, const TunedChoices& made);
/// Returns `first` with the choices that only `second` has. Both are for the same device and libraries.
TunedChoices united(TunedChoices first, const TunedChoices& second);
/// Number of choices in all sections.
int64_t num_choices(const TunedChoices& choices);

/// Interface to the tunable choices of a backend (e.g. GEMM algorithms). An operation that has not been tuned yet uses
/// the library's default heuristic.
class Tuner {
 public:
  virtual ~Tuner() = default;
  /// Returns the device, the libraries, and every operation run so far with its active choice.
  virtual TunedChoices met() const = 0;
  /// Measures a choice for each operation in `questions`; the host waits. Ranks with the same device and libraries may
  /// use the choices of one rank, also for operations that they have not run.
  virtual TunedChoices measure(const TunedChoices& questions) = 0;
  /// Activates these choices. Throws an input error if the library rejects one.
  virtual void use(const TunedChoices& choices) = 0;
};

/// Interface of backends that may have tunable choices.
class Tunable {
 public:
  virtual ~Tunable() = default;
  virtual Tuner* tuner() = 0;  ///< null: nothing to tune
};

}  // namespace ashlar
