#include "launch/commands/commands.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <new>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/base/printable.h"
#include "core/device/host_limits.h"
#include "launch/commands/job_processes.h"
#include "launch/commands/session.h"
#include "launch/commands/subcommands.h"
#include "launch/cpu_threads.h"
#include "launch/manual/exit_codes.h"
#include "launch/terminal/terminal.h"
#include "launch/version/version.h"
#include "launch/world.h"
#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::launch {

namespace {

struct Command {
  const char* name;
  const char* summary;
  const char* help;
  int (*run)(Words words, Session& session);
  bool by_all_ranks = false;     ///< otherwise only rank 0 runs it, and the others wait
  bool handles_signals = false;  ///< the command handles signals; otherwise a signal ends it at once
  const char* memory_advice = "close other programs, or use a machine with more memory";
  const char* more_help = "";  ///< follows `help`
  bool prints_help = false;    ///< `run` prints the help itself
};

constexpr const char* kTrainingMemory =
    "use a smaller train.micro_batch, train.sequence_length or model, train.recompute, or more ranks";
constexpr const char* kOneTensorMemory = "use a machine with more memory: the largest tensor must fit";

/// Runs a command. Adds the command's memory_advice to an out-of-memory error.
int run_with_advice(const Command& command, Words words, Session& session) {
  constexpr std::string_view kWhere = "[memory] ";
  const auto advised = [&](const Error& error) {
    return str_cat(std::string_view(error.what()).substr(kWhere.size()), "; ", command.memory_advice);
  };
  try {
    return command.run(words, session);
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
    R"(ashlar bench gemm [--device NAME] [--shapes gpt2|char|experts|all] [--dtype fp32|bf16|fp64|all] [--threads N]
                  [--json]
ashlar bench kernels [--device NAME] [--dtype fp32|bf16|fp64|all] [--shapes gpt2|char|all] [--threads N] [--json]
                  [--isa baseline|avx2|avx512] [--only NAME] [--seconds S]
ashlar bench attention [--dtype fp32|bf16|fp64|all] [--isa baseline|avx2|avx512] [--dropout P] [--threads N]
                  [--seconds S]
ashlar bench comm [--device cpu|cuda] [--dtype fp32|bf16|fp64] [--largest BYTES] [--seconds S] [--json]
                  [--deterministic] [--chunk-bytes BYTES] [--in-flight N] [--direct-bytes BYTES]
ashlar bench step CONFIG [section.key=value ...] [--steps N] [--warmup N] [--compare section.key=A,B] [--json]
ashlar bench save CONFIG DIR [section.key=value ...] [--steps N] [--every N] [--json]
ashlar bench tokenizer TOKENIZER FILE... [--seconds S]
ashlar bench device [--out FILE] [--threads N] [--seconds S]

Each prints times and shares of this machine's peak (arithmetic or memory), measured in the same run. gemm measures
matrix products, attention attention, kernels all other kernels, at the shapes of the named models. step runs training
steps of a configuration on random tokens; it needs no dataset. tokenizer measures how fast files are encoded.
comm measures collectives between ranks (ashlar launch -np 2 bench comm); its options --chunk-bytes, --in-flight and
--direct-bytes change how messages are split.
save runs N steps with a checkpoint every few steps, alternating with N without, and prints the cost; DIR must
be new or empty, on the file system where checkpoints will be.
device measures products by size, attention, kernels, memory and, on several ranks, their link, in about half a minute,
and writes them for `plan` to FILE, by default $XDG_CACHE_HOME/ashlar/device.toml or ~/.cache/ashlar/device.toml. On as
many ranks as the runs to plan will have: ashlar launch -np 2 bench device.
)";

int run_bench(Words words, Session& session) {
  std::vector<std::string> all(words.begin(), words.end());
  const bool kernels = !all.empty() && (all[0] == "gemm" || all[0] == "kernels" || all[0] == "attention");
  if (kernels && comm::launched_by_mpi() && std::ranges::find(all, "--threads") == all.end())
    all.insert(all.end(), {"--threads", str_cat(session.cores.threads)});  // several ranks share the machine
  return run_subcommand("bench",
                        {{"gemm", run_bench_gemm},
                         {"kernels", run_bench_kernels},
                         {"attention", run_bench_attention},
                         {"comm", run_bench_comm},
                         {"device", run_bench_device},
                         {"step", run_bench_step},
                         {"save", run_bench_save},
                         {"tokenizer", run_bench_tokenizer}},
                        "", all, session);
}

watch::SignalWatch::Reporter reporter_of(const World& world) {
  // The time in which the watchdog detects a lost rank. It is longer if ranks run on several machines.
  const std::chrono::milliseconds patience(world.ranks == 1 ? 0 : world.local_ranks == world.ranks ? 300 : 850);
  const bool resent = std::getenv(JobProcesses::kVariable) != nullptr;
  const bool drawn =
      !comm::launched_by_mpi() && terminal::width_of(STDOUT_FILENO) > 0 && terminal::width_of(STDERR_FILENO) > 0;
  return {.rank = world.rank,
          .ranks = world.ranks,
          .host = world.host,
          .patience = patience,
          .resent = resent,
          .erase = drawn ? terminal::kErase : ""};
}

const Command kCommands[] = {
    {"train", "train the model of a configuration file; continues where it stopped", kTrainHelp, run_train_command,
     true, true, kTrainingMemory},
    {"eval", "loss of a checkpoint on a validation part", kEvalHelp, run_eval_command, true, false,
     "use a smaller --batch or --sequence-length, --dtype bf16, or more ranks"},
    {"generate", "text from a checkpoint", kGenerateHelp, run_generate_command, true, false,
     "use fewer --tokens, a shorter prompt, --dtype bf16, or more ranks"},
    {"import", "a Hugging Face model as a checkpoint", kImportHelp, run_import_command, false, false, kOneTensorMemory},
    {"upcycle", "a dense model as a checkpoint of one with experts", kUpcycleHelp, run_upcycle_command, false, false,
     kOneTensorMemory},
    {"export", "a checkpoint as a Hugging Face model", kExportHelp, run_export_command, true, false, kOneTensorMemory},
    {.name = "data",
     .summary = "build, inspect and verify token datasets; fetch evaluation tasks",
     .help = kDataHelp,
     .run = run_data_command,
     .memory_advice = "use fewer --threads",
     .prints_help = true},
    {.name = "tokenizer",
     .summary = "inspect and train tokenizers; encode and decode text",
     .help = kTokenizerHelp,
     .run = run_tokenizer_command,
     .more_help = kTokenizerTrainHelp,
     .prints_help = true},
    {"zoo", "published models, their options, and comparison of a configuration with them", kZooHelp, run_zoo_command},
    {"params", "parameter counts and flops of a configuration", kParamsHelp, run_params_command},
    {"check-layout", "prove that layouts compute what one rank computes", kCheckLayoutHelp, run_check_layout_command,
     true, false, "use a smaller model, train.sequence_length or train.micro_batch: rank 0 holds the whole model"},
    {"new", "a complete configuration for a number of parameters, by published rules", kNewHelp, run_new_command},
    {"plan", "memory and time of a run before it starts, and which mesh", kPlanHelp, run_plan_command},
    {"explain", "what a configuration key means", kExplainHelp, run_explain_command},
    {"runs", "the runs in a directory: model, steps, losses, state", kRunsHelp, run_runs_command},
    {"plot", "curves of runs in the terminal, or as SVG", kPlotHelp, run_plot_command},
    {"compare", "differences of runs: configuration, losses, throughput; intervals over seeds", kCompareHelp,
     run_compare_command},
    {"report", "one HTML page about runs: curves, configurations, events", kReportHelp, run_report_command},
    {"trace", "a step of a run on all ranks: Chrome trace, bubble, overlap, slowest rank", kTraceHelp,
     run_trace_command},
    {"bench", "measure kernels and training steps as a share of this machine's peak", kBenchHelp, run_bench, true,
     false, "measure something smaller: --shapes, --largest, train.micro_batch, the model"},
    {"launch", "run a command on many ranks: the mpirun line that works here", kLaunchHelp, run_launch_command},
    {"man", "the manual page", kManHelp, run_man_command},
    {"completions", "words completed in bash, zsh or fish", kCompletionsHelp, run_completions_command},
};

const Command& find_command(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    if (command.name == name) return command;
    names.emplace_back(command.name);
  }
  const std::string nearest = nearest_word(name, names);
  throw input_error("ashlar", "unknown command ", printable(name),
                    nearest.empty() ? "" : str_cat("; did you mean ", nearest, "?"), nearest.empty() ? "; " : " ",
                    "see ashlar --help");
}

void print_overview(std::ostream& out) {
  out << "ashlar " << version() << ": pretraining of decoder-only transformers\n\nusage: ashlar COMMAND ...\n\n";
  for (const Command& c : kCommands)
    out << "  " << c.name << std::string(14 - std::string(c.name).size(), ' ') << c.summary << "\n";
  out << "\nashlar COMMAND --help says more. Exit codes: ";
  for (const manual::ExitCodeText& row : manual::kExitCodes)
    out << (&row == manual::kExitCodes                         ? ""
            : std::string_view(row.in_short).starts_with("6 ") ? ",\n"
                                                               : ", ")
        << row.in_short;
  out << ".\n";
}

bool is_help(const std::string& word) { return word == "--help" || word == "-h" || word == "help"; }

}  // namespace

std::vector<manual::CommandText> command_texts() {
  std::vector<manual::CommandText> texts;
  for (const Command& c : kCommands)
    texts.push_back({.name = c.name, .summary = c.summary, .help = str_cat(c.help, c.more_help)});
  return texts;
}

void check_command(const std::string& name) { find_command(name); }

int run_subcommand(std::string_view command, std::initializer_list<Subcommand> all, std::string_view help, Words words,
                   Session& session) {
  const bool asked = std::ranges::find(words, "--help") != words.end() || (!words.empty() && words[0] == "-h");
  if (!help.empty() && (words.empty() || asked)) {
    (words.empty() ? session.err : session.out) << help;
    return words.empty() ? static_cast<int>(ExitCode::kInput) : 0;
  }
  const std::string what = words.empty() ? "nothing" : words[0];
  for (const Subcommand& one : all)
    if (one.name == what) return one.run(words.subspan(1), session);
  throw input_error(command, "expected one of ", comma_list(all, &Subcommand::name), ", got ", printable(what),
                    "; see ashlar ", command, " --help");
}

bool prints_its_result(const std::vector<std::string>& words) {
  return words.empty() || words[0] != "train" || std::ranges::any_of(words, is_help);
}

int run_command(const std::vector<std::string>& words, watch::SignalWatch& signals, comm::Bootstrap& bootstrap,
                Log& log, terminal::StatusLine& status) {
  const World world = world_from_environment();
  std::ostream nowhere(nullptr);
  Session session{.signals = signals,
                  .bootstrap = bootstrap,
                  .log = log,
                  .status = status,
                  .in = std::cin,
                  .out = world.rank == 0 ? std::cout : nowhere,
                  .err = std::cerr,
                  .cores = {},
                  .watch = nullptr};
  if (words.empty() || is_help(words[0])) {
    print_overview(session.out);
    return words.empty() ? static_cast<int>(ExitCode::kInput) : 0;
  }
  if (words[0] == "--version") {
    session.out << version_text();
    return 0;
  }
  const Command& found = find_command(words[0]);
  const Words rest(words.data() + 1, words.size() - 1);
  if (!found.prints_help && std::ranges::any_of(rest, is_help)) {
    session.out << found.help;
    return 0;
  }
  if (found.handles_signals) signals.watch(reporter_of(world));
  if (!found.handles_signals) signals.release();
  session.cores = share_cores(world, log);  // before MPI starts threads
  if (!found.handles_signals && !comm::launched_by_mpi()) return run_with_advice(found, rest, session);
  // The configuration is not known yet, so train begins with a fixed limit: one minute without progress is a hang.
  session.watch = watch::watch_ranks(
      bootstrap.control(), signals,
      {.after_seconds = found.handles_signals ? 60.0 : 0, .starting = true, .continues = found.handles_signals});
  if (!found.handles_signals) session.watch->flight_recorder().step(watch::kNoSteps);
  return watch::naming_the_lost(*session.watch, [&] {
    if (found.by_all_ranks) return run_with_advice(found, rest, session);
    comm::ControlPlane& ranks = bootstrap.control();
    int code = 0;
    comm::try_on_first_rank(ranks, [&] { code = run_with_advice(found, rest, session); });
    return static_cast<int>(comm::max_of(ranks, static_cast<int64_t>(code)));
  });
}

}  // namespace ashlar::launch
