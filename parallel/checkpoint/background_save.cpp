#include "parallel/checkpoint/background_save.h"

#include <chrono>
#include <new>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/device/host_limits.h"
#include "core/io/direct_file.h"
#include "core/io/posix_file.h"
#include "parallel/checkpoint/reader.h"
#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::checkpoint {
namespace {

void check_visible(const std::filesystem::path& directory) {
  std::error_code error;
  if (std::filesystem::is_directory(directory, error)) return;
  throw input_error("checkpoint", "this rank cannot see ", printable(directory.string()),
                    ", which rank 0 created; run.dir must be on a file system that all nodes share");
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::filesystem::path BackgroundSave::Request::path() const {
  return checkpoints_dir(run_dir) / directory_name(state.step);
}

void BackgroundSave::reserve(const Ctx& ctx, const nn::ParameterStore& store, const optim::Optimizer* optimizer) {
  snapshot_.reserve({.ctx = ctx, .store = store, .optimizer = optimizer, .rank = ranks_.rank()});
}

Event* BackgroundSave::begin(const Ctx& ctx, const SaveArgs& args, From from) {
  ASHLAR_CHECK(free(), "expected no save in progress");
  ASHLAR_CHECK(args.state.step >= 0, "expected a step of 0 or more, got ", args.state.step);
  next_ = Request{.run_dir = args.run_dir,
                  .state = args.state,
                  .config_toml = std::string(args.config_toml),
                  .tokenizer_json = std::string(args.tokenizer_json),
                  .metadata = args.metadata,
                  .data = args.data,
                  .check = args.check,
                  .committed = args.committed,
                  .begun = std::chrono::steady_clock::now()};
  const Snapshot::Source source{.ctx = ctx, .store = args.store, .optimizer = args.optimizer, .rank = ranks_.rank()};
  Event* copied = nullptr;
  if (from == From::kCopy) {
    copied = &snapshot_.copy(source);
  } else {
    snapshot_.refer(source);
  }
  if (phase_ == Phase::kIdle) enter(Phase::kPrepare);
  return copied;
}

SaveState BackgroundSave::state() {
  if (job_.started()) {
    if (!job_.ended()) return SaveState::kWriting;
    try {
      job_.join();
    } catch (const Error& error) {
      failure_ = error;
    } catch (const std::bad_alloc&) {
      failure_ = resource_error("memory", "the system refused memory to write a checkpoint: ", memory_state_text(),
                                "; use fewer ranks per node");
    } catch (const Snapshot::Interrupted&) {
      // The write was cancelled because another rank has failed.
    }
    if (phase_ == Phase::kStop) failure_.reset();  // `fail` has already stored the error to report
  }
  if (failure_) return SaveState::kFailed;
  return phase_ == Phase::kPrepare && !snapshot_.ready() ? SaveState::kWriting : SaveState::kDone;
}

void BackgroundSave::enter(Phase phase) {
  phase_ = phase;
  const bool first = ranks_.rank() == 0;
  switch (phase) {
    case Phase::kPrepare:
      now_ = *std::exchange(next_, std::nullopt);
      saved_ = {.path = now_.path()};
      list_ = {};
      if (!first) break;
      job_.start([this](const BackgroundJob::Cancelled&) {
        if (now_.check) now_.check();
        directory_.emplace(saved_.path);
      });
      break;
    case Phase::kWrite:
      job_.start([this](const BackgroundJob::Cancelled& cancelled) {
        check_visible(partial_path(saved_.path));
        list_ = snapshot_.write(partial_path(saved_.path), cancelled);
      });
      break;
    case Phase::kVerify:
      job_.start([this](const BackgroundJob::Cancelled& cancelled) {
        for (const FileRecord& file : list_.files)
          io::verify_on_disk(saved_.path / file.name, file.checksums, cancelled);
        if (ranks_.rank() == 0) parse_manifest(read_manifest_text(saved_.path), saved_.path / kManifestFile);
      });
      break;
    case Phase::kRemove:
      if (first) job_.start([this](const BackgroundJob::Cancelled&) { directory_.reset(); });
      break;
    case Phase::kIdle:
      if (next_) enter(Phase::kPrepare);
      break;
    case Phase::kCommit:
    case Phase::kStop: break;
  }
}

Manifest BackgroundSave::manifest_of(const std::vector<std::string>& lists) const {
  Manifest manifest{.state = now_.state,
                    .config_toml = now_.config_toml,
                    .tokenizer_json = now_.tokenizer_json,
                    .metadata = now_.metadata,
                    .data = now_.data};
  for (const std::string& text : lists) add_part(manifest, parse_part(text));  // `lists` is ordered by rank
  return manifest;
}

BackgroundSave::Outcome BackgroundSave::fail() {
  // All ranks throw the same text, which names the failed rank.
  try {
    comm::try_on_all_ranks(ranks_, [&] {
      if (failure_) throw *failure_;
    });
  } catch (const Error& error) {
    shared_failure_ = error;
  }
  failure_.reset();
  Outcome outcome;
  if (phase_ == Phase::kVerify) outcome.damage = std::exchange(shared_failure_, std::nullopt)->what();
  job_.cancel();
  enter(Phase::kStop);
  return outcome;
}

BackgroundSave::Outcome BackgroundSave::advance(SaveState largest) {
  if (phase_ == Phase::kIdle || largest == SaveState::kWriting) return {};
  if (largest == SaveState::kFailed && phase_ < Phase::kStop) return fail();
  Outcome outcome;
  switch (phase_) {
    case Phase::kPrepare: enter(Phase::kWrite); break;
    case Phase::kWrite: {
      std::vector<std::string> lists = comm::gather_texts_at(ranks_, part_text(list_), 0);
      enter(Phase::kCommit);
      if (ranks_.rank() != 0) break;
      job_.start([this, lists = std::move(lists)](const BackgroundJob::Cancelled&) {
        const Manifest manifest = manifest_of(lists);
        if (now_.check) now_.check();
        saved_.bytes = manifest.total_bytes() + directory_->commit(manifest);
        saved_.seconds = seconds_since(now_.begun);
        directory_.reset();
        if (now_.committed) now_.committed();
      });
      break;
    }
    case Phase::kCommit: {
      saved_.bytes = comm::broadcast_value(ranks_, saved_.bytes, 0);
      saved_.seconds = comm::broadcast_value(ranks_, saved_.seconds, 0);
      outcome.saved = saved_;
      enter(Phase::kVerify);
      break;
    }
    case Phase::kVerify:
      outcome.verified = {.path = saved_.path, .step = now_.state.step};
      enter(Phase::kIdle);
      break;
    case Phase::kStop: enter(shared_failure_ ? Phase::kRemove : Phase::kIdle); break;
    case Phase::kRemove:
      outcome.failure = std::exchange(shared_failure_, std::nullopt);
      enter(Phase::kIdle);
      break;
    case Phase::kIdle: break;
  }
  return outcome;
}

BackgroundSave::Outcome BackgroundSave::wait_phase() {
  if (job_.started()) job_.wait();
  if (phase_ == Phase::kPrepare) snapshot_.wait();
  return advance(static_cast<SaveState>(comm::max_of(ranks_, static_cast<int64_t>(state()))));
}

}  // namespace ashlar::checkpoint
