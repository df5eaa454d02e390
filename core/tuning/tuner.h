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
    std::map<std::string, std::string> choices;  ///< answers by question; empty: not chosen yet
    bool operator==(const Section&) const = default;
  };
  std::string device;                       ///< device model: "NVIDIA H100 80GB HBM3, sm_90"
  std::map<std::string, Section> sections;  ///< by name: "gemm"

  bool operator==(const TunedChoices&) const = default;
};

/// One JSON object.
std::string to_json(const TunedChoices& choices);
/// Damaged-data error that names `source` when the text was not written by to_json.
TunedChoices choices_from_json(std::string_view text, std::string_view source);

/// Why choices `made` elsewhere cannot be used here: "device: X, made on Y" or "gemm: cublasLt 13.1.0, made with
/// cublasLt 12.8.4". Empty if they can. A section missing on one side is not a reason.
std::string why_not(const TunedChoices& here, const TunedChoices& made);
/// The questions of `asked` without an answer in `made`.
TunedChoices unanswered(const TunedChoices& asked, const TunedChoices& made);
/// `first` plus the answers found only in `second`. Both are for the same device and libraries.
TunedChoices united(TunedChoices first, const TunedChoices& second);
/// Number of choices in all sections.
int64_t num_choices(const TunedChoices& choices);

/// The part of a backend with tunable choices. Work with an unanswered question uses the library's first suggestion.
class Tuner {
 public:
  virtual ~Tuner() = default;
  /// Device, libraries, and every question asked so far, with the active answers.
  virtual TunedChoices met() const = 0;
  /// Measures an answer to each question; the host waits. Ranks with the same device and libraries may use the answers
  /// of one rank, including those for questions they have not asked.
  virtual TunedChoices measure(const TunedChoices& questions) = 0;
  /// Activates these answers. Throws an input error if the library refuses one.
  virtual void use(const TunedChoices& choices) = 0;
};

/// Interface of backends that may have tunable choices.
class Tunable {
 public:
  virtual ~Tunable() = default;
  virtual Tuner* tuner() = 0;  ///< null: nothing to tune
};

}  // namespace ashlar
