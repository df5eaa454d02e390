#include "launch/commands/subcommands.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_format.h"
#include "data/read/token_dataset.h"
#include "launch/commands/load_arguments.h"
#include "launch/commands/session.h"
#include "launch/config/run_config.h"
#include "launch/inference/model_loading.h"
#include "launch/training/clock.h"
#include "launch/training/datasets.h"
#include "launch/training/terminal_sink.h"
#include "launch/training/validation.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::launch {

const char* const kEvalHelp =
    "ashlar eval CHECKPOINT [run.device=NAME] [options]\n"
    "ashlar eval CHECKPOINT --tasks NAME,NAME... [run.device=NAME] [options]\n"
    "\n"
    "Mean loss of a checkpoint, or of a run directory's newest checkpoint (RUN_DIR@best: the one with the lowest\n"
    "validation loss while it was trained), on a validation part. For a run on a mixture: the loss on each dataset,\n"
    "and their weighted mean. val_bpb, bits per byte of text, compares models with different tokenizers:\n"
    "loss * tokens / (bytes * ln 2).\n"
    "\n"
    "  run.device=NAME        cpu or cuda (default: as trained; the CPU, with a warning, if that is not available)\n"
    "  --data DIR             dataset (default: the datasets of the run's training)\n"
    "  --sequence-length T    default: as trained\n"
    "  --batch B              sequences at once (default: as trained)\n"
    "  --sequences N          sequences of each dataset, spread evenly over its validation part (default 0: all)\n"
    "  --batches N            older form of --sequences: N times --batch\n"
    "  --dtype T              bf16, fp32 or fp64 (default: as trained)\n"
    "  --threads N            threads of each rank (default: cores of the machine / ranks on it)\n"
    "  --tensor N --pipeline N  under mpirun: tensor and pipeline parallel sizes (default: as trained, or\n"
    "                         whole models); the remaining ranks are data parallel replicas\n"
    "  --expert N             expert parallel size: so many of the replicas divide the experts of a layer\n"
    "                         (default: as trained, or 1)\n"
    "\n"
    "With --tasks: accuracy on published tasks, with the prompts and the scores of lm-evaluation-harness. The task\n"
    "named core is CORE, a mean over 22 tasks, as nanochat computes it (launch/tasks/README.md). All names, and where\n"
    "to get their files: `ashlar data fetch list`. Not with --data, --sequences and --batches.\n"
    "\n"
    "  --task-data DIR        folder of the tasks' files (default: task-data)\n"
    "  --limit N              the first N records of each task (core: after its shuffle)\n"
    "  --shots K              K solved examples before each question (mmlu only)\n"
    "  --sequence-length T    longest text; longer ones lose their beginning (default: the model's, at most 4096)\n"
    "  --batch B              texts at once (default: by their length)\n"
    "  --add-bos-token        adds the tokenizer's template before each text (always done for Gemma)\n"
    "  --samples FILE         writes a JSON object for each record: the log probability of each choice\n"
    "  --json                 prints one JSON object (launch/tasks/README.md)\n";

namespace {

struct EvalArguments {
  inference::LoadOptions load;
  std::optional<std::string> data_dir;
  int64_t length = 0, batch_size = 0, sequences = 0, batches = 0;
};

EvalArguments parse(std::span<const std::string> words) {
  Arguments arguments("eval", words);
  EvalArguments a;
  a.data_dir = arguments.option("--data");
  a.length = arguments.integer("--sequence-length", 0, 0, int64_t{1} << 30);
  a.batch_size = arguments.integer("--batch", 0, 0, 1 << 20);
  a.sequences = arguments.integer("--sequences", 0, 0, INT64_MAX);
  a.batches = arguments.integer("--batches", 0, 0, INT64_MAX);
  if (a.sequences > 0 && a.batches > 0)
    throw input_error("eval", "--batches ", a.batches, " and --sequences ", a.sequences,
                      " are both given: expected only one; remove --batches");
  a.load = take_load_options(arguments, "; usage: ashlar eval CHECKPOINT [options]");
  a.load.positions = a.length;
  return a;
}

/// Returns the datasets to evaluate on: the given one, else the datasets of the run.
std::vector<config::DataSource> sources_of(const EvalArguments& a, const config::RunConfig& stored) {
  if (a.data_dir) return {{.path = *a.data_dir, .weight = 1}};
  return stored.data.sources;
}

std::vector<data::WeightedDataset> open_datasets(const std::vector<config::DataSource>& sources,
                                                 const training::SharedManifests& manifests,
                                                 const inference::LoadedModel& m) {
  std::vector<data::WeightedDataset> datasets;
  for (const config::DataSource& s : sources) datasets.push_back({manifests.open(s.path), s.weight});
  if (datasets.empty())
    throw input_error("eval", m.checkpoint.string(), " is an import, which names no dataset; give one with --data DIR");
  return datasets;
}

void check_tokenizers(const inference::LoadedModel& m, const std::vector<data::WeightedDataset>& datasets) {
  for (const auto& d : datasets) {
    const data::Tokenizer& tokenizer = d.dataset->tokenizer();
    if (m.tokenizer && !data::same_tokenizer(*m.tokenizer, tokenizer)) {
      throw input_error("eval", "the model was trained with tokenizer ", m.tokenizer->identity(), " (",
                        m.tokenizer->hash(), "), but ", d.dataset->directory(), " was built with ",
                        tokenizer.identity(), " (", tokenizer.hash(),
                        "); build the dataset with the model's tokenizer");
    }
  }
}

/// Returns the number of sequences per dataset (0: all). Converts the older option --batches.
int64_t sequences_of(const EvalArguments& a, int64_t batch_size, Log& log) {
  if (a.batches == 0) return a.sequences;
  const int64_t sequences = a.batches > INT64_MAX / batch_size ? INT64_MAX : a.batches * batch_size;
  log.info(
      str_cat("--batches ", a.batches, " (older option) times --batch ", batch_size, " means --sequences ", sequences));
  return sequences;
}

/// Opens the validation data of this rank's replica.
training::Validation open_validation(const EvalArguments& a, const inference::LoadedModel& m,
                                     const training::SharedManifests& manifests, Log& log) {
  const config::RunConfig stored = config::stored_config(m.config_toml, m.checkpoint.string());
  const model::ModelConfig& config = m.engine->options().model;
  const int64_t T = a.length > 0 ? a.length : stored.train.sequence_length;
  const int64_t B = a.batch_size > 0 ? a.batch_size : std::max<int64_t>(stored.train.micro_batch, 1);
  const std::vector<data::WeightedDataset> datasets = open_datasets(sources_of(a, stored), manifests, m);
  if (T <= 0)
    throw input_error("eval", m.checkpoint.string(),
                      " is an import, which has no sequence length; give one with --sequence-length T");
  if (config.pos.type == model::PosType::kLearned && T > config.pos.max_positions) {
    throw input_error("eval", "--sequence-length ", T, ": expected at most ", config.pos.max_positions,
                      ", the size of the model's table of learned positions; lower --sequence-length");
  }
  training::log_dataset_warnings(m.mesh->control(), datasets, log);
  std::vector<data::WeightedDataset> read;
  for (const auto& d : datasets) read.push_back({d.dataset->reopened(), d.weight});
  training::Validation validation(
      std::move(read),
      {.sequence_length = T,
       .micro_batch = B,
       .dp_index = m.mesh->index(kSampleAxes),
       .dp_size = m.mesh->size(kSampleAxes),
       .documents = {.mask = stored.data.document_mask, .restart_positions = stored.data.restart_positions},
       .vocab_size = config.vocab_size,
       .rows_multiple = m.mesh->size(Axis::kTensor)},
      sequences_of(a, B, log));
  check_tokenizers(m, datasets);
  if (validation.empty())
    throw input_error("eval", validation.notes().front(),
                      "; at least 2 tokens are needed: build the dataset with a larger",
                      " --validation, or give another dataset with --data DIR");
  for (const std::string& note : validation.notes()) log.info(note);
  return validation;
}

/// Throws the same error on all ranks if a loss is not finite.
void check_finite(const training::ValidationResult& result, const inference::LoadedModel& m) {
  for (const training::SourceLoss& s : result.sources) {
    if (std::isfinite(s.loss)) continue;
    throw comm::AllRanksError(
        ExitCode::kNonFinite, "eval",
        str_cat("the loss of ", printable(m.checkpoint.string()), " on ", printable(s.path), " is ", s.loss,
                ": the weights are finite, but their results in ", name_of(m.engine->options().dtype),
                " are not; try --dtype fp32 or fp64, or another checkpoint"));
  }
}

}  // namespace

int run_eval_command(Words words, Session& session) {
  const auto names_tasks = [](std::string_view word) { return word == "--tasks" || word.starts_with("--tasks="); };
  if (std::ranges::any_of(words, names_tasks)) return run_eval_tasks(words, session);
  Log& log = session.log;
  comm::ControlPlane& ranks = session.bootstrap.control();
  EvalArguments a;
  comm::try_on_all_ranks(ranks, [&] { a = parse(words); });
  if (a.load.threads == 0) a.load.threads = session.cores.threads;
  enter(session, watch::Phase::kLoading);
  const inference::LoadedModel m = inference::load_model(a.load, session.bootstrap, log);
  if (session.watch) session.watch->watchdog().before_end(m.abort);
  std::vector<std::string> paths;
  comm::try_on_all_ranks(ranks, [&] {
    for (const config::DataSource& s : sources_of(a, config::stored_config(m.config_toml, m.checkpoint.string())))
      paths.push_back(s.path);
  });
  const training::SharedManifests manifests(session.bootstrap, paths);
  std::optional<training::Validation> validation;
  comm::try_on_all_ranks(ranks, [&] { validation.emplace(open_validation(a, m, manifests, log)); });
  const double begin = training::now_sec();
  int64_t batch = 0;
  const int64_t rounds = validation->rounds(*m.mesh);
  const auto tell = [&] {
    session.status.show([&] {
      return terminal::Status{.what = "evaluating",
                              .share = static_cast<double>(batch) / static_cast<double>(rounds),
                              .text = absl::StrFormat("%.0f s", training::now_sec() - begin)};
    });
    enter(session, watch::Phase::kValidating, batch++);
    return int64_t{0};
  };
  const training::ValidationResult result = validation->run(*m.engine, tell).value();
  check_finite(result, m);
  const double seconds = training::now_sec() - begin;
  for (const training::UncountedSource& s : result.uncounted) log.info(to_line(s));
  if (result.sources.empty())
    throw comm::AllRanksError(ExitCode::kInput, "eval",
                              "expected a validation part with targets that are not masked, got none, so there is no "
                              "val_loss; give another dataset with --data DIR");
  const int digits = m.engine->options().dtype == DType::kFloat64 ? 14 : 6;  // significant digits
  for (const training::SourceLoss& s : result.sources) {
    if (result.mixture)
      log.info(absl::StrFormat("val_loss %.*f  %s  perplexity %.3f  over %d tokens of %s, weight %g", digits, s.loss,
                               training::bpb_text(s.bits_per_byte()), std::exp(s.loss), s.tokens, s.path, s.weight));
  }
  const std::string of =
      result.mixture ? str_cat(result.sources.size(), " datasets, weighted mean,") : result.sources.front().path;
  log.info(absl::StrFormat("val_loss %.*f  %s  perplexity %.3f  over %d tokens of %s in %.1f s (%s)", digits,
                           result.loss, training::bpb_text(result.bits_per_byte), std::exp(result.loss), result.tokens,
                           of, seconds, m.checkpoint.string()));
  return 0;
}

}  // namespace ashlar::launch
