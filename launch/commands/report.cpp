#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "core/base/error.h"
#include "core/io/atomic_file.h"
#include "launch/commands/arguments.h"
#include "launch/commands/session.h"
#include "launch/commands/subcommands.h"
#include "launch/runs/report_page.h"
#include "launch/zoo/comparison.h"

namespace ashlar::launch {

const char* const kReportHelp =
    "ashlar report RUN... [-o FILE]\n"
    "\n"
    "Writes one HTML page (default: report.html) about runs, which needs no network: curves of losses, gradient norm,\n"
    "learning rate, throughput, memory, wait for data, saves and expert load over steps, tokens or time; the plan "
    "beside\n"
    "what was measured; samples of text (log.sample); the mesh coordinates of each rank; the configurations with the\n"
    "published models that share a value; the events. Runs can be hidden, curves read under\n"
    "the pointer and shown on a logarithmic scale.\n";

namespace {

/// Says which published models have this value of a key; nothing for keys that the zoo does not compare.
std::string models_with(const std::vector<zoo::Uses>& uses, const std::string& key, const std::string& value) {
  for (const zoo::Uses& of_key : uses) {
    if (of_key.key != key) continue;
    for (const zoo::Use& use : of_key.values) {
      if (use.value != value) continue;
      const auto first = use.ids.begin();
      return str_cat(use.ids.size(),
                     " published: ", absl::StrJoin(first, first + std::min<int64_t>(3, std::ssize(use.ids)), ", "),
                     use.ids.size() > 3 ? ", ..." : "");
    }
    return "no published model";
  }
  return "";
}

}  // namespace

int run_report_command(Words words, Session& session) {
  Arguments arguments("report", words);
  const std::string file = arguments.option("-o").value_or("report.html");
  const std::vector<std::string> paths = arguments.positionals();
  if (paths.empty() || paths.size() > 50)
    throw input_error("report", "expected 1 to 50 run directories, got ", paths.size(),
                      "; usage: ashlar report RUN...");
  std::vector<runs::RunFolder> all;
  for (const std::string& path : paths) all.push_back(runs::read_run(path));
  const std::vector<zoo::Uses> uses = zoo::usage_by_key(zoo::published_models());
  const std::string html =
      runs::report_html({.runs = all, .who = [&](const std::string& key, const std::string& value) {
                           return models_with(uses, key, value);
                         }});
  io::write_file_atomically(file, html);
  session.out << "wrote " << printable(file) << " (" << html.size() / 1000 << " KB)\n";
  return 0;
}

}  // namespace ashlar::launch
