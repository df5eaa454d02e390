#include "parallel/comm/try_on_all_ranks.h"

#include <new>
#include <string>

#include "core/device/host_limits.h"
#include "parallel/comm/bootstrap.h"
#include "parallel/comm/host.h"

namespace ashlar::comm {
namespace {

struct Failure {
  ExitCode code = ExitCode::kDone;
  std::string text;
};

Failure attempt(const std::function<void()>& part) {
  try {
    part();
  } catch (const Error& error) {
    if (error.code() == ExitCode::kPeerLost) throw;  // there is nobody to share it with
    return {error.code(), error.what()};
  } catch (const std::bad_alloc&) {
    return {ExitCode::kResource, str_cat("[memory] the system refused memory: ", memory_state_text())};
  }
  return {};
}

}  // namespace

void try_on_all_ranks(ControlPlane& ranks, const std::function<void()>& part) {
  if (ranks.size() == 1) return part();  // the type of the exception is kept
  const Failure mine = attempt(part);
  const bool failed = mine.code != ExitCode::kDone;
  int64_t first = failed ? ranks.rank() : ranks.size();
  ranks.reduce({.label = "try_on_all_ranks", .int_minima = {&first, 1}}).wait();
  if (first == ranks.size()) return;

  // The lowest of them speaks.
  const auto speaker = static_cast<int>(first);
  const ExitCode code = broadcast_value(ranks, mine.code, speaker);
  const std::string said = broadcast_text(ranks, mine.text, speaker);
  const std::string host = broadcast_text(ranks, Bootstrap::host_name(), speaker);
  int64_t counts[] = {failed && mine.text == said, failed && mine.text != said};
  ranks.reduce({.label = "try_on_all_ranks failed", .int_sums = counts}).wait();
  const auto [same, others] = counts;
  // An Error says `[where] text`.
  const size_t bracket = said.find("] ");
  const std::string where = said.substr(1, bracket - 1);
  const std::string text = said.substr(bracket + 2);
  if (same == ranks.size()) throw AllRanksError(code, Error::Said{said});
  throw AllRanksError(
      code, Error::Said{str_cat("[", where, "] rank ", first, " of ", ranks.size(), " on ", on_one_line(host), ": ",
                                text, others == 0 ? "" : str_cat("; ranks with other errors: ", others))});
}

}  // namespace ashlar::comm
