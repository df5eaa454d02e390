#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "launch/watch/rank_page.h"
#include "parallel/comm/progress_engine.h"

namespace ashlar::watch {

/// Identity of a rank.
struct RankInfo {
  int64_t rank = 0;
  int64_t ranks = 1;
  std::string host;
  uint64_t job = 0;  ///< id of the job, the same on all ranks
  uint64_t machine = this_machine();
};

/// Writes the page of this rank. Follows the operations of `engine` (null: none). Its destruction marks the rank as
/// finished, or as failed if an exception is passing through. Calls of the main thread cost less than 0.2 us and
/// allocate nothing: `step`, `enter`, `tick` and `operation` are for the main thread, the rest for any thread.
class FlightRecorder {
 public:
  /// `page` outlives the recorder.
  FlightRecorder(RankPage& page, const RankInfo& info, std::shared_ptr<comm::ProgressEngine> engine);
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;
  ~FlightRecorder();

  void step(int64_t step);
  void step_took(double ms);
  void enter(Phase phase, int64_t micro_batch = -1);
  void tick();  ///< progress was made
  void operation(const comm::OperationInfo& info, std::string_view communicator);
  void place(int64_t pipeline, int64_t data, int64_t tensor);

  void beat();                           ///< heartbeat of this rank, and its progress
  void stalled(const FileStall& stall);  ///< sets the longest stall of this rank, or none
  void leave(RankState state);           ///< the first state is kept
  RankPage& page() { return page_; }

 private:
  RankPage& page_;
  const std::shared_ptr<comm::ProgressEngine> engine_;
  const int exceptions_;
  uint64_t seen_ = 0;  ///< the watch thread's last seen progress counter
};

}  // namespace ashlar::watch
