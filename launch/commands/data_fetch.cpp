#include <ostream>

#include "core/base/printable.h"
#include "launch/commands/arguments.h"
#include "launch/commands/session.h"
#include "launch/commands/subcommands.h"
#include "launch/commands/task_setup.h"
#include "launch/tasks/fetch.h"

namespace ashlar::launch {

int run_data_fetch(Words words, Session& session) {
  Arguments given("data fetch", words);
  const std::string data = given.option("--task-data").value_or(kTaskData);
  const std::vector<std::string> names = given.positionals();
  if (names.empty())
    throw input_error("data fetch", "expected `list` or names of tasks, got nothing; see `ashlar data fetch list`");
  if (names.size() == 1 && names[0] == "list") {
    for (const std::string& line : tasks::task_list(data)) session.out << on_one_line(line) << "\n";
    return 0;
  }
  std::vector<const tasks::Task*> chosen;
  for (const std::string& name : names) chosen.push_back(&tasks::task_named("data fetch", name));
  for (const tasks::Task* task : chosen)
    tasks::fetch(*task, data, tasks::run_program(),
                 [&](const std::string& line) { session.out << on_one_line(line) << std::endl; });
  return 0;
}

}  // namespace ashlar::launch
