#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <string>

#include "core/base/log.h"
#include "core/tuning/tuner.h"
#include "parallel/comm/control_plane.h"

namespace ashlar::training {

/// What a run chooses before its first step, such as the algorithms of its products: measured once by rank 0 for what
/// all ranks do, kept in the run's directory and in its checkpoints, and used again when the run goes on, so that it
/// goes on with the same bits. Calls marked (all) are made by all ranks together.
class Tuning {
 public:
  /// The key of a checkpoint's metadata that holds `text()`.
  static constexpr const char* kMetadataKey = "ashlar.choices";

  /// `file`: RunDirectory::choices; empty: they are not kept. `after_answer` sees each answer that is measured. All
  /// must outlive this object.
  Tuning(Tuner& tuner, comm::ControlPlane& ranks, Log& log, std::filesystem::path file,
         std::function<void()> after_answer = {});

  /// (all) Takes up choices of an earlier part of the run: those of the checkpoint that it continues (`saved`, may be
  /// empty), else those in its directory, if any. Those of a section that was made on another device or with another
  /// library are left, which is said in one line: `complete` measures again. Damaged-data error for what is no text of
  /// choices, and for a choice that the library refuses.
  void reuse(const std::string& saved);
  /// (all) To be called when every kind of work was done once, and again while it says that anything was chosen:
  /// measures what has no answer yet, and takes into use everywhere what every rank can do. In a section in which ranks
  /// have different devices or libraries, which is said, nothing is chosen. In the end it logs what came of it, where a
  /// user may want to know. Input error where the user demands what a rank cannot do. The same on all ranks.
  bool complete();
  bool completed() const { return completed_; }

  /// For checkpoints: what is in use; empty: nothing.
  const std::string& text() const { return text_; }

 private:
  /// Takes the root's `text` into use everywhere.
  void share(const std::string& text, const std::string& source);
  TunedChoices measure(const TunedChoices& questions);
  TunedChoices asked_by_all();  ///< (all) without answers, in sections in which all ranks are of one kind
  /// (all) Prepares on every rank, and changes the answers that one of them cannot do. Whether there were any.
  bool take_what_all_can_do();

  Tuner& tuner_;
  comm::ControlPlane& ranks_;
  Log& log_;
  std::filesystem::path file_;
  std::function<void()> after_answer_;
  TunedChoices choices_;
  std::string text_;
  bool completed_ = false;
  std::set<std::string> differing_;  ///< sections of which it was said that ranks differ in them
};

}  // namespace ashlar::training
