#include "parallel/checkpoint/save.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/io/posix_file.h"
#include "parallel/checkpoint/find.h"
#include "parallel/checkpoint/partial.h"
#include "parallel/checkpoint/retention.h"
#include "parallel/checkpoint/writer.h"
#include "parallel/comm/host.h"
#include "parallel/comm/together.h"

namespace ashlar::checkpoint {
namespace {

constexpr int64_t kCopyBytes = int64_t{16} << 20;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// A tensor of the slabs whose pieces are stored under NAME + suffix.
struct SlabToStore {
  nn::SlabTensor slab;
  std::string suffix;
};

struct SlabFile {
  Group group;
  std::string name;
  std::span<const nn::PieceRange> ranges;
  std::vector<SlabToStore> slabs;
};

/// Writes a file of this rank and lists it: the counted pieces of each slab within the ranges, by name; a further copy
/// is another rank's to write. No file for nothing.
void write_slabs(const Ctx& ctx, const std::filesystem::path& directory, const SlabFile& file, Manifest& list) {
  // 1. What the file holds.
  std::vector<StoredBlock> blocks;
  std::vector<Tensor> sources;  // of the same block, flat
  for (const SlabToStore& s : file.slabs) {
    for (const nn::PieceRange& range : file.ranges) {
      const nn::Piece& piece = *range.ref->piece;
      if (!piece.counted) continue;
      io::TensorSpec global{.name = piece.name + s.suffix, .dtype = io::to_file_dtype(s.slab.data.dtype())};
      for (int i = 0; i < piece.global_shape.rank(); ++i) global.shape.push_back(piece.global_shape[i]);
      const std::vector<nn::RangeBlock> parts = nn::blocks_of(range);
      for (size_t i = 0; i < parts.size(); ++i) {
        const nn::RangeBlock& part = parts[i];
        blocks.push_back({.global = global,
                          .group = file.group,
                          .block = {.row = part.row, .col = part.col, .rows = part.rows, .cols = part.cols},
                          .stored_as = parts.size() == 1 ? global.name : str_cat(global.name, ".part", i)});
        sources.push_back(s.slab.of(range).flat_range(part.offset, part.rows * part.cols));
      }
    }
  }
  if (blocks.empty()) return;
  // 2. Its bytes, through a small host buffer; write_blocks asks for the blocks in the order given.
  std::vector<std::byte> buffer;
  size_t next = 0;
  const auto produce = [&](const StoredBlock&, const EmitBytes& emit) {
    const Tensor& source = sources[next++];
    const int64_t elem_bytes = size_of(source.dtype());
    for (int64_t at = 0; at < source.size();) {
      const int64_t count = std::min(kCopyBytes / elem_bytes, source.size() - at);
      buffer.resize(std::max(buffer.size(), static_cast<size_t>(count * elem_bytes)));
      ctx.backend.copy_to_host(source.flat_range(at, count).view(), buffer.data(), ctx.stream);
      emit(std::span(buffer).first(static_cast<size_t>(count * elem_bytes)));
      at += count;
    }
  };
  add_file(list, write_blocks(directory, file.name, std::move(blocks), produce));
}

/// This rank's files, listed.
Manifest write_part(const Ctx& ctx, const SaveArgs& args, const std::filesystem::path& directory) {
  Manifest list;
  const auto write = [&](Group group, std::span<const nn::PieceRange> ranges, std::vector<SlabToStore> slabs) {
    write_slabs(
        ctx, directory,
        {.group = group, .name = file_name(group, args.ranks.rank()), .ranges = ranges, .slabs = std::move(slabs)},
        list);
  };
  if (const optim::Optimizer* optimizer = args.optimizer; optimizer != nullptr) {
    write(Group::kWeights, optimizer->ranges(), {{optimizer->master(), ""}});
    write(Group::kOptimizer, optimizer->ranges(), {{optimizer->m(), ".m"}, {optimizer->v(), ".v"}});
  } else {
    const std::vector<nn::PieceRange> all = nn::piece_ranges(args.store, nn::SlabParts::whole(args.store));
    write(Group::kWeights, all, {{{.data = args.store.values()}, ""}});
  }
  return list;
}

void check_visible(const std::filesystem::path& directory) {
  std::error_code error;
  if (std::filesystem::is_directory(directory, error)) return;
  throw input_error("checkpoint", "expected ", io::printable(directory.string()),
                    ", which rank 0 has made, got no such directory; run.dir must be on a file system that all nodes "
                    "share");
}

/// `path` as an absolute one without a trailing slash, so that a suffix makes a sibling.
std::filesystem::path sibling_base(const std::filesystem::path& path) {
  std::filesystem::path absolute = std::filesystem::absolute(path).lexically_normal();
  return absolute.has_filename() ? absolute : absolute.parent_path();
}

void check_free(const std::filesystem::path& dir) {
  std::error_code error;
  if (!std::filesystem::exists(dir, error)) return;
  if (!std::filesystem::is_directory(dir, error) || !std::filesystem::is_empty(dir, error)) {
    throw input_error("checkpoint", "expected a new or empty directory, got ", io::printable(dir.string()),
                      " which holds something; name another one or remove it");
  }
}

}  // namespace

Saved save(const Ctx& ctx, const SaveArgs& args) {
  const auto start = std::chrono::steady_clock::now();
  ASHLAR_CHECK(args.state.step >= 0 && args.keep >= 0, "step ", args.state.step, ", keep ", args.keep);
  Saved saved{.path = checkpoints_dir(args.run_dir) / directory_name(args.state.step)};
  const auto on_rank_0 = [&](const std::function<void()>& part) {
    comm::together(args.ranks, [&] {
      if (args.ranks.rank() == 0) part();
    });
  };
  // 1. One directory for all.
  std::optional<PartialDirectory> directory;  // rank 0's, which removes it when any rank fails
  on_rank_0([&] { directory.emplace(saved.path); });
  comm::together(args.ranks, [&] { check_visible(partial_path(saved.path)); });
  // 2. Each rank its files.
  std::string list;
  comm::together(args.ranks, [&] { list = part_text(write_part(ctx, args, partial_path(saved.path))); });
  const std::vector<std::string> lists = comm::gather_texts_at(args.ranks, list, 0);
  // 3. The manifest of all, in the order of ranks, and the name.
  on_rank_0([&] {
    Manifest manifest{.state = args.state,
                      .config_toml = std::string(args.config_toml),
                      .tokenizer_json = std::string(args.tokenizer_json),
                      .metadata = args.metadata,
                      .data = args.data};
    for (const std::string& text : lists) add_part(manifest, parse_part(text));
    saved.bytes = manifest.total_bytes() + directory->commit(manifest);
    if (args.keep == 0) return;
    Retention retention(args.run_dir, args.keep);
    retention.start(args.state.step);
    Retention::Report report = retention.wait();
    saved.removed = std::move(report.removed);
    saved.warnings = std::move(report.warnings);
  });
  saved.bytes = comm::broadcast_value(args.ranks, saved.bytes, 0);
  saved.seconds = comm::broadcast_value(args.ranks, seconds_since(start), 0);
  saved.removed = broadcast_paths(args.ranks, saved.removed);
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
  saved.seconds = seconds_since(start);
  return saved;
}

}  // namespace ashlar::checkpoint
