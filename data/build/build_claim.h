#pragma once

#include <functional>
#include <string>

#include "data/build/build_journal.h"
#include "data/build/output_folder.h"
#include "data/shards/manifest.h"

namespace ashlar::data {

/// Knows which files of the output folder a build may delete or overwrite: those that its journal names, and the shards
/// of a valid manifest. A folder that has other files with such names is refused before anything is changed. The
/// destructor removes the copy of standard input, and the journal of a build that cannot be resumed.
class BuildClaim {
 public:
  explicit BuildClaim(const OutputFolder& folder);
  ~BuildClaim();
  BuildClaim(const BuildClaim&) = delete;
  BuildClaim& operator=(const BuildClaim&) = delete;

  BuildJournal& journal() { return journal_; }
  const BuildJournal& journal() const { return journal_; }

  /// Input error when the folder has shards, a plan, a spool or any build.* file that neither journal nor manifest
  /// names; `old` is the existing manifest, or null.
  void refuse_foreign(const Manifest* old) const;
  /// Input error when a file with the name of a shard is damaged, or is not the shard in the manifest to be replaced.
  /// Reads no tokens.
  void refuse_replaced(const Manifest& old) const;
  /// Creates the journal. From then on, a kill at any moment leaves only files that the journal names.
  void begin() { journal_.begin(); }

  void remove_dataset(const Manifest& old);  ///< removes its manifest first
  void remove_unfinished();                  ///< removes shards and plan of an unfinished build
  void finish();                             ///< removes all files except the dataset

 private:
  void remove_named(const std::function<bool(const std::string&)>& keep);

  const OutputFolder& folder_;
  BuildJournal journal_;
};

/// The manifest of a finished dataset in the folder, to replace or compare with. Input error when it is not a valid
/// manifest.
Manifest manifest_to_replace(const OutputFolder& folder);

}  // namespace ashlar::data
