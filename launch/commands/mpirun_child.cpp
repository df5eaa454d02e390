#include "launch/commands/mpirun_child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <functional>
#include <optional>
#include <system_error>
#include <utility>

#include "core/base/error.h"

namespace ashlar::launch {

namespace {

constexpr size_t kRule = 20;  // so many dashes, and nothing else, begin and end a paragraph of mpirun

constexpr int kDiedOfIt = 128 + SIGUSR1;  ///< a rank, or mpirun, that was told before it could listen

constexpr std::string_view kSpoken = "ashlar: ";  // how an error of a rank begins

/// How the library under mpirun begins when mpirun, as it ends a job, closes what the library still waits for.
constexpr std::string_view kEventLoop = "[warn] Epoll ";

/// Whether a line that begins so can be passed before its end is known.
bool passes_at_once(std::string_view begun) {
  return begun.size() >= kSpoken.size() && begun[0] != '-' && !begun.starts_with(kEventLoop.substr(0, kSpoken.size()));
}

bool is_rule(std::string_view line) {
  return line.size() >= kRule && std::all_of(line.begin(), line.end(), [](char c) { return c == '-'; });
}

bool repeats_an_exit_code(std::string_view paragraph) {
  for (const std::string_view words : {"a non-zero exit code. Per user-direction, the job has been aborted",
                                       "detected that one or more processes exited with non-zero status"})
    if (paragraph.find(words) != std::string_view::npos) return true;
  return false;
}

/// The number that follows `words`.
std::optional<int64_t> number_after(std::string_view text, std::string_view words) {
  const size_t at = text.find(words);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view digits = text.substr(at + words.size());
  int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

/// The rank that a signal has killed, as mpirun tells it.
std::optional<int64_t> killed_rank(std::string_view paragraph) {
  if (paragraph.find("exited on signal") == std::string_view::npos) return std::nullopt;
  return number_after(paragraph, "noticed that process rank ");
}

/// The rank of which another says that it is lost (Watchdog::leave).
std::optional<int64_t> lost_rank(std::string_view line) {
  if (line.find("; the job ends here: ") == std::string_view::npos) return std::nullopt;
  return number_after(line, "ashlar: [rank ");
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

/// 0, or why not all of it was written.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {  // what another process made of this file
      pollfd ready{fd, POLLOUT, 0};
      poll(&ready, 1, -1);
      continue;
    }
    if (n <= 0) return n < 0 ? errno : ENOSPC;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return 0;
}

void say(const std::string& text) { write_all(STDERR_FILENO, str_cat("ashlar: ", text, "\n")); }

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

/// In the child: makes Ctrl-C, which the terminal sends to a whole group, a signal to the launcher alone.
void leave_the_terminal() {
  setpgid(0, 0);
  const int nothing = open("/dev/null", O_RDONLY);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);  // reading the terminal would stop who is not in front of it
  if (nothing > STDIN_FILENO) close(nothing);
}

/// In the child: becomes the command, as if nothing of this process had been. Returns the error number when it cannot.
int become(std::vector<std::string>& line, const int (&output)[2], const sigset_t& mask, pid_t parent) {
  dup2(output[0], STDOUT_FILENO);
  dup2(output[1], STDERR_FILENO);
  // A program inherits which signals are ignored and blocked; mpirun must see them all.
  std::signal(SIGPIPE, SIG_DFL);
  std::signal(SIGXFSZ, SIG_DFL);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // a launcher that is killed takes its job with it
  if (getppid() != parent) return ECHILD;
  // Open MPI's topology library looks for GPUs of ten X displays: 5 s each where no name server answers.
  setenv("HWLOC_COMPONENTS", "-gl", 0);
  std::vector<char*> argv;
  for (std::string& word : line) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  return errno;
}

/// Signals that are for the job, and which of those that end it came first.
class Signals {
 public:
  explicit Signals(bool saves) : saves_(saves) {}

  /// What the terminal sends to a group a child in it has got as well.
  void hand_on(int signals, pid_t child) {
    signalfd_siginfo info;
    while (read(signals, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD) continue;
      const bool ends = signal == SIGINT || signal == SIGTERM;
      if (ends && ending_ == 0 && saves_) {
        kill(child, SIGUSR1);
      } else if (saves_ || info.ssi_code != SI_KERNEL) {
        kill(child, signal);
      }
      if (ends) answer(signal);
    }
  }
  int ending() const { return ending_; }
  int ending_code() const { return static_cast<int>(ending_ == SIGINT ? ExitCode::kSigint : ExitCode::kSigterm); }

 private:
  void answer(int signal) {
    const bool first = std::exchange(ending_, ending_ == 0 ? signal : ending_) == 0;
    const std::string name = signal == SIGINT ? "SIGINT" : "SIGTERM";
    if (first && saves_) {
      say(name + ": the ranks are told to save and to stop (SIGUSR1); a second signal ends them at once");
    } else if (!told_end_) {
      told_end_ = true;
      say(str_cat(name, ": mpirun ends the ranks within about a second",
                  saves_ ? "; what they have not saved by then is lost" : ""));
    }
  }

  bool saves_;
  bool told_end_ = false;
  int ending_ = 0;
};

/// Standard output of the child, on its way to ours. What cannot be written is dropped: the job continues.
class Passage {
 public:
  explicit Passage(bool warns) : warns_(warns) {}

  void add(std::string_view bytes) {
    if (lost_) return;
    const int why = write_all(STDOUT_FILENO, bytes);
    lost_ = why != 0;
    if (lost_ && warns_)
      say(str_cat("warning: standard output cannot be written (", std::strerror(why), "); its lines are lost"));
  }
  bool lost() const { return lost_; }

 private:
  bool warns_;
  bool lost_ = false;
};

/// Passes what is there to read. False at the end.
bool pump(int from, const std::function<void(std::string_view)>& to) {
  char buffer[4096];
  const ssize_t n = read(from, buffer, sizeof(buffer));
  if (n > 0) to({buffer, static_cast<size_t>(n)});
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
      if (!spoken_.empty()) spoken(part);
    } else {
      line_ += part;
    }
    if (end != std::string_view::npos) {
      if (!passing_) end_of_line();
      passing_ = false;
    } else if (!passing_ && paragraph_.empty() && passes_at_once(line_)) {
      // It cannot be a rule: no need to wait for its end.
      if (line_.starts_with(kSpoken)) spoken(line_);
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
    spoken(line);
    emit(line);
  } else if (is_rule(std::string_view(line).substr(0, line.size() - 1))) {
    const bool closes = !paragraph_.empty();
    paragraph_ += line;
    if (!closes) return;
    const std::optional<int64_t> killed = killed_rank(paragraph_);
    if (killed || repeats_an_exit_code(paragraph_)) {
      rank_spoke_ = rank_spoke_ || tells_of_a_saved_run(paragraph_);
      held_.push_back({paragraph_, killed});
    } else {
      emit(paragraph_);
    }
    paragraph_.clear();
  } else if (!paragraph_.empty()) {
    paragraph_ += line;
  } else if (!line.starts_with(kEventLoop)) {
    emit(line);
  }
}

/// A part of a line of a rank's own.
void MpirunFilter::spoken(std::string_view part) {
  rank_spoke_ = true;
  spoken_ += part;
  if (!part.ends_with('\n')) return;
  if (const auto lost = lost_rank(spoken_)) {
    lost_.push_back(*lost);
    more_lost_ = more_lost_ || spoken_.find(" more lost;") != std::string::npos;
  }
  spoken_.clear();
}

void MpirunFilter::finish() {
  for (const Held& held : held_) {
    const bool repeats =
        held.killed ? (more_lost_ || std::find(lost_.begin(), lost_.end(), *held.killed) != lost_.end()) : rank_spoke_;
    if (!repeats) emit(held.paragraph);
  }
  emit(paragraph_);
  emit(line_);
  held_.clear();
  paragraph_.clear();
  line_.clear();
}

int run_mpirun(MpirunArgs args) {
  sigset_t handled, before;
  sigemptyset(&handled);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&handled, signal);
  sigprocmask(SIG_BLOCK, &handled, &before);
  const Descriptor signals(signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
  int standard_output[2], standard_error[2], failure[2];
  if (signals.get() < 0 || pipe2(standard_output, O_CLOEXEC) != 0 || pipe2(standard_error, O_CLOEXEC) != 0 ||
      pipe2(failure, O_CLOEXEC) != 0)
    throw resource_error("launch", "cannot make a pipe: ", std::strerror(errno), "; raise the limit of open files");
  Descriptor out(standard_output[0]), err(standard_error[0]), out_end(standard_output[1]), err_end(standard_error[1]);
  Descriptor failed(failure[0]), fails(failure[1]);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw resource_error("launch", "cannot start a process: ", std::strerror(errno), "; end others");
  if (child == 0) {
    if (args.saves) leave_the_terminal();
    const int error = become(args.line, {out_end.get(), err_end.get()}, before, parent);
    write_all(fails.get(), {reinterpret_cast<const char*>(&error), sizeof(error)});
    _exit(127);
  }
  for (Descriptor* end : {&out_end, &err_end, &fails}) end->reset();
  int error = 0;
  if (read(failed.get(), &error, sizeof(error)) == static_cast<ssize_t>(sizeof(error))) {
    waitpid(child, nullptr, 0);
    throw input_error("launch", args.line[0], " cannot be started: ", std::strerror(error),
                      "; see whether it runs by itself");
  }

  MpirunFilter filter([](std::string_view text) { write_all(STDERR_FILENO, text); });
  Passage passage(!args.prints_result);
  Signals given(args.saves);
  struct {
    int fd;
    std::function<void(std::string_view)> to;
  } streams[] = {{out.get(), [&](std::string_view text) { passage.add(text); }},
                 {err.get(), [&](std::string_view text) { filter.add(text); }}};
  const auto pass = [&](int milliseconds) {
    pollfd wait_for[3] = {{signals.get(), POLLIN, 0}, {streams[0].fd, POLLIN, 0}, {streams[1].fd, POLLIN, 0}};
    const int ready = poll(wait_for, 3, milliseconds);
    given.hand_on(signals.get(), child);
    for (int s = 0; s < 2; ++s) {
      if (wait_for[s + 1].revents != 0 && !pump(streams[s].fd, streams[s].to)) streams[s].fd = -1;
    }
    return ready > 0 && (streams[0].fd >= 0 || streams[1].fd >= 0);
  };
  int status = 0;
  do {
    pass(-1);
  } while (waitpid(child, &status, WNOHANG) != child);
  // What it said last; a process of its own that outlives it may hold the other end for ever.
  while (pass(200)) {
  }
  filter.finish();
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (WIFEXITED(status)) {
    const int code = WEXITSTATUS(status);
    if (code == 0 && passage.lost() && args.prints_result) {
      throw resource_error("output", "standard output cannot be written: the disk is full or its reader went away");
    }
    if (filter.lost_a_rank() && given.ending() == 0) return static_cast<int>(ExitCode::kPeerLost);
    constexpr int kAborted = 1;  // of mpirun's own; no rank ends so
    const bool told = args.saves && (code == static_cast<int>(ExitCode::kSigusr1) || code == kDiedOfIt);
    return given.ending() != 0 && (code == kAborted || told) ? given.ending_code() : code;
  }
  if (given.ending() != 0 && WTERMSIG(status) == SIGUSR1) return given.ending_code();
  std::signal(WTERMSIG(status), SIG_DFL);
  raise(WTERMSIG(status));
  return 128 + WTERMSIG(status);  // of a signal that does not end this process
}

}  // namespace ashlar::launch
