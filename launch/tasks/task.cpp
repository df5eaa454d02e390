#include "launch/tasks/task.h"

#include <system_error>

#include "core/base/printable.h"
#include "core/base/strings.h"

namespace ashlar::tasks {

const std::vector<Task>& all_tasks() {
  static const std::vector<Task> tasks = {arc_challenge(), arc_easy(), boolq(),      copa(), core(), hellaswag(),
                                          lambada(),       mmlu(),     openbookqa(), piqa(), sciq(), winogrande()};
  return tasks;
}

const Task& task_named(std::string_view where, std::string_view name) {
  for (const Task& task : all_tasks())
    if (task.name == name) return task;
  throw input_error(where, "task ", printable(name), ": expected one of ", comma_list(all_tasks(), &Task::name));
}

std::filesystem::path folder_of_addresses(const Task& task, const std::filesystem::path& data) {
  return task.source->archive_has_folder ? data : data / task.source->folder;
}

void require_files(const Task& task, const std::filesystem::path& data) {
  for (const std::string_view file : task.files) {
    std::error_code none;
    if (std::filesystem::exists(data / file, none)) continue;
    throw input_error("tasks", task.name, " needs ", printable((data / file).string()),
                      ", which does not exist; `ashlar data fetch ", task.name, " --task-data ",
                      printable(data.string()), "` gets it, or get ", comma_list(task.source->addresses),
                      " (licence: ", task.source->licence, ") and put or unpack it into ",
                      printable(folder_of_addresses(task, data).string()));
  }
}

}  // namespace ashlar::tasks
