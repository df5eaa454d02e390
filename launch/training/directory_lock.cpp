#include "launch/training/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/io/json.h"
#include "core/io/posix_file.h"
#include "launch/training/run_events.h"
#include "launch/watch/process.h"
#include "parallel/comm/bootstrap.h"

namespace ashlar::training {

namespace fs = std::filesystem;

namespace {

constexpr const char* kHow = "; stop that process, or set run.dir to another directory";

/// Thrown if another process has locked the directory or may have locked it.
struct HeldByOther {
  Error error;
  std::optional<LockHolder> holder;
};

HeldByOther taken(const fs::path& dir, const std::optional<LockHolder>& holder) {
  return {input_error("run", "another process is training in ", dir.string(),
                      holder ? str_cat(": ", describe(*holder)) : "", kHow),
          holder};
}

/// True if the holder is a rank of an earlier attempt of the `ashlar launch` that started `self`. Also true if no
/// holder is known, because a rank that is ending empties its lock file before it releases the lock. Always false if
/// `self` was not started by `ashlar launch`.
bool of_former_attempt(const std::optional<LockHolder>& holder, const LockHolder& self) {
  return !self.launch.empty() && (!holder || holder->launch == self.launch);
}

// Opens a file with O_NONBLOCK, so that a FIFO of that name does not block.
int open_plain(const fs::path& path, int flags) {
  const int fd = open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0644);
  struct stat info {};
  if (fd >= 0 && (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))) {
    close(fd);
    throw input_error("run", "expected a lock file, got ", path.string(),
                      ", which is not a regular file; remove that file, or set run.dir to another directory");
  }
  return fd;
}

bool same_file(int fd, const fs::path& path) {
  struct stat mine {
  }, there{};
  return fstat(fd, &mine) == 0 && stat(path.c_str(), &there) == 0 && mine.st_dev == there.st_dev &&
         mine.st_ino == there.st_ino;
}

bool write_text(int fd, const std::string& text) {
  return ftruncate(fd, 0) == 0 && pwrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
}

std::string nonce_of(const std::string& text) {
  const std::optional<LockHolder> holder = parse_holder(text);
  return holder ? holder->nonce : "";
}

}  // namespace

LockHolder this_process() {
  const int pid = getpid();
  const char* launch = std::getenv(watch::kLaunchVariable);
  return {.host = comm::Bootstrap::host_name(),
          .pid = pid,
          .started = watch::process_stat(pid).started,
          .boot = watch::boot_id(),
          .pid_space = watch::pid_space(),
          .since = absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::Now(), absl::UTCTimeZone()),
          .nonce = absl::StrFormat("%08x%08x", std::random_device()(), std::random_device()()),
          .launch = launch == nullptr ? "" : launch};
}

std::string to_text(const LockHolder& h) {
  const nlohmann::ordered_json json = {
      {"host", h.host},           {"pid", h.pid},     {"started", h.started}, {"boot", h.boot},
      {"pid_space", h.pid_space}, {"since", h.since}, {"nonce", h.nonce},     {"launch", h.launch}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::optional<LockHolder> parse_holder(const std::string& text) {
  const auto json = io::try_parse_json(text, io::JsonKeys::kUnique).value_or(nlohmann::json());
  if (!json.is_object()) return std::nullopt;
  LockHolder h;
  for (const auto& [key, field] :
       {std::pair{"host", &h.host}, {"boot", &h.boot}, {"pid_space", &h.pid_space}, {"since", &h.since}}) {
    if (!json.contains(key) || !json[key].is_string()) return std::nullopt;
    *field = json[key].get<std::string>();
  }
  for (const char* key : {"pid", "started"})
    if (!json.contains(key) || !json[key].is_number_integer()) return std::nullopt;
  h.pid = json["pid"].get<int64_t>();
  h.started = json["started"].get<uint64_t>();
  for (const auto& [key, field] : {std::pair{"nonce", &h.nonce}, {"launch", &h.launch}})  // absent in older versions
    if (json.contains(key) && json[key].is_string()) *field = json[key].get<std::string>();
  return h;
}

std::string describe(const LockHolder& h) {
  return str_cat("process ", h.pid, " on ", escaped(h.host), " since ", escaped(h.since), " UTC");
}

Liveness liveness_of(const LockHolder& holder, const LockHolder& self) {
  if (holder.boot.empty() || self.boot.empty()) return Liveness::kUnknown;
  // Different boot ids on one host mean that the machine has rebooted, so the holder is dead. Two machines with the
  // same host name would be a configuration error.
  if (holder.boot != self.boot) return holder.host == self.host ? Liveness::kDead : Liveness::kUnknown;
  if (holder.pid_space != self.pid_space) return Liveness::kUnknown;
  const watch::ProcessStat now = watch::process_stat(static_cast<int>(holder.pid));
  const bool lives = now.started == holder.started && now.started != 0 && now.state != 'Z' && now.state != 'X';
  return lives ? Liveness::kAlive : Liveness::kDead;
}

DirectoryLock::DirectoryLock(Args args) : dir_(std::move(args.dir)), file_lock_(args.file_lock), self_(this_process()) {
  dir_fd_ = open(dir_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  try {
    acquire(args);
  } catch (...) {
    if (fd_ >= 0) close(fd_);
    if (dir_fd_ >= 0) close(dir_fd_);
    throw;
  }
}

void DirectoryLock::acquire(const Args& args) {
  const absl::Time end = absl::Now() + absl::Seconds(args.former_seconds);
  for (bool logged = false;;) {
    try {
      // A process on a machine without flock for this file system uses .lock.held. So a process with flock checks
      // .lock.held too.
      if (!acquire_file_lock(file_lock_)) return acquire_held_file(std::strerror(errno));
      while (fs::exists(dir_ / kHeldFile)) remove_dead_holder();
      return settle_owner(args);
    } catch (const HeldByOther& other) {
      if (!of_former_attempt(other.holder, self_) || absl::Now() > end) throw other.error;
      if (!std::exchange(logged, true))
        args.log_line(to_line(FormerAwaited{.run_dir = dir_,
                                            .owner = other.holder ? describe(*other.holder) : "a process",
                                            .seconds = args.former_seconds}));
    }
    if (fd_ >= 0) close(std::exchange(fd_, -1));
    usleep(100'000);
  }
}

void DirectoryLock::settle_owner(const Args& args) {
  const std::string text = io::text_if_readable(dir_ / kFile);
  const std::optional<LockHolder> other = parse_holder(text);
  const Liveness liveness = other ? liveness_of(*other, self_) : Liveness::kUnknown;
  if (!text.empty() && liveness == Liveness::kAlive) throw taken(dir_, other);
  const bool watch = !text.empty() && liveness == Liveness::kUnknown && args.watch_seconds > 0;
  if (watch) watch_owner(args, text, other ? describe(*other) : "a process that its lock file does not name");
  text_ours_ = write_text(fd_, to_text(self_));
  if (!watch) return;
  // If several processes have watched the owner, the process that wrote the lock file last owns the directory.
  usleep(static_cast<useconds_t>(args.watch_seconds / 30 * 1e6));
  const std::string now = io::text_if_readable(dir_ / kFile);
  if (text_ours_ && nonce_of(now) != self_.nonce) throw taken(dir_, parse_holder(now));
}

void DirectoryLock::watch_owner(const Args& args, const std::string& text, const std::string& owner) const {
  args.log_line(to_line(OwnerWatched{.run_dir = dir_, .owner = owner, .seconds = args.watch_seconds}));
  const std::optional<io::FileStamp> before = io::file_stamp(dir_ / args.watched);
  const absl::Time end = absl::Now() + absl::Seconds(args.watch_seconds);
  while (absl::Now() < end) {
    usleep(static_cast<useconds_t>(args.watch_seconds / 120 * 1e6));
    const std::string now = io::text_if_readable(dir_ / kFile);
    if (now != text) throw taken(dir_, parse_holder(now));
    if (io::file_stamp(dir_ / args.watched) == before) continue;
    throw HeldByOther{
        input_error("run", "another process is training in ", printable(dir_.string()), ": ", owner, "; ", args.watched,
                    " grows, although the file system granted the lock to this process too (mount Lustre ",
                    "with flock, not localflock)", kHow),
        parse_holder(text)};
  }
  args.log_line(to_line(OwnerReplaced{.run_dir = dir_, .owner = owner}));
}

void DirectoryLock::moved(fs::path dir) {
  const std::lock_guard lock(checking_);
  dir_ = std::move(dir);
}

void DirectoryLock::check_place() const {
  struct stat mine {
  }, there{};
  if (dir_fd_ < 0 || fstat(dir_fd_, &mine) != 0) return;
  if (stat(dir_.c_str(), &there) == 0) {
    if (mine.st_dev == there.st_dev && mine.st_ino == there.st_ino) return;
  } else if (errno != ENOENT && errno != ENOTDIR && errno != ESTALE) {
    return;  // a transient file system error does not mean that the directory moved
  }
  std::error_code none;
  const fs::path now = mine.st_nlink == 0 ? "" : fs::read_symlink(str_cat("/proc/self/fd/", dir_fd_), none);
  const bool known = !now.empty() && !now.string().ends_with(" (deleted)");
  throw input_error(
      "run", "the run directory ", printable(dir_.string()), " was ",
      known ? str_cat("moved to ", printable(now.string())) : "deleted",
      " during training; the run stops and writes nothing more; ",
      known ? str_cat("move it back, or resume with run.dir = ", printable(now.string())) : "start a new run");
}

void DirectoryLock::make_lock_file_again() {
  const int fd = open(text_file().c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return;  // the next `check` tries again
  text_ours_ = write_text(fd, to_text(self_));
  if (held_file_) {
    close(fd);
    return;
  }
  file_lock_(fd, LOCK_EX | LOCK_NB);
  close(std::exchange(fd_, fd));
}

void DirectoryLock::check() {
  const std::lock_guard lock(checking_);
  check_place();
  // If the lock file is unchanged since the last check, it is not opened.
  const std::optional<io::FileStamp> stamp = io::file_stamp(text_file());
  if (stamp && stamp == read_stamp_) return;
  const int fd = open(text_file().c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT) make_lock_file_again();
    return;
  }
  char text[4096];
  const ssize_t n = pread(fd, text, sizeof(text), 0);
  close(fd);
  if (n < 0 || !text_ours_) return;
  const std::string now(text, static_cast<size_t>(n));
  if (nonce_of(now) == self_.nonce) {
    read_stamp_ = stamp;
    return;
  }
  const std::optional<LockHolder> other = parse_holder(now);
  throw input_error(
      "run", "expected to own the run directory ", printable(dir_.string()), " alone, but ",
      other ? describe(*other) : "another process",
      " has taken it over; this run ends and writes nothing more; the file system does not enforce locks (mount "
      "Lustre with flock, not localflock): start one run at a time");
}

bool DirectoryLock::acquire_file_lock(FileLock file_lock) {
  const fs::path path = dir_ / kFile;
  while (true) {
    fd_ = open_plain(path, O_RDWR | O_CREAT);
    if (fd_ < 0) {
      throw input_error("run", "cannot write to the run directory ", dir_.string(), ": ", std::strerror(errno),
                        "; set run.dir to a directory you may write");
    }
    int result = 0;
    do result = file_lock(fd_, LOCK_EX | LOCK_NB);
    while (result != 0 && errno == EINTR);
    const int why = errno;
    // The previous holder may have moved the directory between our open and our lock.
    if (result == 0 && same_file(fd_, path)) return true;
    close(std::exchange(fd_, -1));
    if (result == 0) continue;
    if (why == EWOULDBLOCK) throw taken(dir_, parse_holder(io::text_if_readable(path)));
    errno = why;
    return false;
  }
}

void DirectoryLock::acquire_held_file(const std::string& why) {
  // Without flock this process cannot see the locks of others: only the text of .lock shows a process that holds one.
  const std::optional<LockHolder> other = parse_holder(io::text_if_readable(dir_ / kFile));
  if (other && liveness_of(*other, this_process()) == Liveness::kAlive) throw taken(dir_, other);
  const fs::path path = dir_ / kHeldFile;
  int fd = -1;
  while ((fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644)) < 0) {
    if (errno != EEXIST) {
      throw input_error("run", "cannot write to the run directory ", dir_.string(), ": ", std::strerror(errno),
                        "; set run.dir to a directory you may write");
    }
    remove_dead_holder();
  }
  const bool written = write_text(fd, to_text(self_));
  close(fd);
  if (!written) {
    fs::remove(path);
    throw resource_error("run", "cannot write ", path.string(), "; free space and run again");
  }
  held_file_ = text_ours_ = true;
  note_ = str_cat("the file system of ", dir_.string(), " has no file locks (", why, "); ", path.filename().string(),
                  " guards the run instead");
}

void DirectoryLock::remove_dead_holder() {
  const fs::path path = dir_ / kHeldFile, claim = path.string() + ".claim";
  const int fd = open_plain(path, O_RDONLY);
  if (fd < 0) return;  // removed meanwhile
  close(fd);
  std::optional<LockHolder> holder = parse_holder(io::text_if_readable(path));
  for (int i = 0; i < 20 && !holder; ++i) {  // the creator may not have written its name yet
    usleep(50'000);
    if (!fs::exists(path)) return;
    holder = parse_holder(io::text_if_readable(path));
  }
  const Liveness liveness = holder ? liveness_of(*holder, this_process()) : Liveness::kUnknown;
  if (liveness == Liveness::kAlive) throw taken(dir_, holder);
  if (liveness == Liveness::kUnknown) {
    throw HeldByOther{
        input_error("run", "another process may be training in ", dir_.string(), ": ",
                    holder ? describe(*holder) : "an unknown process",
                    "; this machine cannot tell whether that process still runs; if it has ended, remove ",
                    path.string()),
        holder};
  }
  // If several processes find the holder dead, exactly one of them must remove the file, and none may remove the file
  // of a newer holder. The claim file, which only one process can create, ensures this.
  const int claimed = open(claim.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (claimed < 0) {
    throw input_error("run", "another process is taking over ", dir_.string(),
                      "; run the command again, and if that fails too, remove ", claim.string());
  }
  close(claimed);
  if (parse_holder(io::text_if_readable(path)) == holder) fs::remove(path);
  fs::remove(claim);
}

DirectoryLock::~DirectoryLock() {
  std::error_code none;
  const bool ours = nonce_of(io::text_if_readable(text_file())) == self_.nonce;  // else another process owns `dir_`
  if (held_file_ && ours) fs::remove(dir_ / kHeldFile, none);
  if (dir_fd_ >= 0) close(dir_fd_);
  if (fd_ < 0) return;
  if (ours) [[maybe_unused]]
    const int emptied = ftruncate(fd_, 0);  // an empty file names no holder
  close(fd_);
}

}  // namespace ashlar::training
