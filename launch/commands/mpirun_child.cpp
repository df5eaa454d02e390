#include "launch/commands/mpirun_child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <system_error>

#include "core/base/error.h"

namespace ashlar::launch {

namespace {

constexpr size_t kRule = 20;  // so many dashes, and nothing else, begin and end a paragraph of mpirun

constexpr std::string_view kSpoken = "ashlar: ";  // how an error of a rank begins

bool is_rule(std::string_view line) {
  return line.size() >= kRule && std::all_of(line.begin(), line.end(), [](char c) { return c == '-'; });
}

bool repeats_an_exit_code(std::string_view paragraph) {
  for (const std::string_view words : {"a non-zero exit code. Per user-direction, the job has been aborted",
                                       "detected that one or more processes exited with non-zero status"})
    if (paragraph.find(words) != std::string_view::npos) return true;
  return false;
}

/// 75 to 77: the run was told to stop, has saved, and has said so on standard output.
bool tells_of_a_saved_run(std::string_view paragraph) {
  constexpr std::string_view kBefore = "Exit code:";
  const size_t at = paragraph.find(kBefore);
  if (at == std::string_view::npos) return false;
  const size_t digit = paragraph.find_first_of("0123456789", at);
  const std::string_view code = digit == std::string_view::npos ? "" : paragraph.substr(digit, 3);
  return code == "75\n" || code == "76\n" || code == "77\n";
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // nobody reads standard error
    text.remove_prefix(static_cast<size_t>(n));
  }
}

/// A descriptor that is closed at the end.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() { reset(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  void reset(int fd = -1) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }

 private:
  int fd_;
};

/// In the child: becomes the command, as if nothing of this process had been. Returns the error number when it cannot.
int become(std::vector<std::string>& line, int standard_error, const sigset_t& mask, pid_t parent) {
  dup2(standard_error, STDERR_FILENO);
  // A program inherits which signals are ignored and blocked; mpirun must see them all.
  std::signal(SIGPIPE, SIG_DFL);
  std::signal(SIGXFSZ, SIG_DFL);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // a launcher that is killed takes its job with it
  if (getppid() != parent) return ECHILD;
  std::vector<char*> argv;
  for (std::string& word : line) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  return errno;
}

/// Signals that are for the job. What the terminal sends (Ctrl-C) the child has got as well, being in the same group.
void hand_on(int signals, pid_t child) {
  signalfd_siginfo info;
  while (read(signals, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    if (info.ssi_signo != SIGCHLD && info.ssi_code != SI_KERNEL) kill(child, static_cast<int>(info.ssi_signo));
  }
}

/// Passes what is there to read. False at the end.
bool pump(int from, MpirunFilter& filter) {
  char buffer[4096];
  const ssize_t n = read(from, buffer, sizeof(buffer));
  if (n > 0) filter.add({buffer, static_cast<size_t>(n)});
  return n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));
}

}  // namespace

void MpirunFilter::emit(std::string_view text) {
  if (!text.empty()) out_(text);
}

void MpirunFilter::add(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view part = bytes.substr(0, end == std::string_view::npos ? bytes.size() : end + 1);
    bytes.remove_prefix(part.size());
    if (passing_) {
      emit(part);
    } else {
      line_ += part;
    }
    if (end != std::string_view::npos) {
      if (!passing_) end_of_line();
      passing_ = false;
    } else if (!passing_ && paragraph_.empty() && line_[0] != '-' && line_.size() >= kSpoken.size()) {
      // It cannot be a rule: no need to wait for its end.
      rank_spoke_ = rank_spoke_ || line_.starts_with(kSpoken);
      emit(line_);
      line_.clear();
      passing_ = true;
    }
  }
}

void MpirunFilter::end_of_line() {
  std::string line;
  line.swap(line_);
  if (line.starts_with(kSpoken)) {  // also in the middle of a paragraph
    rank_spoke_ = true;
    emit(line);
  } else if (is_rule(std::string_view(line).substr(0, line.size() - 1))) {
    const bool closes = !paragraph_.empty();
    paragraph_ += line;
    if (!closes) return;
    if (repeats_an_exit_code(paragraph_)) {
      rank_spoke_ = rank_spoke_ || tells_of_a_saved_run(paragraph_);
      repeated_ += paragraph_;
    } else {
      emit(paragraph_);
    }
    paragraph_.clear();
  } else if (!paragraph_.empty()) {
    paragraph_ += line;
  } else {
    emit(line);
  }
}

void MpirunFilter::finish() {
  if (!rank_spoke_) emit(repeated_);
  emit(paragraph_);
  emit(line_);
  repeated_.clear();
  paragraph_.clear();
  line_.clear();
}

int run_mpirun(std::vector<std::string> line) {
  sigset_t handled, before;
  sigemptyset(&handled);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&handled, signal);
  sigprocmask(SIG_BLOCK, &handled, &before);
  const Descriptor signals(signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
  int standard_error[2], failure[2];
  if (signals.get() < 0 || pipe2(standard_error, O_CLOEXEC) != 0 || pipe2(failure, O_CLOEXEC) != 0)
    throw resource_error("launch", "cannot make a pipe: ", std::strerror(errno), "; raise the limit of open files");
  Descriptor read_end(standard_error[0]), write_end(standard_error[1]);
  Descriptor failed(failure[0]), fails(failure[1]);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw resource_error("launch", "cannot start a process: ", std::strerror(errno), "; end others");
  if (child == 0) {
    const int error = become(line, write_end.get(), before, parent);
    write_all(fails.get(), {reinterpret_cast<const char*>(&error), sizeof(error)});
    _exit(127);
  }
  write_end.reset();
  fails.reset();
  int error = 0;
  if (read(failed.get(), &error, sizeof(error)) == static_cast<ssize_t>(sizeof(error))) {
    waitpid(child, nullptr, 0);
    throw input_error("launch", line[0], " cannot be started: ", std::strerror(error),
                      "; see whether it runs by itself");
  }

  MpirunFilter filter([](std::string_view text) { write_all(STDERR_FILENO, text); });
  int status = 0;
  bool open = true, ended = false;
  while (!ended) {
    pollfd wait_for[2] = {{signals.get(), POLLIN, 0}, {open ? read_end.get() : -1, POLLIN, 0}};
    poll(wait_for, 2, -1);
    hand_on(signals.get(), child);
    if (open && wait_for[1].revents != 0) open = pump(read_end.get(), filter);
    ended = waitpid(child, &status, WNOHANG) == child;
  }
  // What it said last; a process of its own that outlives it may hold the other end for ever.
  pollfd rest = {read_end.get(), POLLIN, 0};
  while (open && poll(&rest, 1, 200) > 0) open = pump(read_end.get(), filter);
  filter.finish();
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  std::signal(WTERMSIG(status), SIG_DFL);
  raise(WTERMSIG(status));
  return 128 + WTERMSIG(status);  // of a signal that does not end this process
}

}  // namespace ashlar::launch
