#pragma once

#include <functional>
#include <string>

#include "data/build/build_journal.h"
#include "data/build/output_folder.h"
#include "data/shards/manifest.h"

namespace ashlar::data {

/// The files of the output folder that a build may delete or overwrite: those named by its journal, or by a valid
/// manifest whose shards they are. A folder with other files of such names is refused before anything is changed. The
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
  /// Input error when a file with a shard's name is not the shard in the manifest to be replaced: another file, or
  /// damaged. Reads no tokens.
  void refuse_replaced(const Manifest& old) const;
  /// After this the journal exists, and a kill at any moment leaves only files that it names.
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
