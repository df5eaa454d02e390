#include "launch/commands/commands.h"

#include <algorithm>
#include <functional>
#include <iostream>
#include <span>

#include "core/base/error.h"
#include "launch/commands/train.h"
#include "launch/config/schema.h"

namespace ashlar::launch {

namespace {

struct Command {
  const char* name;
  const char* summary;
  const char* help;  ///< null: the command prints its own
  std::function<int(std::span<const std::string>)> run;
};

std::vector<Command> commands(const training::SignalWatch& signals, Log& log) {
  return {
      {"train", "train the model of a configuration file; continues where it stopped", kTrainHelp,
       [&](std::span<const std::string> words) { return run_train_command(words, signals, log); }},
  };
}

void print_overview(const std::vector<Command>& all) {
  std::cout << "ashlar " << "0.1.0" << ": pretraining of decoder-only transformers\n\nusage: ashlar COMMAND ...\n\n";
  for (const Command& c : all) std::cout << "  " << c.name << std::string(12 - std::string(c.name).size(), ' ') << c.summary << "\n";
  std::cout << "\nashlar COMMAND --help says more. Exit codes: 0 done, 2 input, 3 damaged data, 4 non-finite, 5 peer lost,\n"
               "6 memory or disk, 70 bug, 75 SIGUSR1, 76 SIGTERM, 77 SIGINT.\n";
}

bool asks_for_help(const std::string& word) { return word == "--help" || word == "-h" || word == "help"; }

}  // namespace

int run_command(const std::vector<std::string>& words, const training::SignalWatch& signals, Log& log) {
  const std::vector<Command> all = commands(signals, log);
  if (words.empty() || asks_for_help(words[0])) {
    print_overview(all);
    return words.empty() ? static_cast<int>(ExitCode::kInput) : 0;
  }
  if (words[0] == "--version") {
    std::cout << "ashlar 0.1.0\n";
    return 0;
  }
  const auto found = std::find_if(all.begin(), all.end(), [&](const Command& c) { return c.name == words[0]; });
  if (found == all.end()) {
    const auto nearest = std::min_element(all.begin(), all.end(), [&](const Command& a, const Command& b) {
      return config::edit_distance(a.name, words[0]) < config::edit_distance(b.name, words[0]);
    });
    throw input_error("ashlar", "unknown command ", words[0], "; did you mean ", nearest->name, "? ashlar --help lists all");
  }
  const std::span<const std::string> rest(words.data() + 1, words.size() - 1);
  if (found->help != nullptr && std::any_of(rest.begin(), rest.end(), asks_for_help)) {
    std::cout << found->help;
    return 0;
  }
  return found->run(rest);
}

}  // namespace ashlar::launch
