#include "parallel/comm/try_on_all_ranks.h"

#include <new>
#include <string>

#include "core/base/error_text.h"
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
    if (error.code() == ExitCode::kPeerLost) throw;  // without the lost rank, the error cannot be sent to all
    return {error.code(), error.what()};
  } catch (const std::bad_alloc&) {
    return {ExitCode::kResource, str_cat("[memory] the system refused memory: ", memory_state_text())};
  }
  return {};
}

}  // namespace

void try_on_all_ranks(ControlPlane& ranks, const std::function<void()>& part) {
  if (ranks.size() == 1) return part();  // keeps the type of the exception
  const Failure mine = attempt(part);
  const bool failed = mine.code != ExitCode::kDone;
  int64_t first = failed ? ranks.rank() : ranks.size();
  ranks.reduce({.label = "try_on_all_ranks", .int_minima = {&first, 1}}).wait();
  if (first == ranks.size()) return;

  // The lowest failed rank broadcasts its error.
  const auto sender = static_cast<int>(first);
  const ExitCode code = broadcast_value(ranks, mine.code, sender);
  const std::string full = broadcast_text(ranks, mine.text, sender);
  const std::string host = broadcast_text(ranks, Bootstrap::host_name(), sender);
  int64_t counts[] = {failed && mine.text == full, failed && mine.text != full};
  ranks.reduce({.label = "try_on_all_ranks failed", .int_sums = counts}).wait();
  const auto [same, others] = counts;
  const std::string_view text = text_of(std::string_view(full));
  const std::string_view where = std::string_view(full).substr(0, full.size() - text.size());  // "[where] "
  if (same == ranks.size()) throw AllRanksError(code, Error::FullText{full});
  throw AllRanksError(
      code, Error::FullText{str_cat(where, "rank ", first, " of ", ranks.size(), " on ", on_one_line(host), ": ", text,
                                    others == 0 ? "" : str_cat("; ranks with other errors: ", others))});
}

void try_on_first_rank(ControlPlane& ranks, const std::function<void()>& part) {
  try_on_all_ranks(ranks, [&] {
    if (ranks.rank() == 0) part();
  });
}

}  // namespace ashlar::comm
