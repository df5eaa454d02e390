#include "launch/commands/load_arguments.h"

namespace ashlar::launch {

inference::LoadOptions take_load_options(Arguments& arguments, const char* usage) {
  inference::LoadOptions load;
  load.dtype = arguments.option("--dtype");
  load.threads = arguments.integer("--threads", 0, 0, 4096);
  load.mesh.tensor = arguments.integer("--tensor", 0, 0, 65536);
  load.mesh.pipeline = arguments.integer("--pipeline", 0, 0, 65536);
  load.mesh.expert = arguments.integer("--expert", 0, 0, 65536);
  std::vector<std::string> paths = arguments.positionals();
  load.device = take_device(arguments.command(), paths);
  arguments.expect(paths, 1, "one checkpoint or run directory", usage);
  load.path = paths[0];
  return load;
}

}  // namespace ashlar::launch
