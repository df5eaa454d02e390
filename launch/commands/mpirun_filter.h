#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ashlar::launch {

/// Filters the standard error of mpirun and its ranks. Drops mpirun's paragraphs about a rank that exited with an error
/// code, if that rank has printed its error (`ashlar: ...`), and about a rank killed by a signal, if another rank has
/// reported it as lost. Everything else is forwarded at once.
class MpirunFilter {
 public:
  explicit MpirunFilter(std::function<void(std::string_view)> out) : out_(std::move(out)) {}
  void add(std::string_view bytes);
  /// Forwards what was held back: an incomplete line, and paragraphs that repeat no line of a rank. With `asked_to_end`
  /// the ranks were asked to end, and paragraphs about how they ended are dropped.
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
  std::string paragraph_;  ///< a paragraph from its first rule of dashes
  struct Held {
    std::string paragraph;
    std::optional<int64_t> killed;  ///< the killed rank; absent: the paragraph is about an exit code
  };
  std::vector<Held> held_;     ///< paragraphs that may repeat a rank's own line
  std::string rank_line_;      ///< incomplete line of a rank, already forwarded
  std::vector<int64_t> lost_;  ///< ranks reported as lost
  bool more_lost_ = false;     ///< further ranks are lost, reported as a count
  bool passing_ = false;       ///< the current line is forwarded as it arrives
  bool rank_printed_ = false;
  bool killed_ = false, acknowledged_ = false;
};

}  // namespace ashlar::launch
