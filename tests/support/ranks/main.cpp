#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/strings.h"
#include "parallel/comm/host.h"
#include "tests/support/long_form.h"
#include "tests/support/ranks/gather_texts.h"
#include "tests/support/ranks/ranks.h"

namespace ashlar::testing {

comm::Bootstrap& bootstrap() {
  static comm::Bootstrap* const only = new comm::Bootstrap();
  return *only;
}

namespace {

/// Ends the process when a test does not end. Its thread never communicates.
class Watchdog {
 public:
  Watchdog(int rank, std::shared_ptr<comm::ProgressEngine> engine) : rank_(rank), engine_(std::move(engine)) {
    const char* text = std::getenv("ASHLAR_TEST_SECONDS");
    const int usual = long_form() ? 3600 : 60;
    limit_ = std::chrono::seconds(text == nullptr ? usual : std::atoi(text));
    thread_ = std::thread([this] { watch(); });
  }
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void begin(const std::string& test) {
    const std::lock_guard lock(mutex_);
    test_ = test;
    failures_.clear();
    deadline_ = Clock::now() + limit_;
    changed_.notify_all();
  }
  void failed(const std::string& text) {
    const std::lock_guard lock(mutex_);
    failures_ += text;
  }
  std::string failures() {
    const std::lock_guard lock(mutex_);
    return failures_;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    test_.clear();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void watch() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      if (test_.empty()) {
        changed_.wait(lock);
      } else if (changed_.wait_until(lock, deadline_) == std::cv_status::timeout && !test_.empty() &&
                 Clock::now() >= deadline_) {
        std::fprintf(stderr, "rank %d: %s did not end within %lld s; last operation: %s\n%s", rank_, test_.c_str(),
                     static_cast<long long>(limit_.count()), engine_->last_operation().c_str(), failures_.c_str());
        std::fflush(stderr);
        // The launcher ends all ranks when the first one leaves: let the others say their line.
        std::this_thread::sleep_for(std::chrono::seconds(1));
        _exit(1);
      }
    }
  }

  const int rank_;
  const std::shared_ptr<comm::ProgressEngine> engine_;
  std::chrono::seconds limit_{};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string test_, failures_;
  Clock::time_point deadline_;
  bool stop_ = false;
  std::thread thread_;
};

/// A test passes when it passes on every rank.
class EveryRank : public ::testing::EmptyTestEventListener {
 public:
  EveryRank(comm::Communicator& world, Watchdog& watchdog)
      : results_(std::make_unique<comm::ControlPlane>(world, "results")), watchdog_(watchdog) {}

 private:
  void OnTestStart(const ::testing::TestInfo& test) override {
    watchdog_.begin(str_cat(test.test_suite_name(), ".", test.name()));
  }
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    watchdog_.failed(str_cat(result.file_name() == nullptr ? "" : result.file_name(), ":", result.line_number(), ": ",
                             result.summary(), "\n"));
  }
  void OnTestEnd(const ::testing::TestInfo&) override {
    const std::vector<std::string> texts = gather_texts(*results_, watchdog_.failures());
    watchdog_.end();
    if (results_->rank() != 0) return;
    for (size_t rank = 1; rank < texts.size(); ++rank) {
      if (!texts[rank].empty()) ADD_FAILURE() << "on rank " << rank << ":\n" << texts[rank];
    }
  }

  std::unique_ptr<comm::ControlPlane> results_;
  Watchdog& watchdog_;
};

int run(int argc, char** argv) {
  comm::Communicator& world = bootstrap().world();
  ::testing::InitGoogleTest(&argc, argv);
  Watchdog watchdog(world.rank(), world.engine());
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (world.rank() != 0) {
    delete listeners.Release(listeners.default_result_printer());
    delete listeners.Release(listeners.default_xml_generator());
  }
  auto every_rank = std::make_unique<EveryRank>(world, watchdog);
  // Last appended is first told of the end of a test: before it is printed.
  listeners.Append(every_rank.get());
  const int code = RUN_ALL_TESTS();
  listeners.Release(every_rank.get());
  return world.rank() == 0 ? code : 0;
}

}  // namespace
}  // namespace ashlar::testing

int main(int argc, char** argv) {
  const int code = ashlar::testing::run(argc, argv);
  delete &ashlar::testing::bootstrap();
  return code;
}
