#include "launch/commands/eval.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "absl/strings/str_format.h"
#include "data/batch_stream.h"
#include "launch/commands/arguments.h"
#include "launch/config/run_config.h"
#include "launch/training/evaluation.h"
#include "launch/training/model_loading.h"
#include "parallel/comm/together.h"

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
    "  --threads N            of each rank (default: the cores of its machine / the ranks there)\n"
    "  --tensor N --pipeline N  under mpirun: ranks that share each layer, stages of layers (default: as trained, or\n"
    "                         whole models); the ranks that remain are replicas that share the data\n";

namespace {

struct EvalArguments {
  training::LoadOptions load;
  std::optional<std::string> data_dir;
  int64_t length = 0, batch_size = 0, batches = 0;
};

EvalArguments parse(std::span<const std::string> words) {
  Arguments arguments("eval", words);
  EvalArguments a;
  a.data_dir = arguments.option("--data");
  a.load.dtype = arguments.option("--dtype");
  a.length = a.load.positions = arguments.integer("--sequence-length", 0, 0, int64_t{1} << 30);
  a.batch_size = arguments.integer("--batch", 0, 0, 1 << 20);
  a.batches = arguments.integer("--batches", 0, 0, INT64_MAX);
  a.load.threads = arguments.integer("--threads", 0, 0, 4096);
  a.load.mesh = {.tensor = arguments.integer("--tensor", 0, 0, 65536),
                 .pipeline = arguments.integer("--pipeline", 0, 0, 65536)};
  const std::vector<std::string> paths = arguments.positionals();
  if (paths.size() != 1)
    throw input_error("eval", "expected one checkpoint or run directory, got ", paths.size(),
                      "; usage: ashlar eval CHECKPOINT [options]");
  a.load.path = paths[0];
  return a;
}

/// The windows that this rank's replica evaluates.
data::ValidationStream open_stream(const EvalArguments& a, const training::LoadedModel& m) {
  const config::RunConfig stored = config::resolve(config::parse_config(m.config_toml, m.checkpoint.string(), {}),
                                                   {.purpose = config::Purpose::kModel})
                                       .config;
  const model::ModelConfig& config = m.engine->options().model;
  const std::string path = a.data_dir                    ? *a.data_dir
                           : stored.data.sources.empty() ? ""
                                                         : stored.data.sources.front().path;
  if (path.empty())
    throw input_error("eval", m.checkpoint.string(), " names no dataset (an import); give one with --data DIR");
  const int64_t T = a.length > 0 ? a.length : stored.train.sequence_length;
  const int64_t B = a.batch_size > 0 ? a.batch_size : std::max<int64_t>(stored.train.micro_batch, 1);
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
       .dp_index = m.mesh->at().data,
       .dp_size = m.mesh->shape().data,
       .documents = {.mask = stored.data.document_mask, .restart_positions = stored.data.restart_positions},
       .vocab_size = config.vocab_size},
      a.batches);
  if (m.tokenizer && m.tokenizer->hash() != stream.dataset().tokenizer().hash()) {
    throw input_error("eval", "the model was trained with tokenizer ", m.tokenizer->identity(), " (",
                      m.tokenizer->hash(), "), ", path, " is made with ", stream.dataset().tokenizer().identity(), " (",
                      stream.dataset().tokenizer().hash(), "); build the dataset with the model's tokenizer");
  }
  return stream;
}

}  // namespace

int run_eval_command(std::span<const std::string> words, Session& session) {
  Log& log = session.log;
  comm::ControlPlane& ranks = session.bootstrap.control();
  EvalArguments a;
  comm::together(ranks, [&] { a = parse(words); });
  if (a.load.threads == 0) a.load.threads = session.cores.threads;
  const training::LoadedModel m = training::load_model(a.load, session.bootstrap, log);
  std::optional<data::ValidationStream> stream;
  comm::together(ranks, [&] { stream.emplace(open_stream(a, m)); });
  for (const std::string& remark : stream->dataset().remarks()) log.warn(remark);
  const auto begin = std::chrono::steady_clock::now();
  const LossStats stats = training::evaluate(*m.engine, *stream).value();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const double loss = stats.loss / static_cast<double>(std::max<int64_t>(stats.valid, 1));
  log.info(absl::StrFormat("val_loss %.6f  perplexity %.3f  over %d tokens of %s in %.1f s (%s)", loss, std::exp(loss),
                           stats.valid, stream->dataset().directory(), seconds, m.checkpoint.string()));
  return 0;
}

}  // namespace ashlar::launch
