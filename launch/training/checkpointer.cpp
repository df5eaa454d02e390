#include "launch/training/checkpointer.h"

#include "absl/strings/str_format.h"
#include "core/base/error.h"
#include "launch/training/memory.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::training {

using checkpoint::BackgroundSave;

constexpr int kMostFailures = 3;

Checkpointer::Checkpointer(const CheckpointerArgs& args)
    : ranks_(args.ranks),
      log_(args.log),
      saving_(args.ranks),
      retention_(args.run_dir, args.ranks.rank() == 0 ? args.keep : checkpoint::KeepRule()),
      check_owned_(args.check_owned),
      ranked_(args.ranked),
      saved_(args.saved) {}

int64_t Checkpointer::reserve(const Ctx& ctx, const nn::ParameterStore& store, const optim::Optimizer& optimizer) {
  saving_.reserve(ctx, store, &optimizer);
  return saving_.snapshot_bytes();
}

void Checkpointer::loaded(const checkpoint::Found& checkpoint) {
  step_ = checkpoint.step;
  any_ = true;
  retention_.trust(checkpoint);
}

Event* Checkpointer::begin(const Ctx& ctx, const checkpoint::SaveArgs& args) {
  if (has(args.state.step)) return nullptr;
  wait_until_free();
  Event* const copied = saving_.begin(ctx, args, BackgroundSave::From::kCopy);
  step_ = args.state.step;
  return copied;
}

void Checkpointer::wait_until_free() {
  while (!saving_.free()) note(saving_.wait_phase());
}

void Checkpointer::poll(SaveState received) {
  note(saving_.advance(received));
  log_warnings(retention_.poll());
}

void Checkpointer::finish(const Ctx& ctx, const checkpoint::SaveArgs& args) {
  last_ = step_ == args.state.step;  // a save of an earlier step may fail, since the last save follows it
  log_current_save();
  while (!saving_.idle()) note(saving_.wait_phase());
  if (step_ != args.state.step) {
    last_ = true;
    saving_.begin(ctx, args, BackgroundSave::From::kState);
    step_ = args.state.step;
    while (!saving_.idle()) note(saving_.wait_phase());
  }
  log_warnings(retention_.wait());
}

void Checkpointer::log_current_save() {
  if (saving_.idle()) return;
  log_.info(str_cat("the run ends when the current save is complete: ", saving_.path().string(),
                    saving_.free() ? " is being verified" : " is being written and read back"));
}

void Checkpointer::wait() {
  log_current_save();
  while (!saving_.idle()) note(saving_.wait_phase());
  log_warnings(retention_.wait());
}

void Checkpointer::note(const BackgroundSave::Outcome& outcome) {
  if (outcome.saved) {
    failures_ = 0;
    any_ = true;
    log_.info(str_cat("saved ", outcome.saved->path.string(), " (", human_bytes(outcome.saved->bytes), " in ",
                      absl::StrFormat("%.1f", outcome.saved->seconds), " s)"));
    if (saved_) saved_(step_, *outcome.saved);
  }
  const bool first_rank = ranks_.rank() == 0;  // all ranks have the same outcome, so only rank 0 logs it
  if (outcome.damage && first_rank)
    log_.warn(str_cat("the saved checkpoint cannot be read back; older checkpoints are kept: ", *outcome.damage));
  if (outcome.verified) {
    retention_.trust(*outcome.verified);
    retention_.start(outcome.verified->step, ranked_ && first_rank ? ranked_() : std::vector<int64_t>());
  }
  if (!outcome.failure) return;
  // If another run has taken over the run directory, check_owned_ throws and the save is not retried.
  comm::try_on_all_ranks(ranks_, [&] {
    if (first_rank && check_owned_) check_owned_();
  });
  ++failures_;
  step_ = -1;
  const std::string text = outcome.failure->what();
  if (last_ || failures_ == kMostFailures) {
    comm::try_on_all_ranks(ranks_, [&] {
      throw resource_error("checkpoint", last_ ? "the last save failed" : "three saves in a row failed", ": ", text,
                           any_ ? "; earlier checkpoints are kept" : "; no checkpoint was saved before");
    });
  }
  if (!first_rank) return;
  log_.warn(str_cat("a save failed; retrying at the next interval (", failures_, " of ", kMostFailures,
                    " in a row): ", text));
}

void Checkpointer::log_warnings(const checkpoint::Retention::Report& report) {
  for (const std::string& warning : report.warnings) log_.warn(warning);
}

}  // namespace ashlar::training
