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
    "ashlar plot RUN... [--key loss] [--x step|tokens|time] [--smooth N] [--log] [--ascii] [--height N]\n"
    "                [--svg FILE]\n"
    "\n"
    "A metric of runs over steps, tokens, or the time of the steps (without validation and saves). Validation losses\n"
    "are marked. The picture has 80 columns and 22 lines.\n"
    "\n"
    "  --key KEY    a number of metrics.jsonl, such as grad_norm, lr, tokens_per_sec or, with log.stats_every,\n"
    "               stats/blocks.0/output_rms (default: loss)\n"
    "  --x AXIS     step (default), tokens or time\n"
    "  --smooth N   means of the last N points\n"
    "  --log        logarithmic values\n"
    "  --ascii      no Braille patterns\n"
    "  --height N   lines of the picture\n"
    "  --svg FILE   writes a standalone SVG file instead\n";

int run_plot_command(Words words, Session& session) {
  Arguments arguments("plot", words);
  runs::CurveOptions options;
  options.key = arguments.option("--key").value_or("loss");
  options.x = arguments.choice<runs::XAxis>("--x", runs::XAxis::kStep);
  options.smooth = arguments.integer("--smooth", 1, 1, 1'000'000);
  options.log = arguments.flag("--log");
  const bool ascii = arguments.flag("--ascii");
  const int64_t height = arguments.integer("--height", 22, 8, 200);
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
  session.out << runs::draw_in_terminal(curves, {.y_title = options.key,
                                                 .x_title = x_title,
                                                 .height = static_cast<int>(height),
                                                 .ascii = ascii,
                                                 .log = options.log});
  return 0;
}

}  // namespace ashlar::launch
