#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ashlar::launch {

/// Filters the standard error of mpirun and its ranks. Drops the paragraphs of mpirun that repeat what a rank has
/// printed: those about an exit code, if a rank has printed an error (`ashlar: ...`), and those about a rank killed by
/// a signal, if another rank has reported that rank as lost. Also drops mpirun's lines about forwarded signals and
/// closed descriptors. Everything else is forwarded.
class MpirunFilter {
 public:
  explicit MpirunFilter(std::function<void(std::string_view)> out) : out_(std::move(out)) {}
  void add(std::string_view bytes);
  /// Forwards text that was held back: an incomplete line, and paragraphs that do not repeat a line of a rank.
  /// `asked_to_end`: true if the ranks were asked to end; paragraphs about how they ended are then dropped.
  void finish(bool asked_to_end = false);
  /// True if a rank was lost: another rank has reported the loss, the rank has reported its own fatal signal, or mpirun
  /// has reported that a signal killed it.
  bool lost_a_rank() const { return !lost_.empty() || killed_; }
  bool acknowledged() const { return acknowledged_; }  ///< a rank has answered SIGUSR1

 private:
  void end_of_line();
  void read_rank_line(std::string_view part);
  void emit(std::string_view text);

  std::function<void(std::string_view)> out_;
  std::string line_;       ///< incomplete line, not forwarded yet
  std::string paragraph_;  ///< incomplete paragraph, beginning with its line of dashes
  struct Held {
    std::string paragraph;
    std::optional<int64_t> killed;  ///< the killed rank; absent: the paragraph is about an exit code
  };
  std::vector<Held> held_;     ///< paragraphs that may repeat a rank's own line
  std::string rank_line_;      ///< incomplete line of a rank, already forwarded
  std::vector<int64_t> lost_;  ///< ranks reported as lost
  bool more_lost_ = false;     ///< a rank has reported only the number of further lost ranks
  bool passing_ = false;       ///< the current line is forwarded as it arrives
  bool rank_printed_ = false;
  bool killed_ = false, acknowledged_ = false;
};

}  // namespace ashlar::launch
