#pragma once

#include <map>
#include <string>
#include <string_view>

namespace ashlar {

/// What a device's libraries leave open, such as the algorithm of a matrix product, and what was chosen. Two algorithms
/// may differ in the last bits of their results, so a run keeps its choices: they travel between ranks, and lie in the
/// run's directory and in its checkpoints.
struct TunedChoices {
  struct Section {
    std::string library;                         ///< name and version: what a choice means is the library's affair
    std::map<std::string, std::string> choices;  ///< by question; empty: not chosen yet
    bool operator==(const Section&) const = default;
  };
  std::string device;                       ///< a model of device, not one piece: "NVIDIA H100 80GB HBM3, sm_90"
  std::map<std::string, Section> sections;  ///< by name: "gemm"

  bool operator==(const TunedChoices&) const = default;
};

/// One JSON object.
std::string to_json(const TunedChoices& choices);
/// Damaged-data error that names `source`, its place, when the text is not what to_json writes.
TunedChoices choices_from_json(std::string_view text, std::string_view source);

/// Why choices made there mean nothing here: "device: X, made on Y" or "gemm: cublasLt 13.1.0, made with cublasLt
/// 12.8.4". Empty where they do. A section that one of the two lacks is no reason.
std::string why_not(const TunedChoices& here, const TunedChoices& made);
/// The questions of `asked` that `made` has no answer to, without answers.
TunedChoices unanswered(const TunedChoices& asked, const TunedChoices& made);
/// `first`, and what only `second` answers. Both of one device and the same libraries.
TunedChoices united(TunedChoices first, const TunedChoices& second);
/// In all sections.
int64_t num_choices(const TunedChoices& choices);

/// The side of a backend that has something to choose. Work that asks a question without an answer is done by the
/// library's own first suggestion.
class Tuner {
 public:
  virtual ~Tuner() = default;
  /// Device, libraries, and every question that work so far has asked, with the answers in use.
  virtual TunedChoices met() const = 0;
  /// Answers each question, by trying what there is; the host waits. Ranks with the same device and libraries may use
  /// what one of them has measured, and what they have not met.
  virtual TunedChoices measure(const TunedChoices& questions) = 0;
  /// From now on these. Throws an input error where the library refuses one.
  virtual void use(const TunedChoices& choices) = 0;
};

/// What a backend that may have something to choose also is.
class Tunable {
 public:
  virtual ~Tunable() = default;
  virtual Tuner* tuner() = 0;  ///< null: it has nothing to choose
};

}  // namespace ashlar
