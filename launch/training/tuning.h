#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "core/base/log.h"
#include "core/io/tuner.h"
#include "parallel/comm/control_plane.h"

namespace ashlar::training {

/// The algorithms of a run: measured once by rank 0 for what all ranks do, kept in the run's directory and in its
/// checkpoints, and used again when the run goes on, so that it goes on with the same bits. Calls marked (all) are made
/// by all ranks together.
class Tuning {
 public:
  /// The key of a checkpoint's metadata that holds `text()`.
  static constexpr const char* kMetadataKey = "ashlar.choices";

  /// `file`: RunDirectory::choices. `after_answer` sees each answer that is measured. All must outlive this object.
  Tuning(Tuner& tuner, comm::ControlPlane& ranks, Log& log, std::filesystem::path file,
         std::function<void()> after_answer = {});

  /// (all) Takes up choices of an earlier part of the run: those of the checkpoint that it continues (`saved`, may be
  /// empty), else those in its directory, if any. When they were made on another device or with another library they
  /// are left, which is said in one line: `complete` measures again. Damaged-data error for what is no text of choices,
  /// and for a choice that the library refuses.
  void reuse(const std::string& saved);
  /// (all) To be called when every kind of work was done once: measures what has no answer yet, and takes it into use
  /// everywhere. Where ranks have different devices or libraries, which is said, nothing is chosen. Whether anything
  /// was: the same on all ranks.
  bool complete();
  bool completed() const { return completed_; }

  /// For checkpoints: what is in use; empty: nothing.
  const std::string& text() const { return text_; }

 private:
  /// Takes the root's `text` into use everywhere.
  void share(const std::string& text, const std::string& source);
  TunedChoices measure(const TunedChoices& questions);

  Tuner& tuner_;
  comm::ControlPlane& ranks_;
  Log& log_;
  std::filesystem::path file_;
  std::function<void()> after_answer_;
  TunedChoices choices_;
  std::string text_;
  bool completed_ = false;
};

}  // namespace ashlar::training
