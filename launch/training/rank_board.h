#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "parallel/comm/progress_engine.h"

namespace ashlar::training {

/// The same for processes that see each other's process ids, and for no others.
uint64_t this_machine();
/// A number that no other job has: rank 0 draws it, the others are told.
uint64_t new_job();

/// Who a rank is.
struct RankInfo {
  int64_t rank = 0;
  int64_t ranks = 1;
  std::string host;
  uint64_t job = 0;  ///< of all ranks together
  uint64_t machine = this_machine();
};

enum class RankState : uint32_t {
  kRunning,
  kFinished,  ///< done as it should be
  kFailed,    ///< left with an error that it says itself, or after a peer
  kCrashed,   ///< said which signal ended it
};

/// What a rank shows: the bytes of its file RUN_DIR/.ranks/rank-00003, mapped into its memory. The operation stands in
/// one of two places, so that one of them is whole whenever the rank dies.
struct RankPage {
  std::array<char, 8> magic{};
  uint32_t format = 0;
  RankState state = RankState::kRunning;
  uint64_t job = 0;
  uint64_t machine = 0;
  int32_t rank = 0, ranks = 1;
  int32_t pid = 0;
  uint32_t place = 0;        ///< of the last operation
  uint64_t started = 0;      ///< this process, in clock ticks since the machine did: tells it from a later one
  int64_t heartbeat_ms = 0;  ///< since 1970, by this machine's clock
  int64_t step = -1;         ///< -1: before the first
  std::array<char, 64> host{};
  std::array<std::array<char, 192>, 2> operation{};  ///< texts that end in a zero
};

/// The page of a rank of this job; nothing while it has none.
std::optional<RankPage> read_rank_page(const std::filesystem::path& run_dir, int64_t rank, uint64_t job);
/// Whether the process of the page runs (on this machine), stopped or not.
bool process_lives(const RankPage& page);
/// "[rank 2 of 4 on hostb] WHAT at step 17, last operation barrier on world, operation 12", in `memory`.
std::string_view describe(const RankPage& page, std::string_view what, std::span<char> memory);

/// The page of this rank. It follows the operations of `engine` (null: none) until it is destroyed, which marks the
/// rank finished, or failed when an exception is passing. `step` and `operation` cost less than 0.2 us and allocate
/// nothing; they belong to one thread, the rest is for any.
class RankBoard {
 public:
  /// Replaces what an earlier job has left. Throws resource_error when the file cannot be written or mapped.
  RankBoard(const std::filesystem::path& run_dir, const RankInfo& info, std::shared_ptr<comm::ProgressEngine> engine);
  RankBoard(const RankBoard&) = delete;
  RankBoard& operator=(const RankBoard&) = delete;
  ~RankBoard();

  void step(int64_t step);
  void operation(const comm::OperationInfo& info, std::string_view communicator);

  void beat();                  ///< shows that this rank lives
  void leave(RankState state);  ///< the first one stays
  void flush();                 ///< to where other machines read
  const std::filesystem::path& run_dir() const { return run_dir_; }
  RankPage& page() { return *page_; }

 private:
  const std::filesystem::path run_dir_;
  const std::shared_ptr<comm::ProgressEngine> engine_;
  const int exceptions_;
  RankPage* page_ = nullptr;
};

}  // namespace ashlar::training
