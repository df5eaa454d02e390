#include "launch/watch/node_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <type_traits>

#include "core/base/error.h"

namespace ashlar::watch {

static_assert(std::is_trivially_copyable_v<RankPage> && std::is_trivially_copyable_v<NodeInbox>);

namespace {

// Rounds up to a multiple of 8 bytes, so that the next part is aligned.
size_t whole_words(size_t bytes) { return (bytes + 7) / 8 * 8; }

}  // namespace

size_t RemotePages::bytes_for(int64_t ranks) {
  return ranks == 0 ? 0 : sizeof(Head) + static_cast<size_t>(ranks) * (sizeof(Slot) + whole_words(RankReport::kBytes));
}

RemotePages::Slot& RemotePages::slot(int64_t rank) const {
  auto* first = static_cast<std::byte*>(memory_) + sizeof(Head);
  return *reinterpret_cast<Slot*>(first + static_cast<size_t>(rank) * (sizeof(Slot) + whole_words(RankReport::kBytes)));
}

std::span<std::byte> RemotePages::message(Slot& slot) {
  return {reinterpret_cast<std::byte*>(&slot + 1), RankReport::kBytes};
}

uint64_t RemotePages::changes() const { return ranks_ == 0 ? 0 : look_at(static_cast<Head*>(memory_)->changes); }

bool RemotePages::put(const RankReport& report, int64_t now_ms) const {
  Slot& to = slot(report.page.rank);
  if (report.version <= look_at(to.version)) return false;
  publish(to.received_ms, int64_t{0});
  encode(report, message(to));
  publish(to.version, report.version);
  publish(to.received_ms, now_ms);
  std::atomic_ref<uint64_t>(static_cast<Head*>(memory_)->changes).fetch_add(1, std::memory_order_release);
  return true;
}

bool RemotePages::has(int64_t rank, int64_t since_ms) const { return look_at(slot(rank).received_ms) > since_ms; }

std::optional<RankReport> RemotePages::get(int64_t rank, int64_t since_ms) const {
  Slot& from = slot(rank);
  if (look_at(from.received_ms) == 0 || look_at(from.received_ms) <= since_ms) return {};
  const std::span<const std::byte> there = message(from);
  const std::vector<std::byte> copy(there.begin(), there.end());  // another process may write meanwhile
  auto report = decode(copy, ranks_);
  if (report && report->page.rank != rank) report.reset();
  return report;
}

int64_t RemotePages::version(int64_t rank) const { return look_at(slot(rank).version); }

size_t NodePages::remote_begins() const {
  return whole_words(kInboxes * sizeof(NodeInbox) + static_cast<size_t>(count_) * sizeof(RankPage));
}

size_t NodePages::bytes() const { return remote_begins() + RemotePages::bytes_for(all_); }

bool NodePages::map() {
  void* memory = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (memory == MAP_FAILED) return false;
  memory_ = memory;
  return true;
}

NodePages::NodePages(int64_t count, int64_t all) : count_(count), all_(all) {
  fd_ = memfd_create("ashlar-ranks", MFD_CLOEXEC);
  if (fd_ < 0 || ftruncate(fd_, static_cast<off_t>(bytes())) != 0 || !map()) {
    const int why = errno;
    close_fd();
    throw resource_error("ranks", "cannot allocate shared memory for ", count, " ranks: ", std::strerror(why),
                         "; end other programs on this machine");
  }
  for (NodeInbox& inbox : inboxes()) new (&inbox) NodeInbox;
  for (RankPage& page : pages()) new (&page) RankPage;
}

std::unique_ptr<NodePages> NodePages::open(int pid, int fd, int64_t count, int64_t all) {
  auto pages = std::unique_ptr<NodePages>(new NodePages);
  pages->count_ = count;
  pages->all_ = all;
  pages->fd_ = ::open(str_cat("/proc/", pid, "/fd/", fd).c_str(), O_RDWR | O_CLOEXEC);
  struct stat info {};
  if (pages->fd_ < 0 || fstat(pages->fd_, &info) != 0 || info.st_size != static_cast<off_t>(pages->bytes()) ||
      !pages->map())
    return nullptr;
  return pages;
}

NodePages::~NodePages() {
  if (memory_ != nullptr) munmap(memory_, bytes());
  close_fd();
}

void NodePages::close_fd() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

std::span<NodeInbox> NodePages::inboxes() const { return {static_cast<NodeInbox*>(memory_), kInboxes}; }

std::span<RankPage> NodePages::pages() const {
  return {reinterpret_cast<RankPage*>(static_cast<NodeInbox*>(memory_) + kInboxes), static_cast<size_t>(count_)};
}

// New memory is zero, which means that nothing was received.
RemotePages NodePages::remote() const {
  return {all_ == 0 ? nullptr : static_cast<std::byte*>(memory_) + remote_begins(), all_};
}

}  // namespace ashlar::watch
