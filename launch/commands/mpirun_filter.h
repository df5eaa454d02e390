#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ashlar::launch {

/// What mpirun and its ranks say on standard error, less the paragraphs in which mpirun tells that a rank ended with an
/// exit code, when that rank has said so itself (`ashlar: ...`), or that a signal killed it, when another has named it
/// as lost. Everything else passes, as soon as it is there.
class MpirunFilter {
 public:
  explicit MpirunFilter(std::function<void(std::string_view)> out) : out_(std::move(out)) {}
  void add(std::string_view bytes);
  /// Passes what was held back: the end of the output, and paragraphs that repeat nothing. `told`: the ranks were told
  /// to end, so that how they did is no news.
  void finish(bool told = false);
  /// A rank was lost: another has said so, it has said so itself when a signal ended it, or mpirun says that one did.
  bool lost_a_rank() const { return !lost_.empty() || killed_; }
  bool acknowledged() const { return acknowledged_; }  ///< a rank has answered to SIGUSR1

 private:
  void end_of_line();
  void spoken(std::string_view part);
  void emit(std::string_view text);

  std::function<void(std::string_view)> out_;
  std::string line_;       ///< begun and not passed yet
  std::string paragraph_;  ///< between two rules of dashes, the first included
  struct Held {
    std::string paragraph;
    std::optional<int64_t> killed;  ///< the rank that it names; none: the exit code of one
  };
  std::vector<Held> held_;     ///< may repeat what a rank has said, or will yet
  std::string spoken_;         ///< a rank's own line, begun and passed
  std::vector<int64_t> lost_;  ///< ranks that have been named as lost
  bool more_lost_ = false;     ///< and some that they have counted
  bool passing_ = false;       ///< the line that has begun is passed as it comes
  bool rank_spoke_ = false;
  bool killed_ = false, acknowledged_ = false;
};

}  // namespace ashlar::launch
