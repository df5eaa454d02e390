#include <vector>

#include "core/optim/update_rule.h"
#include "launch/config/schema_model_table.h"
#include "launch/config/schema_words.h"

namespace ashlar::config {
namespace {

using namespace schema_words;

// Conditions of keys. Fields: the condition in words, its test, and the names of the keys that the test reads.
constexpr Condition kFromWeights = {"run.init_from is given",
                                    [](const RunConfig& c) { return c.run.init_from.has_value(); }, "run.init_from"};
constexpr Condition kInterleaved = {
    "mesh.schedule = \"interleaved\"",
    [](const RunConfig& c) { return c.mesh.schedule == pipeline::PipelineSchedule::kInterleaved; }, "mesh.schedule"};
constexpr Condition kOnTasks = {"train.eval_tasks is given",
                                [](const RunConfig& c) { return !c.train.eval_tasks.empty(); }, "train.eval_tasks"};
constexpr Condition kVaries = {"schedule.kind is not constant",
                               [](const RunConfig& c) { return c.schedule.kind != LrScheduleKind::kConstant; },
                               "schedule.kind"};
constexpr Condition kDecays = {"schedule.kind is linear, cosine or wsd",
                               [](const RunConfig& c) {
                                 return c.schedule.kind != LrScheduleKind::kConstant &&
                                        c.schedule.kind != LrScheduleKind::kInvSqrt;
                               },
                               "schedule.kind"};
constexpr Condition kHasEps = {
    "optimizer.kind = \"adamw\"",
    [](const RunConfig& c) { return optim::rule_of(c.optimizer.rule.kind).defaults.eps > 0; }, "optimizer.kind"};
constexpr Condition kNarrowState = {"run.dtype is fp32 or bf16",
                                    [](const RunConfig& c) { return c.run.dtype != DType::kFloat64; }, "run.dtype"};
constexpr Condition kSamples = {"log.sample is given", [](const RunConfig& c) { return c.log.sample.has_value(); },
                                "log.sample"};
// data.restart_positions = false is always accepted; true requires data.document_mask and a pos.type other than none.
constexpr Condition kRestarts = {"data.document_mask = true and pos.type is not none",
                                 [](const RunConfig& c) {
                                   return !c.data.restart_positions ||
                                          (c.data.document_mask && c.model.pos.type != model::PosType::kNone);
                                 },
                                 "data.document_mask|pos.type"};

constexpr SectionDoc kSections[] = {
    {"run", "where and how the program runs"},
    {"model", "sizes of the transformer", Scope::kWeights},
    {"vocab", "the vocabulary", Scope::kWeights},
    {"norm", "normalisation", Scope::kWeights},
    {"block", "how attention and FFN are joined", Scope::kWeights},
    {"bias", "which linears have a bias", Scope::kWeights},
    {"ffn", "the feed-forward layer", Scope::kWeights},
    {"moe", "experts in place of the feed-forward layer", Scope::kWeights},
    {"pos", "position information", Scope::kWeights},
    {"rope", "rotary positions", Scope::kWeights},
    {"attn", "attention", Scope::kWeights},
    {"dropout", "dropout", Scope::kModel},
    {"embed", "the embedding", Scope::kWeights},
    {"head", "the output layer", Scope::kWeights},
    {"loss", "loss terms besides cross-entropy", Scope::kModel},
    {"init", "initial weights", Scope::kModel},
    {"mesh", "how the work is split over ranks"},
    {"train", "steps, batches, evaluation"},
    {"optimizer", "the update of the weights"},
    {"schedule", "the learning rate over the steps"},
    {"data", "the training data"},
    {"checkpoint", "when the run is saved"},
    {"log", "what is logged"},
};

// clang-format off
constexpr KeySpec kProgramKeys[] = {
    // ---- run
    {.section = "run", .key = "dir", .member = MEMBER(run.dir), .need = kDerived,
     .rule = "runs/ and the name of the config file", .example = "\"runs/first\"",
     .doc = "Directory of the run: config.toml, metrics.jsonl, checkpoints. A run found there is resumed."},
    {.section = "run", .key = "seed", .member = MEMBER(run.seed), .fallback = "1", .low = 0, .high = 4294967295.0,
     .fixed = true,
     .doc = "Seed of initial weights, dropout and data order; each random number is a pure function of it."},
    {.section = "run", .key = "init_from", .member = MEMBER(run.init_from), .need = kOptional,
     .example = "\"runs/first/checkpoints/step-1000\"", .fixed = true,
     .doc = "Checkpoint, run directory or import with the initial weights of the run; the optimizer starts fresh. "
            "Model keys that are not given are copied from it; a given one that differs is an error, unless "
            "run.init_change lists it. Absent: random weights."},
    {.section = "run", .key = "init_change", .member = MEMBER(run.init_change), .need = kOptional, .when = kFromWeights,
     .example = "[\"rope.base\"]",
     .doc = "Model keys that may differ from those of run.init_from. Shapes of weights must still agree. A selection "
            "bias of experts that the checkpoint lacks begins at 0."},
    {.section = "run", .key = "device", .member = MEMBER(run.device), .fallback = "cpu", .unsupported = "emulated",
     .instead = "the emulated GPU is part of the tests now; set run.device=cpu",
     .doc = "Device that computes: the CPU or an NVIDIA GPU. Each rank of a machine uses one of its visible GPUs, in "
            "order."},
    {.section = "run", .key = "dtype", .member = MEMBER(run.dtype), .fallback = "bf16", .words = "bf16|fp32|fp64",
     .fixed = true,
     .doc = "Storage of weights and activations. Sums, moments and main gradients are fp32 (fp64 in fp64 runs)."},
    {.section = "run", .key = "threads", .member = MEMBER(run.threads), .need = kDerived,
     .rule = "cores of the machine / ranks on it", .low = 1, .high = 4096, .example = "2", .unit = "threads of a rank",
     .doc = "Compute threads per rank. Results are bitwise equal for an equal number of threads."},

    {.section = "run", .key = "hang_after", .member = MEMBER(run.hang_after), .fallback = "60", .low = 0, .high = kMega,
     .unit = "seconds",
     .doc = "When no rank makes progress for this long beyond the longest step so far, a report shows each rank's "
            "step, action and last operation, and which ranks may be the cause. At least 60 s before the first step. 0 "
            "= never."},
    {.section = "run", .key = "stall_after", .member = MEMBER(run.stall_after), .fallback = "600", .low = 0,
     .high = kMega, .unit = "seconds",
     .doc = "The limit while a rank waits for a file system, if longer than run.hang_after. A stall is reported after "
            "10 s and is not a hang, since most stalls end. 0: the limit is run.hang_after here too."},
    {.section = "run", .key = "hang_action", .member = MEMBER(run.hang_action), .fallback = "stop",
     .doc = "After the report of a hang: stop ends the job with exit code 5, report keeps waiting."},
};

constexpr KeySpec kTrainingKeys[] = {
    // ---- mesh
    {.section = "mesh", .key = "tensor", .member = MEMBER(mesh.tensor), .fallback = "1", .low = 1, .high = 65536,
     .unit = "ranks", .doc = "Tensor parallel size: ranks over which each layer is sharded."},
    {.section = "mesh", .key = "pipeline", .member = MEMBER(mesh.pipeline), .fallback = "1", .low = 1, .high = 65536,
     .unit = "ranks", .doc = "Pipeline parallel size: stages into which the layers are split."},
    {.section = "mesh", .key = "data", .member = MEMBER(mesh.data), .need = kDerived,
     .rule = "ranks / (mesh.tensor * mesh.pipeline)", .low = 1, .high = 65536, .example = "1", .unit = "ranks",
     .doc = "Data parallel size: replicas over which the batch is split."},
    {.section = "mesh", .key = "expert", .member = MEMBER(mesh.expert), .fallback = "1", .low = 1, .high = 4096,
     .unit = "ranks",
     .doc = "Expert parallel size: ranks over which the experts of each layer are divided. Their tokens differ, so it "
            "divides mesh.data; each group of that many replicas sends every token to the ranks of its experts."},
    {.section = "mesh", .key = "expert_reserve", .member = MEMBER(mesh.expert_reserve), .fallback = "1.5", .low = 0,
     .high = 65536, .when = kMoe,
     .doc = "With mesh.expert above 1: before the first step, memory is reserved for a rank whose experts get this many "
            "times their even share of the tokens. So a run that has no room for an uneven batch ends at its start, not "
            "after a day. Experts that get more take more memory then; no token is dropped. 0 reserves none."},
    {.section = "mesh", .key = "sequence_parallel", .member = MEMBER(mesh.sequence_parallel), .fallback = "false",
     .doc = "Sequence parallel: activations between the sharded layers are sharded over the tensor ranks too."},
    {.section = "mesh", .key = "schedule", .member = MEMBER(mesh.schedule), .fallback = "1f1b",
     .words = "gpipe|1f1b|interleaved|zb-h1",
     .doc = "Order of micro-batches in the pipeline. With one stage all orders give the same numbers."},
    {.section = "mesh", .key = "virtual_stages", .member = MEMBER(mesh.virtual_stages), .fallback = "1", .low = 1,
     .high = 1024, .when = kInterleaved, .unit = "chunks of a rank",
     .doc = "Chunks of layers per pipeline rank (virtual pipeline size)."},

    // ---- train
    {.section = "train", .key = "steps", .member = MEMBER(train.steps), .need = Need::kTrain, .low = 1, .high = kBig,
     .example = "1000", .unit = "steps", .doc = "Optimizer steps of the whole run."},
    {.section = "train", .key = "sequence_length", .member = MEMBER(train.sequence_length), .need = Need::kTrain,
     .low = 1, .high = 16 * kMega, .example = "256", .unit = "tokens", .fixed = true,
     .doc = "Tokens per training sequence."},
    {.section = "train", .key = "global_batch", .member = MEMBER(train.global_batch), .need = Need::kTrain, .low = 1,
     .high = 16 * kMega, .example = "16", .unit = "sequences", .fixed = true,
     .doc = "Sequences per step, over all ranks and micro-batches."},
    {.section = "train", .key = "micro_batch", .member = MEMBER(train.micro_batch), .need = kDerived,
     .rule = "train.global_batch / mesh.data", .low = 1, .high = 16 * kMega, .example = "4", .unit = "sequences",
     .doc = "Sequences per forward pass of a rank; gradients are accumulated over the micro-batches."},
    {.section = "train", .key = "recompute", .member = MEMBER(train.recompute), .fallback = "none",
     .doc = "Activations recomputed in backward: nothing, norms and activations, or whole blocks."},
    {.section = "train", .key = "attention", .member = MEMBER(train.attention), .fallback = "auto",
     .doc = "Implementation of attention. cudnn: cuDNN's kernels, on a GPU, in bf16 without document mask and dropout; "
            "an error where unsupported. own: Ashlar's. auto: cuDNN's where supported and in agreement with Ashlar's, "
            "measured before the first step and saved with the run. On a CPU auto is own."},
    {.section = "train", .key = "eval_every", .member = MEMBER(train.eval_every), .fallback = "250", .low = 0,
     .high = kBig, .unit = "steps",
     .doc = "Steps between evaluations. 0: only after the last step, which is always evaluated."},
    {.section = "train", .key = "eval_sequences", .member = MEMBER(train.eval_sequences), .fallback = "512", .low = 0,
     .high = kBig, .unit = "sequences", .kept = true,
     .doc = "Validation sequences per evaluation and dataset: spread evenly over the validation part, the same on any "
            "mesh and with any micro-batch. 0: the whole part."},
    {.section = "train", .key = "eval_batches", .type = kInt, .need = kOptional, .low = 0, .high = kBig,
     .example = "50", .unit = "micro-batches", .older_form_of = "train.eval_sequences",
     .doc = "Older form of eval_sequences = eval_batches * micro_batch * mesh.data. A run keeps its initial number of "
            "sequences."},

    {.section = "train", .key = "eval_tasks", .member = MEMBER(train.eval_tasks), .type = kNameList,
     .need = kOptional, .example = "[\"hellaswag\", \"piqa\"]",
     .doc = "Published tasks on which the model is evaluated, as by `ashlar eval --tasks`; `ashlar data fetch list` has "
            "the names. Their accuracy goes to the terminal, metrics.jsonl and the event files. It does not change what "
            "is trained. Absent: none."},
    {.section = "train", .key = "eval_tasks_every", .member = MEMBER(train.eval_tasks_every), .fallback = "0", .low = 0,
     .high = kBig, .when = kOnTasks, .unit = "steps",
     .doc = "Steps between evaluations on tasks. 0: only after the last step, which is always evaluated."},
    {.section = "train", .key = "eval_tasks_limit", .member = MEMBER(train.eval_tasks_limit), .fallback = "0", .low = 0,
     .high = kBig, .when = kOnTasks, .unit = "records",
     .doc = "Records of each task that are evaluated, its first ones. 0: all."},
    {.section = "train", .key = "eval_tasks_data", .member = MEMBER(train.eval_tasks_data), .fallback = "task-data",
     .when = kOnTasks, .doc = "Folder of the tasks' files, made by `ashlar data fetch`."},

    // ---- optimizer
    {.section = "optimizer", .key = "kind", .member = MEMBER(optimizer.rule.kind), .fallback = "adamw",
     .unsupported = "adam|adafactor", .fixed = true,
     .doc = "The update rule, with decoupled weight decay. lion moves each weight by lr regardless of the gradient's "
            "magnitude, and needs a third to a tenth of adamw's lr."},
    {.section = "optimizer", .key = "lr", .member = MEMBER(optimizer.lr), .need = Need::kTrain, .low = 0, .high = 100,
     .low_open = true, .example = "3e-4", .doc = "Peak learning rate."},
    {.section = "optimizer", .key = "beta1", .member = MEMBER(optimizer.rule.beta1), .need = kDerived,
     .rule = kRuleOfOptimizer, .low = 0, .high = 1, .high_open = true, .example = "0.9", .fixed = true,
     .doc = "adamw: decay of the mean of gradients; lion: weight of the mean in the direction of a step."},
    {.section = "optimizer", .key = "beta2", .member = MEMBER(optimizer.rule.beta2), .type = kNumberOrWord,
     .need = kDerived, .rule = kRuleOfOptimizer, .low = 0, .high = 1, .high_open = true, .unsupported = "1-k^-0.8",
     .example = "0.95", .fixed = true,
     .doc = "adamw: decay of the mean of squared gradients; lion: decay of the mean of gradients."},
    {.section = "optimizer", .key = "eps", .member = MEMBER(optimizer.rule.eps), .need = kDerived,
     .rule = kRuleOfOptimizer, .low = 0, .high = 1, .low_open = true, .when = kHasEps, .example = "1e-8", .fixed = true,
     .doc = "Added to the root of the bias-corrected second moment."},
    {.section = "optimizer", .key = "weight_decay", .member = MEMBER(optimizer.rule.weight_decay), .need = kDerived,
     .rule = kRuleOfOptimizer, .low = 0, .high = 10, .example = "0.1",
     .doc = "Decoupled decay of matrices: a step subtracts lr * weight_decay * w from each weight."},
    {.section = "optimizer", .key = "decay_embeddings", .member = MEMBER(optimizer.rule.decay_embeddings),
     .fallback = "true", .doc = "Apply weight decay to token and position tables too."},
    {.section = "optimizer", .key = "expert_lr_scale", .member = MEMBER(optimizer.rule.expert_lr_scale),
     .fallback = "1", .low = 0, .high = 1000, .low_open = true, .when = kMoe,
     .doc = "Factor on the learning rate of the matrices of routed experts, each of which sees fewer tokens than the "
            "rest of the model."},
    {.section = "optimizer", .key = "state_dtype", .member = MEMBER(optimizer.rule.state_dtype), .fallback = "fp32",
     .when = kNarrowState,
     .doc = "Type of the moments. bf16 halves their memory and that in checkpoints; it is rounded stochastically, with "
            "the same draws on any mesh and after a resume. A resume with the other type converts them."},
    {.section = "optimizer", .key = "clip", .member = MEMBER(optimizer.clip), .fallback = "1.0", .low = 0, .high = 1e9,
     .doc = "Largest global gradient norm; larger gradients are scaled down. 0 is off."},

    // ---- schedule
    {.section = "schedule", .key = "kind", .member = MEMBER(schedule.kind), .fallback = "cosine",
     .unsupported = "multistep",
     .doc = "Shape after the warm-up. wsd stays at the peak and falls linearly over the last decay_steps."},
    {.section = "schedule", .key = "warmup_steps", .member = MEMBER(schedule.warmup_steps), .need = kDerived,
     .rule = "steps / 20, at most 2000", .low = 0, .high = kBig, .example = "100", .unit = "steps", .kept = true,
     .doc = "Steps of linear warm-up: step s < warmup_steps has rate lr * (s + 1) / warmup_steps."},
    {.section = "schedule", .key = "min_ratio", .member = MEMBER(schedule.min_ratio), .fallback = "0.1", .low = 0,
     .high = 1, .when = kVaries, .doc = "Lowest rate, as a share of lr."},
    {.section = "schedule", .key = "decay_steps", .member = MEMBER(schedule.decay_steps), .need = kDerived,
     .rule = "linear, cosine: steps - warmup_steps; wsd: steps / 5", .low = 1, .high = kBig, .when = kDecays,
     .example = "1000", .unit = "steps", .kept = true,
     .doc = "Steps from the peak to the lowest rate. They follow the warm-up; for wsd they are the last steps of the "
            "run."},

    // ---- data
    {.section = "data", .key = "path", .member = MEMBER(data.sources), .need = Need::kTrain, .example = "\"data/text\"",
     .doc = "Dataset directory made by `ashlar data build`, or a mixture: a list of {path = \"...\", weight = 1.0}. A "
            "run that is resumed needs the same tokens, tokenizers and weights; paths may change."},
    {.section = "data", .key = "allow_change", .member = MEMBER(data.allow_change), .fallback = "false",
     .doc = "true: data that differs from the data of the resumed run, or whose tokenizer differs from the tokenizer "
            "of run.init_from, is reported, not refused."},
    {.section = "data", .key = "document_mask", .member = MEMBER(data.document_mask), .fallback = "false",
     .fixed = true,
     .doc = "No attention across documents packed in one sequence; the target after an end of document is ignored."},
    {.section = "data", .key = "restart_positions", .member = MEMBER(data.restart_positions), .fallback = "false",
     .when = kRestarts, .fixed = true,
     .doc = "Positions count from the start of the document instead of the start of the sequence."},

    // ---- checkpoint, log
    {.section = "checkpoint", .key = "every", .member = MEMBER(checkpoint.every), .fallback = "500", .low = 0,
     .high = kBig, .unit = "steps",
     .doc = "Steps between checkpoints. 0: only after the last step, which is always saved."},
    {.section = "checkpoint", .key = "keep", .member = MEMBER(checkpoint.keep), .fallback = "3", .low = 1, .high = 1e6,
     .unit = "checkpoints", .doc = "Number of newest checkpoints that are kept."},
    {.section = "checkpoint", .key = "keep_every", .member = MEMBER(checkpoint.keep_every), .fallback = "0", .low = 0,
     .high = kBig, .unit = "steps",
     .doc = "Checkpoints at multiples of this step are never removed. A multiple of checkpoint.every. 0: none."},
    {.section = "checkpoint", .key = "keep_best", .member = MEMBER(checkpoint.keep_best), .fallback = "0", .low = 0,
     .high = 1e6, .unit = "checkpoints",
     .doc = "Number of checkpoints with the lowest validation loss that are kept beside the newest; they count if their "
            "step was validated (train.eval_every). RUN_DIR@best names the best one in any command."},
    {.section = "log", .key = "every", .member = MEMBER(log.every), .fallback = "1", .low = 1, .high = kBig,
     .unit = "steps", .doc = "Steps between lines on the terminal, whose loss is the mean over the steps since the line before. "
            "metrics.jsonl has every step."},
    {.section = "log", .key = "line", .member = MEMBER(log.line), .fallback = "short",
     .doc = "short: lines of at most 100 columns. full: also tokens, time, memory, wait for data, and a GPU's state."},
    {.section = "log", .key = "stats_every", .member = MEMBER(log.stats_every), .fallback = "0", .low = 0, .high = kBig,
     .unit = "steps",
     .doc = "Steps between rows of statistics in metrics.jsonl: RMS of every weight and its gradient before clipping, "
            "and of the step's residual stream after the embedding and each block; of each layer with experts their "
            "counts, the largest over the mean, how many got no token, and the range of the selection bias. 0 is off."},
    {.section = "log", .key = "trace_steps", .member = MEMBER(log.trace_steps), .need = kOptional, .low = 1, .high = 1e9,
     .example = "[10, 20]", .unit = "steps",
     .doc = "Steps in which every rank records what it does and when, for `ashlar trace`. Steps that a resumed run has "
            "done already are not traced. Absent: none."},
    {.section = "log", .key = "trace_every", .member = MEMBER(log.trace_every), .fallback = "0", .low = 0, .high = kBig,
     .unit = "steps", .doc = "Traces the multiples of this step as well. 0 is off."},
    {.section = "log", .key = "tensorboard", .member = MEMBER(log.tensorboard), .fallback = "true",
     .doc = "Writes an event file into the run directory, which `tensorboard --logdir` of the folder of runs shows."},
    {.section = "log", .key = "sample", .member = MEMBER(log.sample), .need = kOptional,
     .example = "\"Once upon a time\"",
     .doc = "Prompt that the model continues at each validation, for the terminal, events.jsonl and TensorBoard: the text "
            "of `ashlar generate --seed SEED`, with run.seed. Not with mesh.sequence_parallel or virtual stages. Absent: "
            "no text."},
    {.section = "log", .key = "sample_tokens", .member = MEMBER(log.sample_tokens), .fallback = "64",
     .low = 1, .high = 1e6, .when = kSamples, .unit = "tokens", .doc = "Number of tokens that are generated at most."},
    {.section = "log", .key = "verbose", .member = MEMBER(log.verbose), .fallback = "false",
     .doc = "A new run prints its derived values, each with its rule, and the table of parameters, which start.txt of the "
            "run directory has in any case."},
};
// clang-format on

std::vector<KeySpec> all_keys() {
  std::vector<KeySpec> keys(std::begin(kProgramKeys), std::end(kProgramKeys));
  for (KeySpec spec : model_keys()) {
    // Losses of routers and the rate of their bias may change while a run goes on; DeepSeek V3 ends with a rate of 0.
    const bool of_routing = spec.section == std::string_view("moe") && scope_of(spec) == Scope::kModel;
    spec.fixed = spec.name() != "vocab.pad_to" && !of_routing;
    keys.push_back(spec);
  }
  keys.insert(keys.end(), std::begin(kTrainingKeys), std::end(kTrainingKeys));
  return keys;
}

}  // namespace

std::span<const KeySpec> schema() {
  static const std::vector<KeySpec> keys = all_keys();
  return keys;
}
std::span<const SectionDoc> sections() { return kSections; }

}  // namespace ashlar::config
