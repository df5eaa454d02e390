#include "launch/commands/mpirun_child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string_view>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/io/line_writer.h"
#include "core/io/posix_file.h"
#include "launch/commands/launch_events.h"
#include "launch/commands/mpirun_filter.h"
#include "launch/terminal/terminal.h"

namespace ashlar::launch {

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kLinger = 3s;  // when mpirun has ended: time for the remaining ranks to report that and to exit

/// Runs in the child process: detaches it from the terminal, so that Ctrl-C reaches only the launcher.
void leave_the_terminal() {
  setpgid(0, 0);
  const int nothing = open("/dev/null", O_RDONLY);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);  // a background process that reads the terminal is stopped
  if (nothing > STDIN_FILENO) close(nothing);
}

/// Runs in the child process: replaces it by the command, with default signal handling. Returns errno on failure.
int become(std::vector<std::string>& line, const int (&output)[2], const sigset_t& mask, pid_t parent) {
  dup2(output[0], STDOUT_FILENO);
  dup2(output[1], STDERR_FILENO);
  // Ignored and blocked signals are inherited; mpirun must receive them all.
  std::signal(SIGPIPE, SIG_DFL);
  std::signal(SIGXFSZ, SIG_DFL);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // mpirun gets SIGTERM if the launcher is killed
  if (getppid() != parent) return ECHILD;
  // Open MPI's topology library probes ten X displays for GPUs: 5 s each without a name server.
  setenv("HWLOC_COMPONENTS", "-gl", 0);
  std::vector<char*> argv;
  for (std::string& word : line) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  return errno;
}

/// Reads available data from `from` and passes it to `to`. Returns false at the end of the file.
bool pump(int from, const std::function<void(std::string_view)>& to) {
  char buffer[4096];
  const ssize_t n = read(from, buffer, sizeof(buffer));
  if (n > 0) to({buffer, static_cast<size_t>(n)});
  return n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));
}

bool ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

/// True if the child has exited. The child is not reaped here, so that its process id is not reused.
bool has_ended(pid_t child) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == child;
}

}  // namespace

/// The two pipes of a running job, and the time of the next check of its processes.
struct MpirunChild::Streams {
  int out = -1, err = -1;
  MpirunFilter filter;
  Clock::time_point look_at = Clock::now() + 1s;
  std::chrono::seconds look_every = 1s;
};

MpirunChild::MpirunChild(const Args& args)
    : args_(args), job_signals_(args.saves), out_(STDOUT_FILENO), err_(STDERR_FILENO) {
  sigset_t handled;
  sigemptyset(&handled);
  for (const int signal : {SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&handled, signal);
  if (!ignored(SIGHUP)) sigaddset(&handled, SIGHUP);
  sigprocmask(SIG_BLOCK, &handled, &before_);
  signals_ = signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals_ < 0)
    throw resource_error("launch", "cannot receive signals: ", std::strerror(errno), "; raise ulimit -n");
  setenv(JobProcesses::kVariable, processes_.name().c_str(), 1);
  if (!args_.prints_result) columns_ = terminal::width_of(STDOUT_FILENO);
  if (columns_ > 0) {
    setenv(terminal::kWidthVariable, str_cat(columns_).c_str(), 1);
  } else {
    unsetenv(terminal::kWidthVariable);
  }
}

MpirunChild::~MpirunChild() {
  if (signals_ >= 0) close(signals_);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
  if (!finished_) err_.drain(2s);  // after an error, so that its message follows earlier output
}

std::vector<const char*> MpirunChild::variables() const {
  std::vector<const char*> names = {JobProcesses::kVariable};
  if (columns_ > 0) names.push_back(terminal::kWidthVariable);
  return names;
}

void MpirunChild::print(const std::string& text) { print_line(str_cat("ashlar: ", text)); }

void MpirunChild::print_line(const std::string& text) { to_standard_error(text + "\n"); }

/// A line erases what rank 0 has drawn on the terminal.
void MpirunChild::to_standard_error(std::string_view text) {
  if (text.empty()) return;
  if (columns_ > 0 && line_begins_) err_.add(terminal::kErase);
  line_begins_ = text.ends_with('\n');
  err_.add(text);
}

// A terminal sends its signals to the whole process group, so the child has received them too.
void MpirunChild::take_signals() {
  signalfd_siginfo info;
  while (read(signals_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;
    const std::string message = job_signals_.handle(signal, !args_.saves && info.ssi_code == SI_KERNEL, Clock::now());
    if (!message.empty()) print(message);
  }
}

void MpirunChild::send(pid_t child) {
  if (job_signals_.unanswered(Clock::now()) && processes_.living(child).empty()) {
    print(mpirun_without_ranks(JobSignals::kAnswer));
    job_signals_.end_mpirun(Clock::now());
  }
  while (const auto signal = job_signals_.due(Clock::now())) {
    kill(child, *signal);
    if (*signal == SIGKILL) processes_.end_all(child);
  }
}

/// Reports the loss of output once, when it begins.
void MpirunChild::report_lost_output() {
  if (lost_output_reported_ || args_.prints_result || (out_.error() == 0 && out_.dropped() == 0)) return;
  lost_output_reported_ = true;
  print(output_lost({.why = out_.error()}));
}

/// True if output waits for a reader: a result is never dropped, unless the job is asked to end.
bool MpirunChild::waits_for_reader() const { return args_.prints_result && out_.full() && !job_signals_.ending(); }

/// Forwards data that arrives within `milliseconds`. Returns false if none arrived or both pipes are closed.
bool MpirunChild::pass(Streams& streams, int milliseconds) {
  const bool waits = waits_for_reader();
  pollfd from[3] = {{signals_, POLLIN, 0}, {waits ? -1 : streams.out, POLLIN, 0}, {streams.err, POLLIN, 0}};
  const int ready = poll(from, 3, waits ? std::min(milliseconds, 20) : milliseconds);
  take_signals();
  if (from[1].revents != 0 && !pump(streams.out, [&](std::string_view text) { out_.add(text); })) streams.out = -1;
  if (from[2].revents != 0 && !pump(streams.err, [&](std::string_view text) { streams.filter.add(text); }))
    streams.err = -1;
  if (streams.filter.acknowledged()) job_signals_.acknowledged();
  report_lost_output();
  return (ready > 0 || waits) && (streams.out >= 0 || streams.err >= 0);
}

/// Waits up to kLinger until the remaining ranks have ended by themselves, then kills them.
void MpirunChild::end_leftovers(pid_t child) {
  processes_.look(child);
  const auto until = Clock::now() + (job_signals_.ending() ? 0s : kLinger);
  while (!processes_.living(child).empty() && Clock::now() < until) usleep(50'000);
  for (int i = 0; i < 100 && !processes_.living(child).empty(); ++i) {
    processes_.end_all(child);
    usleep(20'000);
  }
  processes_.remove_leftovers();
}

int MpirunChild::run(std::vector<std::string> line) {
  int standard_output[2], standard_error[2], failure[2];
  if (pipe2(standard_output, O_CLOEXEC) != 0 || pipe2(standard_error, O_CLOEXEC) != 0 || pipe2(failure, O_CLOEXEC) != 0)
    throw resource_error("launch", "cannot make a pipe: ", std::strerror(errno), "; raise ulimit -n");
  io::Descriptor out(standard_output[0]), err(standard_error[0]), out_end(standard_output[1]),
      err_end(standard_error[1]);
  io::Descriptor failed(failure[0]), fails(failure[1]);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0)
    throw resource_error("launch", "cannot start a process: ", std::strerror(errno),
                         "; end other processes of this user or raise ulimit -u");
  if (child == 0) {
    if (args_.saves) leave_the_terminal();
    const int error = become(line, {out_end.get(), err_end.get()}, before_, parent);
    [[maybe_unused]] const ssize_t written = write(fails.get(), &error, sizeof(error));
    _exit(127);
  }
  for (io::Descriptor* end : {&out_end, &err_end, &fails}) *end = io::Descriptor(-1);
  int error = 0;
  if (read(failed.get(), &error, sizeof(error)) == static_cast<ssize_t>(sizeof(error))) {
    waitpid(child, nullptr, 0);
    throw input_error("launch", printable(line[0]), " cannot be started: ", std::strerror(error),
                      "; check that it runs by itself");
  }

  Streams streams{.out = out.get(), .err = err.get(), .filter = MpirunFilter([this](std::string_view text) {
                                                        to_standard_error(text);
                                                      })};
  while (!has_ended(child)) {
    send(child);
    if (Clock::now() > streams.look_at && streams.look_every < 256s) {
      processes_.look(child);
      streams.look_at = Clock::now() + streams.look_every;
      streams.look_every *= 2;
    }
    const int until_due = job_signals_.wait_ms(Clock::now());
    pass(streams, until_due < 0 ? 1000 : std::min(until_due, 1000));
  }
  // Forwards the last output. A process that outlives mpirun may keep the pipe open and write to it.
  for (auto until = Clock::now() + (job_signals_.ending() ? 300ms : kLinger);
       pass(streams, 200) && Clock::now() < until;)
    if (waits_for_reader()) until = Clock::now() + kLinger;
  streams.filter.finish(job_signals_.ending());
  end_leftovers(child);
  int status = 0;
  waitpid(child, &status, 0);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (job_signals_.ending()) return job_signals_.exit_code(code);
  if (WIFSIGNALED(status)) {
    print(mpirun_killed(WTERMSIG(status)));
    return static_cast<int>(ExitCode::kPeerLost);
  }
  return streams.filter.lost_a_rank() ? static_cast<int>(ExitCode::kPeerLost) : code;
}

bool MpirunChild::wait(std::chrono::milliseconds time) {
  const auto until = Clock::now() + time;
  while (!job_signals_.ending() && Clock::now() < until) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd from{signals_, POLLIN, 0};
    poll(&from, 1, static_cast<int>(std::max<int64_t>(left, 0)));
    take_signals();
  }
  return job_signals_.ending();
}

void MpirunChild::finish(int code) {
  sigprocmask(SIG_SETMASK, &before_, nullptr);
  const bool waits = args_.prints_result && !job_signals_.ending();  // wait for a reader of the result
  const auto patience = waits ? std::chrono::milliseconds(std::chrono::hours(24 * 365)) : 2000ms;
  const auto until = Clock::now() + 2s;
  const bool written = out_.drain(patience);
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
  const bool read = err_.drain(std::max(left, 200ms));
  finished_ = true;
  if (args_.prints_result && code == 0 && (out_.error() != 0 || !written))
    throw resource_error("output", io::kOutputLost);
  report_lost_output();
  if (!args_.prints_result && out_.dropped() > 0) print(output_lost({.lines = out_.dropped()}));
  if (err_.dropped() > 0) print(output_lost({.lines = err_.dropped(), .fd = STDERR_FILENO}));
  if (read) err_.drain(2s);  // otherwise standard error has no reader
}

}  // namespace ashlar::launch
