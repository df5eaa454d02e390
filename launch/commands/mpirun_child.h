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
  void finish();  ///< passes what was held back: the end of the output, or paragraphs that repeat nothing
  bool lost_a_rank() const { return !lost_.empty(); }  ///< a rank has said so of another

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
  std::vector<int64_t> lost_;  ///< ranks that others have named as lost
  bool more_lost_ = false;     ///< and some that they have counted
  bool passing_ = false;       ///< the line that has begun is passed as it comes
  bool rank_spoke_ = false;
};

struct MpirunArgs {
  std::vector<std::string> line;  ///< its words
  bool prints_result = true;      ///< lines of standard output that nobody gets are a failure, not a warning
  bool saves = false;             ///< SIGUSR1 makes the ranks save and stop, with 75
};

/// Runs a command as a child: standard error through MpirunFilter, signals to this process handed on, saying what comes
/// of them: mpirun itself passes no line of a rank while it ends them. Ranks that save get the first SIGTERM or SIGINT
/// as SIGUSR1, for mpirun would kill them; the terminal's Ctrl-C does not reach their mpirun, nor do they read the
/// terminal. Ends as the child does: returns its exit code, or dies of its signal; 76 and 77 where SIGTERM or SIGINT
/// ended the job, saved (75) or not (mpirun's 1); 5 where a rank has named another as lost, of which mpirun would make
/// the signal that killed it, or a code of its own. Input error when it cannot be started, resource error when a result
/// could not be written.
int run_mpirun(MpirunArgs args);

}  // namespace ashlar::launch
