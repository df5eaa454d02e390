#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <string>

#include "core/base/log.h"
#include "core/tuning/tuner.h"
#include "parallel/comm/control_plane.h"

namespace ashlar::training {

/// Choices that a run makes before its first step, such as the algorithms of matrix products. Rank 0 measures them,
/// once, for the operations of all ranks. They are saved in the run directory and in checkpoints and reused when the
/// run resumes, so that it continues with the same bits. Calls marked (all) are made by all ranks together.
class Tuning {
 public:
  /// The key of a checkpoint's metadata that holds `text()`.
  static constexpr const char* kMetadataKey = "ashlar.choices";

  /// `file`: RunDirectory::choices; empty: choices are not saved. `after_answer` is called after each measured choice.
  /// All references must outlive this object.
  Tuning(Tuner& tuner, comm::ControlPlane& ranks, Log& log, std::filesystem::path file,
         std::function<void()> after_answer = {});

  /// (all) Restores the saved choices: from the checkpoint being resumed (`saved`, may be empty), else from the run
  /// directory. Drops sections made on another device or library version and logs one line; `complete` measures them
  /// again. Throws a damaged-data error if the text is invalid or the library rejects a choice.
  void reuse(const std::string& saved);
  /// (all) Called after every kind of work was run once, and again while it returns true (something was chosen).
  /// Measures the operations that have no choice yet, and activates on all ranks the choices that every rank can use.
  /// If ranks have different devices or libraries in a section, this is logged and nothing is chosen there. At the end
  /// logs the results of interest to the user. Input error when the user demands an algorithm that a rank cannot use.
  /// Returns the same on all ranks.
  bool complete();
  bool completed() const { return completed_; }

  /// The active choices as text, to be stored in checkpoints; empty: none.
  const std::string& text() const { return text_; }

 private:
  /// Activates the root's `text` on all ranks.
  void share(const std::string& text, const std::string& source);
  TunedChoices measure(const TunedChoices& questions);
  TunedChoices
  asked_by_all();  ///< (all) operations run by any rank, in sections where all ranks have the same device and library
  /// (all) Prepares the choices on every rank and replaces those that a rank cannot use. Returns true if any was
  /// replaced.
  bool drop_unsupported_choices();

  Tuner& tuner_;
  comm::ControlPlane& ranks_;
  Log& log_;
  std::filesystem::path file_;
  std::function<void()> after_answer_;
  TunedChoices choices_;
  std::string text_;
  bool completed_ = false;
  std::set<std::string> differing_;  ///< sections for which a difference between ranks was logged
};

}  // namespace ashlar::training
