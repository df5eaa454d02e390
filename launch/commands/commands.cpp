#include "launch/commands/commands.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <new>
#include <span>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/base/printable.h"
#include "core/device/host_limits.h"
#include "launch/commands/bench_attention.h"
#include "launch/commands/bench_comm.h"
#include "launch/commands/bench_gemm.h"
#include "launch/commands/bench_kernels.h"
#include "launch/commands/bench_save.h"
#include "launch/commands/bench_step.h"
#include "launch/commands/bench_tokenizer.h"
#include "launch/commands/data_command.h"
#include "launch/commands/eval.h"
#include "launch/commands/explain.h"
#include "launch/commands/generate.h"
#include "launch/commands/import_export.h"
#include "launch/commands/job_processes.h"
#include "launch/commands/launch.h"
#include "launch/commands/params.h"
#include "launch/commands/session.h"
#include "launch/commands/tokenizer_command.h"
#include "launch/commands/train.h"
#include "launch/commands/zoo.h"
#include "launch/cpu_threads.h"
#include "launch/world.h"
#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::launch {

namespace {

struct Command {
  const char* name;
  const char* summary;
  const char* help;  ///< null: the command prints its own
  std::function<int(std::span<const std::string>)> run;
  bool by_all_ranks = false;     ///< otherwise only rank 0 runs it, and the others wait
  bool handles_signals = false;  ///< the command handles signals; otherwise a signal ends it at once
  const char* memory_advice = "close other programs, or use a machine with more";
};

constexpr const char* kTrainingMemory =
    "use a smaller train.micro_batch, train.sequence_length or model, train.recompute, or more ranks";
constexpr const char* kOneTensorMemory = "use a machine with more memory: the largest tensor must fit";

/// Runs a command; an out-of-memory error gets advice for this command.
int run_with_advice(const Command& command, std::span<const std::string> words) {
  constexpr std::string_view kWhere = "[memory] ";
  const auto advised = [&](const Error& error) {
    return str_cat(std::string_view(error.what()).substr(kWhere.size()), "; ", command.memory_advice);
  };
  try {
    return command.run(words);
  } catch (const comm::AllRanksError& error) {
    if (!std::string_view(error.what()).starts_with(kWhere)) throw;
    throw comm::AllRanksError(error.code(), "memory", advised(error));
  } catch (const Error& error) {
    if (!std::string_view(error.what()).starts_with(kWhere)) throw;
    throw Error(error.code(), "memory", advised(error));
  } catch (const std::bad_alloc&) {
    throw resource_error("memory", "the system refused memory: ", memory_state_text(), "; ", command.memory_advice);
  }
}

const char* const kBenchHelp =
    "ashlar bench gemm [--device NAME] [--shapes gpt2|char|all] [--dtype fp32|bf16|fp64|all] [--threads N] [--json]\n"
    "ashlar bench kernels [--device NAME] | attention [--threads N]\n"
    "ashlar bench comm [--device cpu|cuda] [--dtype fp32|bf16|fp64] [--largest BYTES] [--seconds S] [--json]\n"
    "ashlar bench step CONFIG [section.key=value ...] [--steps N] [--warmup N] [--compare section.key=A,B] [--json]\n"
    "ashlar bench save CONFIG DIR [section.key=value ...] [--steps N] [--every N] [--json]\n"
    "ashlar bench tokenizer TOKENIZER FILE... [--seconds S]\n"
    "\n"
    "Each prints times and the share of this machine's peak (arithmetic or memory) in the same run. comm measures "
    "the\n"
    "ranks that mpirun starts; its options --chunk-bytes, --in-flight and --direct-bytes change how messages are "
    "split.\n"
    "save runs N steps with a checkpoint every few steps, alternating with N without, and prints the cost; DIR "
    "must\nbe new or empty, on the file system where checkpoints will be.\n";

int run_bench(std::span<const std::string> words, Session& session) {
  const std::string what = words.empty() ? "" : words[0];
  std::ostream nowhere(nullptr);  // several ranks measure at once, one prints
  std::ostream& out = world_from_environment().rank == 0 ? std::cout : nowhere;
  std::vector<std::string> rest(words.begin() + (words.empty() ? 0 : 1), words.end());
  const bool kernels = what == "gemm" || what == "kernels" || what == "attention";
  if (kernels && comm::launched_by_mpi() && std::find(rest.begin(), rest.end(), "--threads") == rest.end()) {
    rest.insert(rest.end(), {"--threads", str_cat(session.cores.threads)});  // several ranks share the machine
  }
  if (what == "gemm") return run_bench_gemm(rest, out);
  if (what == "kernels") return run_bench_kernels(rest, out);
  if (what == "attention") return run_bench_attention(rest, out);
  if (what == "tokenizer") return run_bench_tokenizer(rest, out);
  if (what == "comm") return run_bench_comm(rest, session.bootstrap, session.log, out);
  if (what == "step") return run_bench_step(rest, session, out);
  if (what == "save") return run_bench_save(rest, session, out);
  throw input_error("bench", "expected gemm, kernels, attention, comm, step, save or tokenizer, got ",
                    what.empty() ? "nothing" : what, "; see ashlar bench --help");
}

watch::SignalWatch::Reporter reporter_of(const World& world) {
  // The time in which the watchdog detects a lost rank. It is longer if ranks run on several machines.
  const std::chrono::milliseconds patience(world.ranks == 1 ? 0 : world.local_ranks == world.ranks ? 300 : 850);
  const bool resent = std::getenv(JobProcesses::kVariable) != nullptr;
  return {.rank = world.rank, .ranks = world.ranks, .host = world.host, .patience = patience, .resent = resent};
}

const Command& find_command(const std::vector<Command>& all, const std::string& name) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Command& c) { return c.name == name; });
  if (found != all.end()) return *found;
  std::vector<std::string> names;
  for (const Command& command : all) names.emplace_back(command.name);
  const std::string nearest = nearest_word(name, names);
  throw input_error("ashlar", "unknown command ", printable(name),
                    nearest.empty() ? "" : str_cat("; did you mean ", nearest, "?"), nearest.empty() ? "; " : " ",
                    "see ashlar --help");
}

std::vector<Command> command_table(Session& session) {
  Log& log = session.log;
  return {
      {"train", "train the model of a configuration file; continues where it stopped", kTrainHelp,
       [&](std::span<const std::string> words) { return run_train_command(words, session); }, true, true,
       kTrainingMemory},
      {"eval", "loss of a checkpoint on a validation part", kEvalHelp,
       [&](std::span<const std::string> words) { return run_eval_command(words, session); }, true, false,
       "use a smaller --batch or --sequence-length, --dtype bf16, or more ranks"},
      {"generate", "text from a checkpoint", kGenerateHelp,
       [&](std::span<const std::string> words) { return run_generate_command(words, session); }, true, false,
       "use fewer --tokens, a shorter prompt, --dtype bf16, or more ranks"},
      {"import", "a Hugging Face model as a checkpoint", kImportHelp,
       [&](std::span<const std::string> words) { return run_import_command(words, log); }, false, false,
       kOneTensorMemory},
      {"export", "a checkpoint as a Hugging Face model", kExportHelp,
       [&](std::span<const std::string> words) { return run_export_command(words, session); }, true, false,
       kOneTensorMemory},
      {"data", "build, inspect and verify token datasets", nullptr,
       [](std::span<const std::string> words) { return run_data_command(words, std::cout, std::cerr); }, false, false,
       "use fewer --threads"},
      {"tokenizer", "inspect and train tokenizers; encode and decode text", nullptr,
       [](std::span<const std::string> words) { return run_tokenizer_command(words, std::cin, std::cout, std::cerr); }},
      {"zoo", "published models, their options, and comparison of a configuration with them", kZooHelp,
       [&](std::span<const std::string> words) { return run_zoo_command(words, log); }},
      {"params", "parameter counts and flops of a configuration", kParamsHelp,
       [&](std::span<const std::string> words) { return run_params_command(words, log); }},
      {"explain", "what a configuration key means", commands::kExplainHelp,
       [](std::span<const std::string> words) {
         return commands::explain_command({words.begin(), words.end()});
       }},
      {"bench", "measure kernels and training steps as a share of this machine's peak", kBenchHelp,
       [&](std::span<const std::string> words) { return run_bench(words, session); }, true, false,
       "measure something smaller: --shapes, --largest, train.micro_batch, the model"},
      {"launch", "run a command on many ranks: the mpirun line that works here", kLaunchHelp,
       [&](std::span<const std::string> words) {
         const auto check = [&](const std::string& name) { find_command(command_table(session), name); };
         return run_launch_command(words, check, std::cout);
       }},
  };
}

void print_overview(const std::vector<Command>& all) {
  std::cout << "ashlar "
            << "0.1.0"
            << ": pretraining of decoder-only transformers\n\nusage: ashlar COMMAND ...\n\n";
  for (const Command& c : all)
    std::cout << "  " << c.name << std::string(12 - std::string(c.name).size(), ' ') << c.summary << "\n";
  std::cout
      << "\nashlar COMMAND --help says more. Exit codes: 0 done, 2 input, 3 damaged data, 4 non-finite, 5 peer lost,\n"
         "6 memory or disk, 70 bug, 75 SIGUSR1, 76 SIGTERM, 77 SIGINT.\n";
}

bool is_help(const std::string& word) { return word == "--help" || word == "-h" || word == "help"; }

}  // namespace

bool prints_its_result(const std::vector<std::string>& words) {
  return words.empty() || words[0] != "train" || std::any_of(words.begin(), words.end(), is_help);
}

int run_command(const std::vector<std::string>& words, watch::SignalWatch& signals, comm::Bootstrap& bootstrap,
                Log& log) {
  Session session{.signals = signals, .bootstrap = bootstrap, .log = log, .cores = {}, .watch = nullptr};
  const std::vector<Command> all = command_table(session);
  const World world = world_from_environment();
  const bool first_rank = world.rank == 0;
  if (words.empty() || is_help(words[0])) {
    if (first_rank) print_overview(all);
    return words.empty() ? static_cast<int>(ExitCode::kInput) : 0;
  }
  if (words[0] == "--version") {
    if (first_rank) std::cout << "ashlar 0.1.0\n";
    return 0;
  }
  const Command& found = find_command(all, words[0]);
  const std::span<const std::string> rest(words.data() + 1, words.size() - 1);
  if (found.help != nullptr && std::any_of(rest.begin(), rest.end(), is_help)) {
    if (first_rank) std::cout << found.help;
    return 0;
  }
  if (found.handles_signals) signals.watch(reporter_of(world));
  if (!found.handles_signals) signals.release();
  session.cores = share_cores(world, log);  // before MPI starts threads
  if (!found.handles_signals && !comm::launched_by_mpi()) return run_with_advice(found, rest);
  // At this point the configuration is not known, so the limit is fixed: a minute in which no byte is read is a hang.
  session.watch = watch::watch_ranks(
      bootstrap.control(), signals,
      {.after_seconds = found.handles_signals ? 60.0 : 0, .starting = true, .continues = found.handles_signals});
  if (!found.handles_signals) session.watch->flight_recorder().step(watch::kNoSteps);
  return watch::naming_the_lost(*session.watch, [&] {
    if (found.by_all_ranks) return run_with_advice(found, rest);
    comm::ControlPlane& ranks = bootstrap.control();
    int code = 0;
    comm::try_on_all_ranks(ranks, [&] { code = ranks.rank() == 0 ? run_with_advice(found, rest) : 0; });
    return static_cast<int>(comm::max_of(ranks, static_cast<int64_t>(code)));
  });
}

}  // namespace ashlar::launch
