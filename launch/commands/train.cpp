#include "launch/commands/train.h"

#include "data/batch_stream.h"
#include "kernels/cpu/cpu_info.h"
#include "launch/commands/arguments.h"
#include "launch/training/trainer.h"
#include "launch/world.h"

namespace ashlar::launch {

const char* const kTrainHelp =
    "ashlar train CONFIG [section.key=value ...] [--restart]\n"
    "\n"
    "Trains the model of a TOML file. A run owns one directory (run.dir): config.toml, metrics.jsonl and "
    "checkpoints/.\n"
    "When it holds a checkpoint, the run continues from the newest good one, to the bit as if it had never stopped.\n"
    "\n"
    "  section.key=value   overrides a key of the file; `ashlar explain all` lists every key\n"
    "  --restart           begin anew: an existing run directory is renamed to DIR.old-1 first\n"
    "\n"
    "SIGTERM, SIGINT and SIGUSR1 save a checkpoint and exit with 76, 77 and 75; the same command then continues.\n";

int run_train_command(std::span<const std::string> words, const training::SignalWatch& signals, Log& log) {
  training::MemoryLedger memory;
  Arguments arguments("train", words);
  const bool restart = arguments.flag("--restart");
  std::vector<std::string> files = arguments.positionals();
  const std::vector<std::string> overrides = take_overrides(files);
  if (files.size() != 1)
    throw input_error("train", "expected one configuration file, got ", files.size(),
                      "; usage: ashlar train CONFIG [section.key=value ...]");

  const World world = world_from_environment();
  widen_affinity(world, log);
  config::RawConfig raw = config::read_config(files[0], overrides);
  config::Facts facts{
      .ranks = world.ranks, .local_ranks = world.local_ranks, .hardware_threads = cpu::detect_cpu().cores};
  std::vector<data::WeightedDataset> datasets;
  for (const auto& source : raw.data_sources()) {
    try {
      datasets.push_back({std::make_unique<data::TokenDataset>(source.path), source.weight});
      if (!facts.dataset_vocab_size) facts.dataset_vocab_size = datasets.back().dataset->tokenizer().vocab_size();
    } catch (const Error& error) {
      if (error.code() != ExitCode::kInput) throw;
      raw.add_error(error.what());
    }
  }
  const config::Resolved resolved = config::resolve(raw, facts);
  if (restart) {
    const auto aside = training::RunDirectory::set_aside(resolved.config.run.dir);
    if (!aside.empty()) log.info(str_cat("the earlier run is now ", aside.string()));
  }
  training::Trainer trainer(resolved, std::move(datasets), signals, std::move(memory), log);
  return static_cast<int>(trainer.run());
}

}  // namespace ashlar::launch
