#include "launch/commands/hostfile.h"

#include <algorithm>
#include <array>
#include <map>
#include <sstream>
#include <system_error>

#include "core/base/error.h"
#include "core/base/printable.h"

namespace ashlar::launch {

namespace {

constexpr std::array<std::string_view, 3> kSlots = {"slots", "count", "cpu"};
constexpr std::array<std::string_view, 8> kMost = {"max_slots", "max-slots", "slots_max", "slots-max",
                                                   "max_cpu",   "max-cpu",   "cpu_max",   "cpu-max"};
constexpr std::array<std::string_view, 6> kPassed = {"username", "user_name",         "user-name",
                                                     "boards",   "sockets_per_board", "cores_per_socket"};

template <size_t n>
bool is_one_of(std::string_view word, const std::array<std::string_view, n>& words) {
  return std::ranges::find(words, word) != words.end();
}

struct Machine {
  int64_t mentions = 0, slots = 0;
  bool counted = false;
};

/// The place of a line in the file, for error messages.
struct Line {
  std::string_view file;
  int64_t number = 0;

  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    throw input_error("launch", "--hostfile ", printable(file), ", line ", number, ": ", parts...);
  }
};

/// Returns a line without its comment, and with `slots = 2` written as `slots=2`.
std::string stripped(std::string text) {
  text.resize(std::min({text.size(), text.find('#'), text.find("//")}));
  std::string joined;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool blank = text[i] == ' ' || text[i] == '\t';
    const size_t next = text.find_first_not_of(" \t", i);
    const bool around = blank && ((next != std::string::npos && text[next] == '=') || joined.ends_with('='));
    if (!around) joined += text[i];
  }
  return joined;
}

void parse_word(const std::string& word, const Line& line, Machine& machine) {
  const size_t equals = word.find('=');
  const std::string key = word.substr(0, equals);
  const bool slots = is_one_of(key, kSlots), most = is_one_of(key, kMost);
  if (equals == std::string::npos || (!slots && !most && !is_one_of(key, kPassed)))
    line.refuse("expected slots=N after the name of a machine, got ", printable(word),
                "; write one machine per line: host slots=8");
  if (!slots && !most) return;
  const int64_t count = count_of(std::string_view(word).substr(equals + 1),
                                 str_cat("--hostfile ", printable(line.file), ", line ", line.number, ", ", key));
  if (most && machine.counted) return;
  if (slots && machine.mentions > 1) line.refuse("slots given twice for one machine; give their sum once");
  machine.slots = count;
  machine.counted = true;
}

}  // namespace

int64_t count_of(std::string_view text, std::string_view what) {
  constexpr int64_t kMostRanks = 1 << 20;
  const auto count = parse_number<int64_t>(text);
  if (count && *count >= 0 && *count <= kMostRanks) return *count;
  throw input_error("launch", what, ": expected a whole number from 0 to ", kMostRanks, ", got ", printable(text));
}

int64_t hostfile_slots(std::string_view text, int64_t cores, std::string_view name, std::string_view this_host) {
  std::map<std::string, Machine> machines;
  std::istringstream stream{std::string(text)};
  Line line{.file = name};
  for (std::string whole; std::getline(stream, whole);) {
    ++line.number;
    if (line.number == 1 && whole.starts_with("\xef\xbb\xbf"))
      line.refuse("a byte order mark, which mpirun reads as part of a name; save the file as UTF-8 without one");
    if (whole.find('\r') != std::string::npos)
      line.refuse(
          "a carriage return (a Windows line end), which mpirun cannot read; sed -i 's/\\r$//' FILE removes it");
    std::istringstream words(stripped(whole));
    std::string host;
    if (!(words >> host)) continue;
    const size_t colon = host.find(':');
    if (colon != std::string::npos && host.find(':', colon + 1) == std::string::npos)  // two colons: an IPv6 address
      line.refuse("expected the name of a machine, got ", printable(host), "; write ", escaped(host.substr(0, colon)),
                  " slots=", escaped(host.substr(colon + 1)));
    if (host.find_first_of(",=^") != std::string::npos)
      line.refuse("expected the name of a machine, got ", printable(host),
                  "; write one machine per line: host slots=8");
    host = host.substr(host.find('@') + 1);
    const bool here = host == "localhost" || host == "127.0.0.1" || host == this_host;
    Machine& machine = machines[here ? "localhost" : host];
    ++machine.mentions;
    if (machine.mentions > 1) machine.slots = machine.counted ? machine.slots + 1 : machine.mentions;
    for (std::string word; words >> word;) parse_word(word, line, machine);
    machine.counted = machine.counted || machine.mentions > 1;
  }
  int64_t slots = 0;
  for (const auto& [host, machine] : machines) slots += machine.counted ? machine.slots : cores;
  if (machines.empty())
    throw input_error("launch", "--hostfile ", printable(name),
                      " contains no machine; write one per line: host slots=8");
  return slots;
}

}  // namespace ashlar::launch
