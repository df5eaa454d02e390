#include "launch/commands/mpirun_filter.h"

#include <algorithm>
#include <charconv>
#include <system_error>

namespace ashlar::launch {

namespace {

constexpr size_t kRule = 20;  // a line of at least this many dashes begins and ends a paragraph of mpirun

constexpr std::string_view kRankPrefix = "ashlar: ";  // prefix of a rank's error

/// Prefix of a warning of the event library in mpirun when mpirun closes a descriptor while ending a job.
constexpr std::string_view kEventLoop = "[warn] Epoll ";

/// Prefix of the line that mpirun prints for each forwarded signal. `launch` has already reported the signal.
constexpr std::string_view kForwarding = "mpirun: Forwarding signal ";

bool begins_alike(std::string_view a, std::string_view b) {
  const size_t most = std::min(a.size(), b.size());
  return a.substr(0, most) == b.substr(0, most);
}

/// True if a line with this beginning can be forwarded before it is complete.
bool passes_at_once(std::string_view begun) {
  return begun.size() >= kRankPrefix.size() && begun[0] != '-' && !begins_alike(begun, kEventLoop) &&
         !begins_alike(begun, kForwarding);
}

bool is_rule(std::string_view line) {
  return line.size() >= kRule && std::ranges::all_of(line, [](char c) { return c == '-'; });
}

bool repeats_an_exit_code(std::string_view paragraph) {
  for (const std::string_view words : {"a non-zero exit code. Per user-direction, the job has been aborted",
                                       "detected that one or more processes exited with non-zero status"})
    if (paragraph.find(words) != std::string_view::npos) return true;
  return false;
}

/// Returns the number that follows `words` in the text.
std::optional<int64_t> number_after(std::string_view text, std::string_view words) {
  const size_t at = text.find(words);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view digits = text.substr(at + words.size());
  int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

/// Returns the rank that a signal has killed, according to a paragraph of mpirun.
std::optional<int64_t> killed_rank(std::string_view paragraph) {
  if (paragraph.find("exited on signal") == std::string_view::npos) return std::nullopt;
  return number_after(paragraph, "noticed that process rank ");
}

/// Returns the rank that the line of another rank reports as lost (Watchdog::leave).
std::optional<int64_t> lost_rank(std::string_view line) {
  if (line.find("; the job ends here: ") == std::string_view::npos) return std::nullopt;
  return number_after(line, "ashlar: [rank ");
}

/// Returns the rank that reports its own fatal signal in the line (FatalSignals).
std::optional<int64_t> crashed_rank(std::string_view line) {
  const size_t end = line.find("] signal SIG");
  return end == std::string_view::npos ? std::nullopt : number_after(line.substr(0, end), "ashlar: [rank ");
}

/// True for a line in which a rank answers SIGUSR1 (SignalWatch).
bool answers_sigusr1(std::string_view line) { return line.find(" SIGUSR1: ") != std::string_view::npos; }

/// True if the paragraph reports an exit code from 75 to 77. The run has then saved after a signal, and has reported
/// the signal and the save on standard output.
bool tells_of_a_saved_run(std::string_view paragraph) {
  constexpr std::string_view kBefore = "Exit code:";
  const size_t at = paragraph.find(kBefore);
  if (at == std::string_view::npos) return false;
  const size_t digit = paragraph.find_first_of("0123456789", at);
  const std::string_view code = digit == std::string_view::npos ? "" : paragraph.substr(digit, 3);
  return code == "75\n" || code == "76\n" || code == "77\n";
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
      if (!rank_line_.empty()) read_rank_line(part);
    } else {
      line_ += part;
    }
    if (end != std::string_view::npos) {
      if (!passing_) end_of_line();
      passing_ = false;
    } else if (!passing_ && paragraph_.empty() && passes_at_once(line_)) {
      // A line that is not a rule of dashes is forwarded before it is complete.
      if (line_.starts_with(kRankPrefix)) read_rank_line(line_);
      emit(line_);
      line_.clear();
      passing_ = true;
    }
  }
}

void MpirunFilter::end_of_line() {
  std::string line;
  line.swap(line_);
  if (line.starts_with(kRankPrefix)) {  // also inside a paragraph
    read_rank_line(line);
    emit(line);
  } else if (is_rule(std::string_view(line).substr(0, line.size() - 1))) {
    const bool closes = !paragraph_.empty();
    paragraph_ += line;
    if (!closes) return;
    const std::optional<int64_t> killed = killed_rank(paragraph_);
    killed_ = killed_ || killed;
    if (killed || repeats_an_exit_code(paragraph_)) {
      rank_printed_ = rank_printed_ || tells_of_a_saved_run(paragraph_);
      held_.push_back({paragraph_, killed});
    } else {
      emit(paragraph_);
    }
    paragraph_.clear();
  } else if (!paragraph_.empty()) {
    paragraph_ += line;
  } else if (!line.starts_with(kEventLoop) && !line.starts_with(kForwarding)) {
    emit(line);
  }
}

/// Handles a part of a line that a rank has printed.
void MpirunFilter::read_rank_line(std::string_view part) {
  rank_printed_ = true;
  rank_line_ += part;
  if (!part.ends_with('\n')) return;
  if (const auto lost = lost_rank(rank_line_)) {
    lost_.push_back(*lost);
    more_lost_ = more_lost_ || rank_line_.find(" more lost;") != std::string::npos;
  }
  if (const auto crashed = crashed_rank(rank_line_)) lost_.push_back(*crashed);
  acknowledged_ = acknowledged_ || answers_sigusr1(rank_line_);
  rank_line_.clear();
}

void MpirunFilter::finish(bool asked_to_end) {
  for (const Held& held : held_) {
    const bool repeats = asked_to_end  ? true
                         : held.killed ? (more_lost_ || std::ranges::find(lost_, *held.killed) != lost_.end())
                                       : rank_printed_;
    if (!repeats) emit(held.paragraph);
  }
  emit(paragraph_);
  emit(line_);
  held_.clear();
  paragraph_.clear();
  line_.clear();
}

}  // namespace ashlar::launch
