#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/io/atomic_file.h"
#include "launch/commands/arguments.h"
#include "launch/commands/session.h"
#include "launch/commands/subcommands.h"
#include "launch/runs/curve.h"

namespace ashlar::launch {

const char* const kPlotHelp =
    "ashlar plot RUN... [--key loss] [--x step|tokens|time] [--smooth N] [--log] [--ascii] [--svg FILE]\n"
    "\n"
    "A metric of runs over steps, tokens, or the time of the steps (without validation and saves), in 80x24 "
    "characters.\n"
    "Validation losses are marked. --key: any number of metrics.jsonl, such as grad_norm, lr, tokens_per_sec or, with\n"
    "log.stats_every, stats/blocks.0/output_rms. --smooth N: means of the last N points. --log: logarithmic values.\n"
    "--ascii: no Braille patterns. --svg FILE writes a standalone SVG file instead.\n";

int run_plot_command(Words words, Session& session) {
  Arguments arguments("plot", words);
  runs::CurveOptions options;
  options.key = arguments.option("--key").value_or("loss");
  options.x = arguments.choice<runs::XAxis>("--x", runs::XAxis::kStep);
  options.smooth = arguments.integer("--smooth", 1, 1, 1'000'000);
  options.log = arguments.flag("--log");
  const bool ascii = arguments.flag("--ascii");
  const std::optional<std::string> svg = arguments.option("--svg");
  const std::vector<std::string> paths = arguments.positionals();
  if (paths.empty() || paths.size() > 26)
    throw input_error("plot", "expected 1 to 26 run directories, got ", paths.size(), "; usage: ashlar plot RUN...");
  std::vector<runs::Curve> curves;
  std::set<std::string> names;
  for (const std::string& path : paths) {
    const runs::RunFolder run = runs::read_run(path);
    for (const std::string& problem : run.problems)
      session.log.warn(str_cat("[runs] ", printable(path), ": ", problem));
    curves.push_back(runs::curve_of(run, options));
    if (!names.insert(curves.back().name).second) curves.back().name = path;
    curves.back().name = escaped(curves.back().name, 60);
  }
  const std::string x_title = runs::axis_title(options.x);
  if (svg) {
    io::write_file_atomically(*svg,
                              runs::draw_svg(curves, {.y_title = options.key, .x_title = x_title, .log = options.log}));
    session.log.info(str_cat("wrote ", printable(*svg)));
    return 0;
  }
  session.out << runs::draw_in_terminal(
      curves, {.y_title = options.key, .x_title = x_title, .ascii = ascii, .log = options.log});
  return 0;
}

}  // namespace ashlar::launch
