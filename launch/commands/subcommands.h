#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

/// The subcommands, with their help texts, for the table in commands.cpp. `words` are the words after the command's
/// name. Results go to Session::out, progress and warnings to Session::err. Each function returns the exit code or
/// throws Error, which main prints. The table also says whether a function is called by rank 0 alone or by all ranks.
namespace ashlar::launch {

struct Session;  // session.h
using Words = std::span<const std::string>;

/// A row of a table of subcommands.
struct Subcommand {
  std::string_view name;
  int (*run)(Words words, Session& session);
};
/// For a command that has subcommands itself: runs the subcommand that words[0] names. If `help` is not empty, --help
/// prints it (exit code 0), and a call without words prints it to Session::err (exit code 2). Throws an input error for
/// an unknown name.
int run_subcommand(std::string_view command, std::initializer_list<Subcommand> all, std::string_view help, Words words,
                   Session& session);

/// `ashlar train CONFIG [section.key=value ...] [--restart]`. All ranks call it.
int run_train_command(Words words, Session& session);
extern const char* const kTrainHelp;

/// `ashlar eval CHECKPOINT --data DIR ...`: prints the loss on a dataset's validation part.
int run_eval_command(Words words, Session& session);
int run_eval_tasks(Words words, Session& session);  ///< eval with --tasks
extern const char* const kEvalHelp;

/// `ashlar generate CHECKPOINT ...`: prints generated text.
int run_generate_command(Words words, Session& session);
extern const char* const kGenerateHelp;

/// `ashlar import HF_DIR OUT [--ignore-key KEY ...]`: converts a Hugging Face model to a checkpoint.
int run_import_command(Words words, Session& session);
extern const char* const kImportHelp;

/// `ashlar upcycle SOURCE OUT moe.experts=N ...`: turns a dense model into one with experts.
int run_upcycle_command(Words words, Session& session);
extern const char* const kUpcycleHelp;

/// `ashlar export CHECKPOINT HF_DIR [--class NAME] [--dtype T] [--max-positions N] [--max-shard-bytes N]`, called by
/// all ranks: converts a checkpoint to a Hugging Face model.
int run_export_command(Words words, Session& session);
extern const char* const kExportHelp;

/// `ashlar data build|inspect|verify ...`. The exit code is 3 when `verify` finds damage.
int run_data_command(Words words, Session& session);
int run_data_fetch(Words words, Session& session);
extern const char* const kDataHelp;

/// `ashlar tokenizer info|encode|decode|train ...`: encode and decode read Session::in.
int run_tokenizer_command(Words words, Session& session);
extern const char* const kTokenizerHelp;

/// `ashlar tokenizer train INPUT... --out DIR [options]`: learns a tokenizer from a corpus.
int run_tokenizer_train(Words words, Session& session);
/// The part of `ashlar tokenizer --help` about train.
extern const char* const kTokenizerTrainHelp;

/// `ashlar zoo`: the built-in published models, the options they use, and the comparison with a configuration.
int run_zoo_command(Words words, Session& session);
extern const char* const kZooHelp;

/// `ashlar check-layout CONFIG [--meshes LAYOUT]...`, called by all ranks: compares a step on layouts with one rank.
int run_check_layout_command(Words words, Session& session);
extern const char* const kCheckLayoutHelp;

/// `ashlar params CONFIG [section.key=value ...]`: prints parameter counts by component. Nothing is allocated.
int run_params_command(Words words, Session& session);
extern const char* const kParamsHelp;

/// `ashlar new --params 124M --data DIR [--like FAMILY] [--tokens N] [-np N] [--device NAME] [--out FILE] [--force]`:
/// writes a complete configuration by published rules (launch/new_config) whose plan fits. Rank 0 writes and prints.
int run_new_command(Words words, Session& session);
extern const char* const kNewHelp;

/// `ashlar plan CONFIG|RUN_DIR [section.key=value ...] [-np N] [--device NAME] [--price P] [--meshes] [--sweep K=A,B]
/// [--json]`: predicts memory and time of a run by a dry run and the rates of a device (launch/plan). Nothing is
/// allocated. Rank 0 prints.
int run_plan_command(Words words, Session& session);
extern const char* const kPlanHelp;

/// `ashlar explain KEY|SECTION|all` and `ashlar explain --markdown`: prints the documentation of configuration keys.
/// Throws an input error for anything else.
int run_explain_command(Words words, Session& session);
extern const char* const kExplainHelp;

/// `ashlar runs [DIR] [--sort name|time|loss] [--json]`: lists the runs in a directory with their losses and states.
int run_runs_command(Words words, Session& session);
extern const char* const kRunsHelp;

/// `ashlar plot RUN... [--key K] [--x step|tokens|time] [--smooth N] [--log] [--ascii] [--svg FILE]`: draws a metric of
/// runs in the terminal, or writes an SVG file.
int run_plot_command(Words words, Session& session);
extern const char* const kPlotHelp;

/// `ashlar compare A B [...] [--json]`: differences of configurations and losses of runs, or of groups of runs that
/// differ only in their seeds.
int run_compare_command(Words words, Session& session);
extern const char* const kCompareHelp;

/// `ashlar report RUN... [-o FILE]`: writes an HTML page about runs.
int run_report_command(Words words, Session& session);
extern const char* const kReportHelp;

/// `ashlar trace RUN [--step N] [-o FILE] [--json]`: a traced step as a Chrome trace, and what it shows.
int run_trace_command(Words words, Session& session);
extern const char* const kTraceHelp;

/// `ashlar launch -np N [--hostfile F | --host a,b] [--dry-run] COMMAND ...`: prints the mpirun command that runs this
/// program on N ranks, and runs it with MpirunChild. Signals must not be blocked. With --dry-run it only prints the
/// command, on standard output. Throws an input error for wrong words, for an unknown COMMAND, and if there is no
/// mpirun.
int run_launch_command(Words words, Session& session);
extern const char* const kLaunchHelp;

/// `ashlar man`: prints the manual page as mdoc (launch/manual).
int run_man_command(Words words, Session& session);
extern const char* const kManHelp;

/// `ashlar completions bash|zsh|fish`: prints a script that completes the words of this program in a shell.
int run_completions_command(Words words, Session& session);
extern const char* const kCompletionsHelp;

/// `ashlar bench gemm [--json] [--device NAME] [--threads N] [--shapes gpt2|char|experts|all] [--dtype
/// fp32|bf16|fp64|all] [--seconds S]`: the three matrix products (forward, dgrad, wgrad) of the linear layers of GPT-2
/// 124M (B=4 T=256), of the character model, and of layers of experts beside the same products with one weight. Each
/// has its time, GFLOP/s and percent of the peak measured in the same run (on a CPU the peak of the FMA or bf16
/// dot-product unit, on a GPU the rate of a large square product). If the device offers several algorithms, the fastest
/// is chosen before the measurement. `--json` writes one object instead of the table.
int run_bench_gemm(Words words, Session& session);

/// `ashlar bench kernels [--device cpu|cuda] [--threads N] [--dtype fp32|bf16|fp64|all] [--shapes gpt2|char|all] [--isa
/// baseline|avx2|avx512] [--only NAME] [--seconds S] [--json]`: every kernel that is neither a matrix product nor
/// attention, at the sizes of GPT-2 124M (N=1024 tokens, model width C=768, FFN width F=3072, vocabulary V=50304, 64
/// experts of which a token has 8; the optimizer updates a quarter of the parameters) and of the character model
/// (N=768, C=128, F=512, V=65, 2 of 8 experts; 0.8M parameters). Each line: median time, GB/s (counting only the bytes
/// that the kernel must read and write), and percent of the memory bandwidth measured in the same run (on a CPU the
/// best of read, copy, triad and update in place, on arrays larger than every cache; on a GPU the rate of the copy
/// kernel). A kernel whose tensors stay in a cache from one call to the next can exceed 100%. `--json` writes one
/// object instead of the table.
int run_bench_kernels(Words words, Session& session);

/// `ashlar bench attention [--threads N] [--dtype fp32|bf16|fp64|all] [--isa baseline|avx2|avx512] [--dropout P]
/// [--seconds S]`: causal attention at the shapes of GPT-2 124M (B=4 T=256 and T=1024) and of the character model,
/// forward and backward, each with its time, GFLOP/s and percent of the FMA peak measured in the same run. bf16 is a
/// storage type here: arithmetic is fp32, and the peak is that of fp32. Flops are counted only for visible (query, key)
/// pairs: with head dimension D, 4 D flops per pair forward and 10 D backward (including the recomputed scores).
int run_bench_attention(Words words, Session& session);

/// `ashlar bench comm [--device cpu|cuda] [--dtype fp32|bf16|fp64] [--largest BYTES] [--seconds S] [--deterministic]
/// [--json]`, on any number of ranks: all_reduce, reduce_scatter, all_gather and all_to_all of a whole vector of 4 KB
/// to 16 MB, and send_recv of messages of that size between pairs. Each line has four numbers. Time: the lower
/// quartile, over repeated calls, of the slowest rank's time. Algorithm bandwidth in GB/s: size / time. Bus bandwidth:
/// B / time, where B is the number of bytes that each of p ranks must at least send (or receive): 2 (p - 1) / p of the
/// size for all_reduce, (p - 1) / p for reduce_scatter, all_gather and all_to_all, the size itself for send_recv. Speed
/// relative to a plain copy: C / time, where C is the time in which all ranks at once copy the same size within their
/// memory. On cuda the buffers are in GPU memory and NCCL runs the operations (`--deterministic`: with the settings of
/// training); on cpu the buffers are in host memory. `--chunk-bytes`, `--in-flight` and `--direct-bytes` set the fields
/// of comm::Tuning. Rank 0 prints.
int run_bench_comm(Words words, Session& session);

/// `ashlar bench device [--out FILE] [--threads N] [--seconds S]`, on any number of ranks of one machine: measures the
/// rates of a rank on the CPU (launch/plan/device.h) while the other ranks measure theirs, and writes the means of all
/// ranks as TOML. All ranks call it; rank 0 writes and prints.
int run_bench_device(Words words, Session& session);

/// `ashlar bench step CONFIG [section.key=value ...] [--steps N] [--warmup N] [--compare KEY=A,B] [--json]`: runs
/// training steps of a configuration on random tokens, without a dataset. Prints the median step time, tokens per
/// second, the share of this machine's peak (measured between the steps), once with the flops of full attention and
/// once with the flops of causal attention, and the communication. --compare prints these numbers for each value of a
/// key, measured in alternating steps. All ranks call it; rank 0 prints.
int run_bench_step(Words words, Session& session);

/// `ashlar bench save CONFIG DIR [section.key=value ...] [--steps N] [--every N] [--json]`: the cost of checkpoints.
/// Runs N training steps on random tokens with a save every few steps, as a trainer does, and N steps without saves.
/// Turns of a few steps with and without a save alternate, so that both see the same state of the machine. Prints the
/// loop time of a step with a save relative to the median loop time of the other steps in turns with saves, and the
/// time of all turns with saves relative to the time of all turns without. The loop time of a step lasts until the next
/// step begins. If a save is still being written when the next save is due, the remaining time is added to the loop
/// time of its step.
///   DIR must be new or empty; the files written there are removed. All ranks call it; rank 0 prints.
int run_bench_save(Words words, Session& session);

/// `ashlar bench tokenizer TOKENIZER FILE... [--seconds S]`: MB of text per second that one thread encodes and decodes.
/// The files are split at line ends into documents of about 10 kB. A round encodes (or decodes) all documents one by
/// one; rounds are repeated for S seconds. Prints the rates of the median, the slowest and the fastest round.
int run_bench_tokenizer(Words words, Session& session);

}  // namespace ashlar::launch
