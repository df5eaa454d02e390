#include "launch/commands/eval.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "absl/strings/str_format.h"
#include "data/batch_stream.h"
#include "launch/commands/arguments.h"
#include "launch/config/run_config.h"
#include "launch/training/model_loading.h"

namespace ashlar::launch {

const char* const kEvalHelp =
    "ashlar eval CHECKPOINT [options]\n"
    "\n"
    "Mean loss of a checkpoint, or of a run directory's newest checkpoint, on a validation part.\n"
    "\n"
    "  --data DIR             dataset (default: the one the run was trained on)\n"
    "  --sequence-length T    default: as trained\n"
    "  --batch B              sequences at once (default: as trained)\n"
    "  --batches N            default 0: the whole part\n"
    "  --dtype T              bf16, fp32 or fp64 (default: as trained)\n"
    "  --threads N            default: all cores\n";

int run_eval_command(std::span<const std::string> words, Log& log) {
  Arguments arguments("eval", words);
  const auto data_dir = arguments.option("--data");
  const auto dtype = arguments.option("--dtype");
  const int64_t length = arguments.integer("--sequence-length", 0, 0, int64_t{1} << 30);
  const int64_t batch_size = arguments.integer("--batch", 0, 0, 1 << 20);
  const int64_t batches = arguments.integer("--batches", 0, 0, INT64_MAX);
  const int64_t threads = arguments.integer("--threads", 0, 0, 4096);
  const std::vector<std::string> paths = arguments.positionals();
  if (paths.size() != 1)
    throw input_error("eval", "expected one checkpoint or run directory, got ", paths.size(),
                      "; usage: ashlar eval CHECKPOINT [options]");

  training::LoadedModel m =
      training::load_model({.path = paths[0], .dtype = dtype, .threads = threads, .positions = length}, log);
  const config::RunConfig stored = config::resolve(config::parse_config(m.config_toml, m.checkpoint.string(), {}),
                                                   {.purpose = config::Purpose::kModel})
                                       .config;
  const model::ModelConfig& config = m.engine->options().model;
  const std::string path = data_dir ? *data_dir : stored.data.sources.empty() ? "" : stored.data.sources.front().path;
  if (path.empty())
    throw input_error("eval", m.checkpoint.string(), " names no dataset (an import); give one with --data DIR");
  const int64_t T = length > 0 ? length : stored.train.sequence_length;
  const int64_t B = batch_size > 0 ? batch_size : std::max<int64_t>(stored.train.micro_batch, 1);
  if (T <= 0)
    throw input_error("eval", m.checkpoint.string(),
                      " names no sequence length (an import); give one with --sequence-length T");
  if (config.pos.type == model::PosType::kLearned && T > config.pos.max_positions) {
    throw input_error("eval", "--sequence-length ", T, ": the model has learned positions for ",
                      config.pos.max_positions, "; give at most that");
  }
  data::ValidationStream stream(
      path,
      {.sequence_length = T,
       .micro_batch = B,
       .documents = {.mask = stored.data.document_mask, .restart_positions = stored.data.restart_positions},
       .vocab_size = config.vocab_size},
      batches);
  if (m.tokenizer && m.tokenizer->hash() != stream.dataset().tokenizer().hash()) {
    throw input_error("eval", "the model was trained with tokenizer ", m.tokenizer->identity(), " (",
                      m.tokenizer->hash(), "), ", path, " is made with ", stream.dataset().tokenizer().identity(), " (",
                      stream.dataset().tokenizer().hash(), "); build the dataset with the model's tokenizer");
  }
  const auto begin = std::chrono::steady_clock::now();
  LossStats stats;
  data::Batch batch;
  training::DeviceBatch slot;
  while (stream.next(batch)) {
    slot.upload(m.engine->ctx(), batch);
    m.engine->evaluate(slot, stats);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const double loss = stats.loss / static_cast<double>(std::max<int64_t>(stats.valid, 1));
  log.info(absl::StrFormat("val_loss %.6f  perplexity %.3f  over %d tokens of %s in %.1f s (%s)", loss, std::exp(loss),
                           stats.valid, path, seconds, m.checkpoint.string()));
  return 0;
}

}  // namespace ashlar::launch
