#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

/// Every subcommand, for the table in commands.cpp, with its help text. `words` are those behind its name. Results go
/// to Session::out, progress and warnings to Session::err. Each returns the exit code, and throws Error, which main
/// prints. Called by rank 0 alone or by all ranks, as the row of the table says.
namespace ashlar::launch {

struct Session;  // session.h
using Words = std::span<const std::string>;

/// A row of a table of subcommands.
struct Subcommand {
  std::string_view name;
  int (*run)(Words words, Session& session);
};
/// For a command that has subcommands itself: runs the one that words[0] names. With a `help` it is printed without
/// words (exit code 2) and for --help. Input error for an unknown name.
int run_subcommand(std::string_view command, std::initializer_list<Subcommand> all, std::string_view help, Words words,
                   Session& session);

/// `ashlar train CONFIG [section.key=value ...] [--restart]`. All ranks call it.
int run_train_command(Words words, Session& session);
extern const char* const kTrainHelp;

/// `ashlar eval CHECKPOINT --data DIR ...`: loss on a dataset's validation part.
int run_eval_command(Words words, Session& session);
extern const char* const kEvalHelp;

/// `ashlar generate CHECKPOINT ...`: text to standard output.
int run_generate_command(Words words, Session& session);
extern const char* const kGenerateHelp;

/// `ashlar import HF_DIR OUT [--ignore-key KEY ...]`: a Hugging Face model as a checkpoint.
int run_import_command(Words words, Session& session);
extern const char* const kImportHelp;

/// `ashlar export CHECKPOINT HF_DIR [--class NAME] [--dtype T] [--max-positions N] [--max-shard-bytes N]`, called by
/// all ranks: a checkpoint as a Hugging Face model.
int run_export_command(Words words, Session& session);
extern const char* const kExportHelp;

/// `ashlar data build|inspect|verify ...`. The exit code is 3 when `verify` finds damage.
int run_data_command(Words words, Session& session);

/// `ashlar tokenizer info|encode|decode|train ...`: encode and decode read Session::in.
int run_tokenizer_command(Words words, Session& session);

/// `ashlar tokenizer train INPUT... --out DIR [options]`: learns a tokenizer from a corpus.
int run_tokenizer_train(Words words, Session& session);
/// The part of `ashlar tokenizer --help` about train.
extern const char* const kTokenizerTrainHelp;

/// `ashlar zoo`: the built-in published models, the options they use, and the comparison with a configuration.
int run_zoo_command(Words words, Session& session);
extern const char* const kZooHelp;

/// `ashlar params CONFIG [section.key=value ...]`: counts by component; nothing is allocated.
int run_params_command(Words words, Session& session);
extern const char* const kParamsHelp;

/// `ashlar explain KEY|SECTION|all` and `ashlar explain --markdown`: prints the schema's text. Input error for anything
/// else.
int run_explain_command(Words words, Session& session);
extern const char* const kExplainHelp;

/// `ashlar launch -np N [--hostfile F | --host a,b] [--dry-run] COMMAND ...`: prints the mpirun command that runs this
/// program on N ranks, and runs it (MpirunChild; no signal may be blocked). With --dry-run the command is the output.
/// Throws input_error for bad words and without mpirun, and that of check_command for an unknown COMMAND.
int run_launch_command(Words words, Session& session);
extern const char* const kLaunchHelp;

/// `ashlar bench gemm [--json] [--device NAME] [--threads N] [--shapes gpt2|char|all]
/// [--dtype fp32|bf16|fp64|all] [--seconds S]`: the three products of the linear layers of GPT-2 124M (B=4 T=256) and
/// of the character model, each with its time, GFLOP/s and percent of the peak measured in the same run (of the FMA or
/// bf16 dot-product unit; on a GPU of a large square product). If a device has a choice of algorithms, the fastest are
/// measured first. `--json` writes one object instead of the table.
int run_bench_gemm(Words words, Session& session);

/// `ashlar bench kernels [--device cpu|cuda] [--threads N] [--dtype fp32|bf16|fp64|all] [--shapes
/// gpt2|char|all] [--isa baseline|avx2|avx512] [--only NAME] [--seconds S] [--json]`: every kernel that is neither a
/// matrix product nor attention, at the sizes of GPT-2 124M (N=1024, C=768, F=3072, V=50304; a flat buffer of a quarter
/// of its parameters for the optimizer) and of the character model (N=768, C=128, F=512, V=65; 0.8M parameters). Each
/// line: median time, GB/s over the bytes that the contract must read and write, and percent of the memory bandwidth
/// measured in the same run (the best of read, copy, triad and update in place, on arrays beyond every cache; of a
/// device the copy kernel's). Tensors that stay in a cache from one call to the next exceed 100%. `--json` writes one
/// object instead of the table.
int run_bench_kernels(Words words, Session& session);

/// `ashlar bench attention [--threads N] [--dtype fp32|bf16|fp64|all] [--isa baseline|avx2|avx512] [--dropout P]
/// [--seconds S]`: causal attention at the shapes of GPT-2 124M (B=4 T=256 and T=1024) and of the character model,
/// forward and backward, each with its time, GFLOP/s and percent of the FMA peak measured in the same run. bf16 is a
/// storage type here: arithmetic, and so the peak, is fp32. Flops count only visible (query, key) pairs: 4 D per pair
/// forward, 10 D backward (including the recomputed scores).
int run_bench_attention(Words words, Session& session);

/// `ashlar bench comm [--device cpu|cuda] [--dtype fp32|bf16|fp64] [--largest BYTES] [--seconds S] [--deterministic]
/// [--json]`, on any number of ranks: all_reduce, reduce_scatter, all_gather and all_to_all of a whole vector of 4 KB
/// to 16 MB, and send_recv of messages of that size between pairs. Each line has: time; algorithm bandwidth in GB/s,
/// the size / time; bus bandwidth, the bytes that each rank must at least send (or receive) / time (2 (p - 1) / p of
/// the size for an all_reduce, (p - 1) / p for reduce_scatter, all_gather and all_to_all); and the share of a plain
/// copy, the time in which all ranks copy the same size in the same memory at once / time. Buffers are in device
/// memory: over NCCL on cuda (`--deterministic` as in training), in host memory on cpu. Times are the lower quartile of
/// the slowest rank's. `--chunk-bytes`, `--in-flight` and `--direct-bytes` set other values of comm::Tuning. Rank 0
/// prints.
int run_bench_comm(Words words, Session& session);

/// `ashlar bench step CONFIG [section.key=value ...] [--steps N] [--warmup N] [--compare KEY=A,B] [--json]`: training
/// steps of a configuration on random tokens, without a dataset: median step time, tokens per second, share of this
/// machine's peak (measured between the steps) with both ways of counting attention, and communication. With --compare
/// the same for each value of a key, in alternating steps. All ranks call it; rank 0 prints.
int run_bench_step(Words words, Session& session);

/// `ashlar bench save CONFIG DIR [section.key=value ...] [--steps N] [--every N] [--json]`: the cost of checkpoints.
/// Runs N training steps on random tokens with a save every few steps, as a trainer does, and N steps without, in
/// alternating turns, so that both see the same state of the machine. Prints the loop time of a step with a save
/// relative to the median of the others, and the time of all steps with saves relative to those without. Loop time is
/// everything from step to step; a step with a save also counts the remaining work of its save when the next one is
/// due.
///   DIR must be new or empty; the files written there are removed. All ranks call it; rank 0 prints.
int run_bench_save(Words words, Session& session);

/// `ashlar bench tokenizer TOKENIZER FILE... [--seconds S]`: MB of text per second that one thread encodes and decodes.
/// The files are split at line ends into documents of about 10 kB, which are encoded one by one, all of them repeatedly
/// for S seconds. Prints the median, the fastest and the slowest round.
int run_bench_tokenizer(Words words, Session& session);

}  // namespace ashlar::launch
