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

/// Publishes the state of this rank in its RankPage, including the communication operations of `engine` (null: none).
/// The destructor marks the rank as finished, or as failed if it runs because of an exception. `step`, `enter`, `tick`
/// and `operation` are for the main thread; each costs less than 0.2 us and allocates nothing. The other functions are
/// for any thread.
class FlightRecorder {
 public:
  /// `page` must outlive the recorder.
  FlightRecorder(RankPage& page, const RankInfo& info, std::shared_ptr<comm::ProgressEngine> engine);
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;
  ~FlightRecorder();

  void step(int64_t step);
  void step_took(double ms);
  void enter(Phase phase, int64_t micro_batch = -1);
  void tick();  ///< counts a unit of progress
  void operation(const comm::OperationInfo& info, std::string_view communicator);
  void place(const PerAxis& at);

  void beat();                           ///< publishes the heartbeat of this rank and the time of its last progress
  void stalled(const FileStall& stall);  ///< publishes the longest current stall; since_ms is 0 if there is none
  void leave(RankState state);           ///< sets the final state; only the first call has an effect
  RankPage& page() { return page_; }

 private:
  RankPage& page_;
  const std::shared_ptr<comm::ProgressEngine> engine_;
  const int exceptions_;
  uint64_t seen_ = 0;  ///< progress counter at the last `beat`
};

}  // namespace ashlar::watch
