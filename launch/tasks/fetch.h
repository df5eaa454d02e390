#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "launch/tasks/task.h"

namespace ashlar::tasks {

/// Returns lines that say of each task where its files are published, their licence, and where they belong.
std::vector<std::string> task_list(const std::filesystem::path& data);

/// Runs a program with these words and returns its exit status; 127 if there is no such program.
using RunProgram = std::function<int(const std::vector<std::string>& words)>;
RunProgram run_program();

/// Downloads the files of a task into its folder of `data` with curl, and unpacks an archive with unzip or tar. `tell`
/// gets each command line before it runs. The folder gets its name when all is there and the number of records is the
/// published one; until then it is in `data`/.fetch.partial, which a failed or later fetch removes. Does nothing but to
/// count the records if the files are there. Throws an input error that says what to fetch by hand if a program is
/// missing or fails, and a damaged-data error for files with another number of records.
void fetch(const Task& task, const std::filesystem::path& data, const RunProgram& run,
           const std::function<void(const std::string&)>& tell);

}  // namespace ashlar::tasks
