#include "parallel/comm/together.h"

#include <algorithm>
#include <new>
#include <string>
#include <vector>

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
    return {ExitCode::kResource, "[memory] the machine has no memory left; reduce train.micro_batch or the model"};
  }
  return {};
}

}  // namespace

void together(Communicator& ranks, const std::function<void()>& part) {
  if (ranks.size() == 1) return part();  // the type of the exception is kept
  const Failure mine = attempt(part);
  const std::vector<ExitCode> codes = gather_values(ranks, mine.code);
  const auto failed = std::find_if(codes.begin(), codes.end(), [](ExitCode c) { return c != ExitCode::kDone; });
  if (failed == codes.end()) return;

  const std::vector<std::string> texts = gather_texts(ranks, mine.text);
  const std::vector<std::string> hosts = gather_texts(ranks, Bootstrap::host_name());
  const auto first = static_cast<size_t>(failed - codes.begin());
  const auto same = std::count(texts.begin(), texts.end(), texts[first]);
  const auto others = ranks.size() - std::count(codes.begin(), codes.end(), ExitCode::kDone) - same;
  // An Error says `[where] text`.
  const size_t bracket = texts[first].find("] ");
  const std::string where = texts[first].substr(1, bracket - 1);
  const std::string text = texts[first].substr(bracket + 2);
  if (same == ranks.size()) throw SharedError(*failed, where, text);
  throw SharedError(*failed, where,
                    str_cat("rank ", first, " of ", ranks.size(), " on ", hosts[first], ": ", text,
                            others == 0 ? "" : str_cat("; ranks with other errors: ", others)));
}

}  // namespace ashlar::comm
