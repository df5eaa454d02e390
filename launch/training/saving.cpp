#include "launch/training/saving.h"

#include "launch/training/clock.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::training {

Saving::Saving(Run& run, std::string tokenizer_json, std::vector<checkpoint::DataRecord> data)
    : run_(run),
      config_toml_(config::to_toml(run.config)),
      tokenizer_json_(std::move(tokenizer_json)),
      data_(std::move(data)),
      ranking_(run.config.run.dir),
      checkpoints_({.ranks = run.ranks,
                    .log = run.log,
                    .run_dir = run.config.run.dir,
                    .keep = {.newest = run.config.checkpoint.keep,
                             .every = run.config.checkpoint.keep_every,
                             .best = run.config.checkpoint.keep_best},
                    .check_owned = [&run] { run.directory.check_owned(); },
                    .ranked =
                        [this] {
                          std::vector<int64_t> steps;
                          for (const checkpoint::RankedStep& r : ranking_.ranked()) steps.push_back(r.step);
                          return steps;
                        },
                    .saved =
                        [this](int64_t step, const checkpoint::Saved& saved) {
                          complete_.push_back({.step = step, .bytes = saved.bytes, .seconds = saved.seconds});
                        }}) {}

void Saving::loaded(const checkpoint::Found& found) {
  comm::try_on_first_rank(run_.ranks, [&] { ranking_.load(found.step); });
  checkpoints_.loaded(found);
}

void Saving::rank(const checkpoint::RankedStep& step) {
  comm::try_on_first_rank(run_.ranks, [&] {
    run_.directory.check_owned();
    try {
      ranking_.add(step);
    } catch (const Error& error) {  // such as a full disk; the order stays in memory
      run_.log.warn(str_cat("the order of the best checkpoints is not stored: ", error.what()));
    }
  });
}

std::vector<checkpoint::RankedStep> Saving::best() const {
  std::vector<checkpoint::RankedStep> best = ranking_.saved();
  if (std::ssize(best) > run_.config.checkpoint.keep_best)
    best.resize(static_cast<size_t>(run_.config.checkpoint.keep_best));
  return best;
}

std::string Saving::kept(const std::string& key) const {
  const auto found = metadata_.find(key);
  return found != metadata_.end() ? found->second : "";
}

int64_t Saving::reserve() {
  const int64_t bytes = checkpoints_.reserve(run_.ctx(), run_.engine->store(), *run_.engine->optimizer());
  if (!checkpoints_.copies_beside_host())
    run_.log.warn(str_cat("the system did not lock the ", human_bytes(bytes),
                          " that checkpoints are copied to, so training waits for each copy; raise the limit of locked "
                          "memory (ulimit -l unlimited)"));
  return bytes;
}

checkpoint::SaveArgs Saving::args(const Progress& progress) {
  return {.ranks = run_.ranks,
          .run_dir = run_.directory.path(),
          .store = run_.engine->store(),
          .optimizer = run_.engine->optimizer(),
          .state = {.step = progress.step,
                    .position_samples = progress.step * run_.config.train.global_batch,
                    .tokens = progress.tokens,
                    .seed = static_cast<uint64_t>(run_.config.run.seed),
                    .philox_step = static_cast<uint64_t>(progress.step)},
          .config_toml = config_toml_,
          .tokenizer_json = tokenizer_json_,
          .metadata = metadata_,
          .data = data_,
          .check = [this] { run_.directory.check_owned(); },
          .committed = [this, step = progress.step] { run_.directory.record_committed(step); }};
}

void Saving::enter() {
  run_.signals.enter(watch::StopPoint::kSave);
  run_.recorder().enter(watch::Phase::kSaving);
}

void Saving::leave() { run_.signals.enter(watch::StopPoint::kStep); }

double Saving::save(const Progress& progress) {
  const double begin = now_sec();
  enter();
  run_.engine->check_state(progress.step);
  run_.engine->update_after(checkpoints_.begin(run_.ctx(), args(progress)));
  leave();
  return (now_sec() - begin) * 1e3;
}

void Saving::save_last(const Progress& progress) {
  enter();
  if (!checkpoints_.has(progress.step)) run_.engine->check_state(progress.step);
  checkpoints_.finish(run_.ctx(), args(progress));
  leave();
}

}  // namespace ashlar::training
