#pragma once

#include <functional>
#include <string>

#include "data/build/build_journal.h"
#include "data/build/output_folder.h"
#include "data/shards/manifest.h"

namespace ashlar::data {

/// What a build may do with the files of its output folder: it deletes and overwrites those that a journal of ours
/// names, or a manifest of ours whose shards they are, and refuses a folder with others of such names before it touches
/// anything. The destructor leaves no copy of standard input, and no journal of a build that nothing can continue from.
class BuildClaim {
 public:
  explicit BuildClaim(const OutputFolder& folder);
  ~BuildClaim();
  BuildClaim(const BuildClaim&) = delete;
  BuildClaim& operator=(const BuildClaim&) = delete;

  BuildJournal& journal() { return journal_; }
  const BuildJournal& journal() const { return journal_; }

  /// Input error when the folder holds shards, a plan, a spool or anything called build.* that nobody of ours names;
  /// `old` is the manifest that is there, or null.
  void refuse_foreign(const Manifest* old) const;
  /// Input error when a file of a shard's name is not the shard that the manifest to replace says it is: somebody has
  /// put another there, or it is damaged. Reads no tokens.
  void refuse_replaced(const Manifest& old) const;
  /// From here on the journal stands, and a kill at any moment leaves only what it names.
  void begin() { journal_.begin(); }

  void remove_dataset(const Manifest& old);  ///< its manifest first
  void remove_unfinished();                  ///< shards and plan of an unfinished build
  void finish();                             ///< removes all but the dataset

 private:
  void remove_named(const std::function<bool(const std::string&)>& keep);

  const OutputFolder& folder_;
  BuildJournal journal_;
};

/// The manifest of a finished dataset in the folder that a build is to replace or compare with. Input error when it is
/// not one of ours, whole.
Manifest manifest_to_replace(const OutputFolder& folder);

}  // namespace ashlar::data
