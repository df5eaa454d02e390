#pragma once

#include <functional>
#include <string>

#include "data/build/build_journal.h"
#include "data/build/output_folder.h"
#include "data/shards/manifest.h"

namespace ashlar::data {

/// Decides which files in the output folder a build may delete or overwrite: the files that the journal in the folder
/// names, and the shards of a valid manifest. If the folder has other files with names that a build uses, the build
/// stops with an error before it changes anything. The destructor removes the copy of standard input. If the journal is
/// then the only remaining file of the build, nothing can be resumed, and the destructor removes the journal too.
class BuildClaim {
 public:
  explicit BuildClaim(const OutputFolder& folder);
  ~BuildClaim();
  BuildClaim(const BuildClaim&) = delete;
  BuildClaim& operator=(const BuildClaim&) = delete;

  BuildJournal& journal() { return journal_; }
  const BuildJournal& journal() const { return journal_; }

  /// Throws an input error when the folder has a shard, a plan, a copy of standard input or another build.* file that
  /// neither the journal nor the manifest `old` names. `old` is null if the folder has no manifest.
  void refuse_foreign(const Manifest* old) const;
  /// Throws an input error when a file that has the name of a shard in `old` does not have the identity, size and shape
  /// that `old` records for this shard. `old` is the manifest of the dataset that the build replaces. Reads no tokens.
  /// Skips files that the journal names.
  void refuse_replaced(const Manifest& old) const;
  /// Creates the journal. From then on the journal names every file that a build leaves in the folder when its process
  /// is killed.
  void begin() { journal_.begin(); }

  void remove_dataset(const Manifest& old);  ///< removes a finished dataset, its manifest first
  void remove_unfinished();                  ///< removes all files of an unfinished build except the copy of stdin
  void finish();                             ///< removes all files of the build except the dataset

 private:
  void remove_named(const std::function<bool(const std::string&)>& keep);

  const OutputFolder& folder_;
  BuildJournal journal_;
};

/// Reads the manifest of the finished dataset that the build replaces. Throws an input error when the file is not a
/// valid manifest.
Manifest manifest_to_replace(const OutputFolder& folder);

}  // namespace ashlar::data
