#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/io/atomic_file.h"
#include "launch/commands/load_arguments.h"
#include "launch/commands/session.h"
#include "launch/commands/subcommands.h"
#include "launch/commands/task_setup.h"
#include "launch/config/run_config.h"
#include "launch/hf/hf_checkpoint.h"
#include "launch/inference/model_loading.h"
#include "launch/tasks/core_bundle.h"
#include "launch/training/clock.h"
#include "parallel/checkpoint/find.h"
#include "parallel/checkpoint/load.h"
#include "parallel/checkpoint/reader.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::launch {

namespace {

struct TaskArguments {
  inference::LoadOptions load;
  tasks::EvaluationOptions tasks;
  int64_t length = 0, batch_size = 0;
  bool with_template = false, json = false;
  std::optional<std::string> samples;
};

TaskArguments parse_task_arguments(std::span<const std::string> words) {
  Arguments arguments("eval", words);
  TaskArguments a;
  a.tasks.names = absl::StrSplit(arguments.option("--tasks").value_or(""), ',');
  a.tasks.data = arguments.option("--task-data").value_or(kTaskData);
  a.tasks.limit = arguments.integer("--limit", 0, 1, INT64_MAX);
  a.tasks.shots = arguments.integer("--shots", 0, 0, 64);
  a.with_template = arguments.flag("--add-bos-token");
  a.json = arguments.flag("--json");
  a.samples = arguments.option("--samples");
  a.length = arguments.integer("--sequence-length", 0, 1, int64_t{1} << 30);
  a.batch_size = arguments.integer("--batch", 0, 1, 1 << 20);
  a.load = take_load_options(arguments, "; usage: ashlar eval CHECKPOINT --tasks NAME,NAME [options]");
  for (const std::string& name : a.tasks.names) tasks::task_named("eval", name);
  if (a.with_template && a.tasks.names == std::vector<std::string>{tasks::kCoreName})
    throw input_error("eval",
                      "--add-bos-token: core has a begin token before each text, and no other template; remove it");
  return a;
}

/// Returns the longest sequence in tokens: the given one, else that of the model, at most kLongest.
int64_t longest_sequence(const TaskArguments& a, const io::Metadata& metadata, const config::RunConfig& stored) {
  constexpr int64_t kLongest = 4096;  // no task has longer texts, and tables and batches grow with the length
  const bool learned = stored.model.pos.type == model::PosType::kLearned;
  int64_t known = learned ? stored.model.pos.max_positions : hf::max_positions(metadata);
  if (known <= 0) known = stored.train.sequence_length;
  if (learned && a.length > known)
    throw input_error("eval", "--sequence-length ", a.length, ": expected at most ", known,
                      ", the size of the model's table of learned positions; lower --sequence-length");
  if (a.length > 0) return a.length;
  if (known <= 0)
    throw input_error("eval", a.load.path.string(),
                      " does not say its longest sequence; give it with --sequence-length T");
  return std::min(known, kLongest);
}

/// Reads the model. Sets the length in `a`, and the path to the checkpoint found.
inference::LoadedModel load_for_tasks(TaskArguments& a, Session& session, Log& log) {
  comm::ControlPlane& ranks = session.bootstrap.control();
  const checkpoint::CheckpointReader reader =
      checkpoint::open_checkpoint(checkpoint::resolve(a.load.path, log, ranks), ranks);
  comm::try_on_all_ranks(ranks, [&] {
    a.length =
        longest_sequence(a, reader.metadata(), config::stored_config(reader.config_toml(), reader.path().string()));
  });
  a.load.path = reader.path();  // so that load_model takes this one, also while the run saves another
  a.load.positions = a.length;
  if (a.load.threads == 0) a.load.threads = session.cores.threads;
  return inference::load_model(a.load, session.bootstrap, log);
}

TaskSetup setup_of(const TaskArguments& a, const inference::LoadedModel& m) {
  if (!m.tokenizer)
    throw input_error("eval", m.checkpoint.string(),
                      " has no tokenizer, which tasks need; import the model again without --no-tokenizer");
  const config::RunConfig stored = config::stored_config(m.config_toml, m.checkpoint.string());
  TaskSetup setup{.options = a.tasks, .tokenizer = *m.tokenizer, .metadata = m.metadata, .max_length = a.length};
  setup.with_template = setup.with_template || a.with_template;
  setup.tokens = std::max<int64_t>(stored.train.micro_batch * stored.train.sequence_length, 8192);
  setup.rows = a.batch_size;
  return setup;
}

nlohmann::ordered_json to_json(const training::TaskScore& score) {
  constexpr double kNormal95 = 1.959964;  // half the width of a normal 95% interval, in standard errors
  nlohmann::ordered_json j;
  j["records"] = score.records;
  for (const training::TaskMetric& m : score.metrics)
    j[m.name] = {{"value", m.value},
                 {"stderr", m.error},
                 {"interval95", {m.value - kNormal95 * m.error, m.value + kNormal95 * m.error}}};
  return j;
}

std::string json_of(const TaskArguments& a, const inference::LoadedModel& m,
                    std::span<const training::TaskScore> scores, double seconds) {
  nlohmann::ordered_json j;
  j["checkpoint"] = m.checkpoint.string();
  j["step"] = m.step;
  j["dtype"] = std::string(name_of(m.engine->options().dtype));
  j["max_length"] = a.length;
  j["shots"] = a.tasks.shots;
  j["seconds"] = seconds;
  for (const training::TaskScore& score : scores) j["tasks"][score.task] = to_json(score);
  return j.dump(2) + "\n";
}

std::string text_of(const inference::LoadedModel& m, std::span<const training::TaskScore> scores, double seconds) {
  std::string text;
  for (const std::string& line : training::to_lines(scores)) text += line + "\n";
  return text + absl::StrFormat("in %.1f s (%s)\n", seconds, m.checkpoint.string());
}

}  // namespace

int run_eval_tasks(Words words, Session& session) {
  comm::ControlPlane& ranks = session.bootstrap.control();
  TaskArguments a;
  comm::try_on_all_ranks(ranks, [&] { a = parse_task_arguments(words); });
  enter(session, watch::Phase::kLoading);
  // With --json, standard output has the object alone.
  Log to_err([&](std::string_view line) { session.err << line << std::endl; });
  Log& log = a.json ? to_err : session.log;
  const inference::LoadedModel m = load_for_tasks(a, session, log);
  if (session.watch) session.watch->watchdog().before_end(m.abort);
  std::string samples;
  if (a.samples) a.tasks.samples = [&](const std::string& line) { samples += line + "\n"; };
  std::unique_ptr<tasks::Evaluation> evaluation;
  comm::try_on_all_ranks(ranks, [&] { evaluation = open_tasks(setup_of(a, m)); });
  check_same_texts(ranks, *evaluation);
  for (const std::string& note : evaluation->notes()) log.info(note);
  const double begin = training::now_sec();
  double told = begin;
  int64_t batch = 0;
  const auto progress = [&](const std::string& task, int64_t done) {
    enter(session, watch::Phase::kValidating, batch++);
    if (const double now = training::now_sec(); now - told > 10) {
      told = now;
      log.info(str_cat(task, ": ", done, " texts done"));
    }
    return int64_t{0};
  };
  const auto scores = evaluation->run(*m.engine, progress).value();
  const double seconds = training::now_sec() - begin;
  comm::try_on_first_rank(ranks, [&] {
    if (a.samples) io::write_file_atomically(*a.samples, samples);
  });
  session.out << (a.json ? json_of(a, m, scores, seconds) : text_of(m, scores, seconds));
  return 0;
}

}  // namespace ashlar::launch
