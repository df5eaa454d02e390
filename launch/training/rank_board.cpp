#include "launch/training/rank_board.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <random>
#include <system_error>
#include <type_traits>
#include <utility>

#include "core/base/error.h"
#include "core/base/fixed_text.h"

namespace ashlar::training {

namespace fs = std::filesystem;

namespace {

constexpr std::array<char, 8> kMagic = {'A', 'S', 'H', 'R', 'A', 'N', 'K', '\n'};
constexpr uint32_t kFormat = 1;

static_assert(std::is_trivially_copyable_v<RankPage>);

// Into a field that other processes read.
template <typename T>
void publish(T& field, T value) {
  std::atomic_ref<T>(field).store(value, std::memory_order_release);
}

fs::path folder_of(const fs::path& run_dir) { return run_dir / ".ranks"; }
fs::path file_of(const fs::path& run_dir, int64_t rank) {
  const std::string digits = std::to_string(rank);
  return folder_of(run_dir) / ("rank-" + std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits);
}

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// State letter and start time of a process; a start of 0 when there is none.
struct Process {
  char state = 'X';
  uint64_t started = 0;
};
Process process(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = text.rfind(')');  // the name in parentheses may hold anything
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return {};
  Process result{.state = text[name_end + 2]};
  size_t at = name_end + 2;
  for (int field = 3; field < 22 && at != std::string::npos; ++field) at = text.find(' ', at + 1);
  if (at != std::string::npos) result.started = std::strtoull(text.c_str() + at, nullptr, 10);
  return result;
}

[[noreturn]] void fail(const fs::path& path, const char* what) {
  throw resource_error("ranks", path.string(), " cannot be ", what, ": ", std::strerror(errno),
                       "; run.dir must be a folder that this rank can write and map");
}

}  // namespace

uint64_t this_machine() {
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string id{std::istreambuf_iterator<char>(boot), {}};
  std::error_code none;
  id += fs::read_symlink("/proc/self/ns/pid", none).string();  // containers count their own processes
  return std::hash<std::string>()(id);
}

uint64_t new_job() {
  std::random_device random;
  return (static_cast<uint64_t>(random()) << 32) | random();
}

std::optional<RankPage> read_rank_page(const fs::path& run_dir, int64_t rank, uint64_t job) {
  // Opened anew each time: this is when a network's file system asks its server.
  const int fd = open(file_of(run_dir, rank).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  RankPage page;
  const ssize_t size = pread(fd, &page, sizeof(page), 0);
  close(fd);
  page.host.back() = page.operation[0].back() = page.operation[1].back() = '\0';
  const bool good = size == static_cast<ssize_t>(sizeof(page)) && page.magic == kMagic && page.format == kFormat &&
                    page.job == job && page.rank == rank;
  return good ? std::optional(page) : std::nullopt;
}

bool process_lives(const RankPage& page) {
  const Process now = process(page.pid);
  return now.started == page.started && now.state != 'Z' && now.state != 'X';
}

std::string_view describe(const RankPage& page, std::string_view what, std::span<char> memory) {
  FixedText text(memory);
  text.add("[rank ").add(page.rank).add(" of ").add(page.ranks).add(" on ").add(page.host.data()).add("] ").add(what);
  if (page.step < 0) {
    text.add(" before the first step");
  } else {
    text.add(" at step ").add(page.step);
  }
  return text.add(", last operation ").add(page.operation[page.place % 2].data()).text();
}

RankBoard::RankBoard(const fs::path& run_dir, const RankInfo& info, std::shared_ptr<comm::ProgressEngine> engine)
    : run_dir_(run_dir), engine_(std::move(engine)), exceptions_(std::uncaught_exceptions()) {
  RankPage page{.magic = kMagic,
                .format = kFormat,
                .job = info.job,
                .machine = info.machine,
                .rank = static_cast<int32_t>(info.rank),
                .ranks = static_cast<int32_t>(info.ranks),
                .pid = getpid(),
                .started = process(getpid()).started,
                .heartbeat_ms = now_ms()};
  info.host.copy(page.host.data(), page.host.size() - 1);
  comm::describe({}, "", page.operation[0]);
  // Written whole under another name: nobody reads half of it, or sees an earlier job's file change.
  const fs::path path = file_of(run_dir, info.rank), draft = path.string() + ".new";
  std::error_code error;
  fs::create_directories(folder_of(run_dir), error);
  const int fd = open(draft.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) fail(draft, "written");
  const bool written = pwrite(fd, &page, sizeof(page), 0) == static_cast<ssize_t>(sizeof(page));
  void* memory = written ? mmap(nullptr, sizeof(page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  const int why = errno;
  close(fd);
  errno = why;
  if (memory == MAP_FAILED) fail(draft, written ? "mapped" : "written");
  page_ = static_cast<RankPage*>(memory);
  if (std::rename(draft.c_str(), path.c_str()) != 0) {
    munmap(page_, sizeof(page));
    fail(path, "written");
  }
  if (engine_ == nullptr) return;
  engine_->observe([this](const comm::OperationInfo& operation_info, std::string_view communicator) {
    operation(operation_info, communicator);
  });
}

RankBoard::~RankBoard() {
  if (engine_ != nullptr) engine_->observe(nullptr);
  leave(std::uncaught_exceptions() > exceptions_ ? RankState::kFailed : RankState::kFinished);
  munmap(page_, sizeof(RankPage));
}

void RankBoard::step(int64_t step) { publish(page_->step, step); }

void RankBoard::operation(const comm::OperationInfo& info, std::string_view communicator) {
  const uint32_t place = 1 - page_->place;
  std::array<char, 192>& text = page_->operation[place];
  const std::string_view written = comm::describe(info, communicator, std::span(text).first(text.size() - 1));
  text[written.size()] = '\0';
  publish(page_->place, place);
}

void RankBoard::beat() { publish(page_->heartbeat_ms, now_ms()); }

void RankBoard::leave(RankState state) {
  RankState running = RankState::kRunning;
  std::atomic_ref<RankState>(page_->state).compare_exchange_strong(running, state);
  flush();
}

void RankBoard::flush() { msync(page_, sizeof(RankPage), MS_SYNC); }

}  // namespace ashlar::training
