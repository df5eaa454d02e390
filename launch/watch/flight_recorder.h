#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "launch/watch/rank_page.h"
#include "parallel/comm/progress_engine.h"

namespace ashlar::watch {

/// Who a rank is.
struct RankInfo {
  int64_t rank = 0;
  int64_t ranks = 1;
  std::string host;
  uint64_t job = 0;  ///< of all ranks together
  uint64_t machine = this_machine();
};

/// The page of this rank. It follows the operations of `engine` (null: none) until it is destroyed, which marks the
/// rank finished, or failed when an exception is passing. What the main thread calls costs less than 0.2 us and
/// allocates nothing: `step`, `enter`, `tick` and `operation` belong to it, the rest is for any thread.
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
  void tick();  ///< something got done
  void operation(const comm::OperationInfo& info, std::string_view communicator);
  void place(int64_t pipeline, int64_t data, int64_t tensor);

  void beat();                           ///< shows that this rank lives, and whether it gets on
  void stalled(const FileStall& stall);  ///< a thread of this rank is in a call on a file, or none any more
  void leave(RankState state);           ///< the first one stays
  RankPage& page() { return page_; }

 private:
  RankPage& page_;
  const std::shared_ptr<comm::ProgressEngine> engine_;
  const int exceptions_;
  uint64_t seen_ = 0;  ///< the watch's: what had got done when it last looked
};

}  // namespace ashlar::watch
