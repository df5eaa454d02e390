#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ashlar::launch {

/// What mpirun and its ranks say on standard error, less the paragraphs in which mpirun tells that a rank ended with an
/// exit code, when that rank has said so itself (`ashlar: ...`). Everything else passes, as soon as it is there.
class MpirunFilter {
 public:
  explicit MpirunFilter(std::function<void(std::string_view)> out) : out_(std::move(out)) {}
  void add(std::string_view bytes);
  void finish();  ///< passes what was held back: the end of the output, or paragraphs that repeat nothing

 private:
  void end_of_line();
  void emit(std::string_view text);

  std::function<void(std::string_view)> out_;
  std::string line_;       ///< begun and not passed yet
  std::string paragraph_;  ///< between two rules of dashes, the first included
  std::string repeated_;   ///< paragraphs to drop once a rank has spoken
  bool passing_ = false;   ///< the line that has begun is passed as it comes
  bool rank_spoke_ = false;
};

/// Runs a command as a child: standard error through MpirunFilter, signals to this process handed on. Ends as the child
/// does: returns its exit code, or dies of its signal. Input error when it cannot be started.
int run_mpirun(std::vector<std::string> line);

}  // namespace ashlar::launch
