#include "launch/watch/node_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <type_traits>

#include "core/base/error.h"

namespace ashlar::watch {

static_assert(std::is_trivially_copyable_v<RankPage> && std::is_trivially_copyable_v<NodeInbox>);

size_t NodePages::bytes_for(int64_t count) {
  return kInboxes * sizeof(NodeInbox) + static_cast<size_t>(count) * sizeof(RankPage);
}

bool NodePages::map() {
  void* memory = mmap(nullptr, bytes_for(count_), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (memory == MAP_FAILED) return false;
  memory_ = memory;
  return true;
}

NodePages::NodePages(int64_t count) : count_(count) {
  fd_ = memfd_create("ashlar-ranks", MFD_CLOEXEC);
  if (fd_ < 0 || ftruncate(fd_, static_cast<off_t>(bytes_for(count))) != 0 || !map()) {
    const int why = errno;
    close_fd();
    throw resource_error("ranks", "no memory for what ", count, " ranks show of themselves: ", std::strerror(why),
                         "; end other programs of this machine");
  }
  for (NodeInbox& inbox : inboxes()) new (&inbox) NodeInbox;
  for (RankPage& page : pages()) new (&page) RankPage;
}

std::unique_ptr<NodePages> NodePages::open(int pid, int fd, int64_t count) {
  auto pages = std::unique_ptr<NodePages>(new NodePages);
  pages->count_ = count;
  pages->fd_ = ::open(str_cat("/proc/", pid, "/fd/", fd).c_str(), O_RDWR | O_CLOEXEC);
  struct stat info {};
  if (pages->fd_ < 0 || fstat(pages->fd_, &info) != 0 || info.st_size != static_cast<off_t>(bytes_for(count)) ||
      !pages->map())
    return nullptr;
  return pages;
}

NodePages::~NodePages() {
  if (memory_ != nullptr) munmap(memory_, bytes_for(count_));
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

}  // namespace ashlar::watch
