#include "parallel/checkpoint/save.h"

#include <chrono>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/io/posix_file.h"
#include "parallel/checkpoint/background_save.h"
#include "parallel/checkpoint/find.h"
#include "parallel/checkpoint/partial.h"
#include "parallel/checkpoint/retention.h"
#include "parallel/checkpoint/writer.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::checkpoint {
namespace {

/// Returns `path` as an absolute path without a trailing slash, so that appending a suffix gives the path of a sibling.
std::filesystem::path sibling_base(const std::filesystem::path& path) {
  std::filesystem::path absolute = std::filesystem::absolute(path).lexically_normal();
  return absolute.has_filename() ? absolute : absolute.parent_path();
}

void check_free(const std::filesystem::path& dir) {
  std::error_code error;
  if (!std::filesystem::exists(dir, error)) return;
  const bool directory = std::filesystem::is_directory(dir, error);
  if (!directory || !std::filesystem::is_empty(dir, error)) {
    throw input_error("checkpoint", "expected a new or empty directory, got ", printable(dir.string()),
                      directory ? ", which is not empty; give another directory, or remove this one"
                                : ", which is a file; give another path, or remove this file");
  }
}

}  // namespace

Saved save(const Ctx& ctx, const SaveArgs& args) {
  ASHLAR_CHECK(args.keep >= 0, "expected `keep` of 0 or more, got ", args.keep);
  BackgroundSave saving(args.ranks);
  Retention retention(args.run_dir, KeepRule{.newest = args.ranks.rank() == 0 ? args.keep : 0});
  Saved saved;
  saving.begin(ctx, args, BackgroundSave::From::kState);
  while (!saving.idle()) {
    const BackgroundSave::Outcome outcome = saving.wait_phase();
    if (outcome.failure) comm::try_on_all_ranks(args.ranks, [&] { throw *outcome.failure; });
    if (outcome.saved) saved = *outcome.saved;
    if (outcome.damage) saved.warnings.push_back(*outcome.damage);
    if (outcome.verified) retention.trust(*outcome.verified);
  }
  retention.start(args.state.step);
  Retention::Report report = retention.wait();
  saved.warnings.insert(saved.warnings.end(), report.warnings.begin(), report.warnings.end());
  saved.removed = broadcast_paths(args.ranks, report.removed);
  return saved;
}

Saved write_tensors(const WriteTensorsArgs& args) {
  const auto start = std::chrono::steady_clock::now();
  Saved saved{.path = sibling_base(args.dir)};
  check_free(saved.path);
  PartialDirectory directory(saved.path);
  Manifest manifest{.config_toml = std::string(args.config_toml),
                    .tokenizer_json = std::string(args.tokenizer_json),
                    .metadata = args.metadata};
  std::vector<StoredBlock> blocks;
  for (const io::TensorSpec& tensor : args.source.tensors) blocks.push_back(whole_tensor(tensor, Group::kWeights));
  add_file(manifest, write_blocks(directory.path(), file_name(Group::kWeights, 0), std::move(blocks),
                                  [&](const StoredBlock& block, const EmitBytes& emit) {
                                    args.source.produce(block.global, emit);
                                  }));
  saved.bytes = manifest.total_bytes() + directory.commit(manifest);
  saved.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return saved;
}

}  // namespace ashlar::checkpoint
