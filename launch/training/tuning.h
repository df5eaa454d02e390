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
/// run resumes, so that a resume does not change any result. Calls marked (all) are made by all ranks together.
class Tuning {
 public:
  /// Key under which the metadata of a checkpoint stores `text()`.
  static constexpr const char* kMetadataKey = "ashlar.choices";

  /// `file`: RunDirectory::choices; empty: choices are not saved. `after_answer` is called after each measured choice.
  /// All references must outlive this object.
  Tuning(Tuner& tuner, comm::ControlPlane& ranks, Log& log, std::filesystem::path file,
         std::function<void()> after_answer = {});

  /// (all) Restores the saved choices: from the checkpoint being resumed (`saved`, may be empty), else from the run
  /// directory. Drops the sections (kinds of operations, such as "gemm") whose choices were made on another device or
  /// library version, and logs the reasons; `complete` measures the dropped choices again. Throws a damaged-data error
  /// if the text is invalid or the library rejects a choice.
  void reuse(const std::string& saved);
  /// (all) Call it after every kind of operation has run once. If it returns true, it has chosen something: run the
  /// operations and call it again. Measures the operations that have no choice yet, and activates on all ranks the
  /// choices that every rank can use. If ranks have different devices or libraries for a section (a kind of operation,
  /// such as "gemm"), this is logged and nothing is chosen in it. The last call, which returns false, logs the results
  /// of interest to the user. Input error if the user demands an algorithm that a rank cannot use. Returns the same
  /// value on all ranks.
  bool complete();
  bool completed() const { return completed_; }

  /// The active choices as text, to be stored in checkpoints; empty: none.
  const std::string& text() const { return text_; }

 private:
  /// Activates rank 0's `text` on all ranks.
  void share(const std::string& text, const std::string& source);
  TunedChoices measure(const TunedChoices& questions);
  /// (all) Returns the operations run by any rank, in sections where all ranks have the same device and library.
  TunedChoices asked_by_all();
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
