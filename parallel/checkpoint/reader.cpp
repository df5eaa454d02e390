#include "parallel/checkpoint/reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "core/base/error_text.h"
#include "core/io/posix_file.h"
#include "core/io/safetensors.h"
#include "parallel/checkpoint/writer.h"

namespace ashlar::checkpoint {
namespace {

constexpr int64_t kMaxManifestBytes = int64_t{1} << 30;
constexpr int64_t kStageBytes = int64_t{4} << 20;

/// Returns `path` if it is a regular file, else throws. A file listed in the manifest must exist, so its absence means
/// damage, not a wrong path from the user.
const std::filesystem::path& present(const std::filesystem::path& path) {
  require_file_of_checkpoint(path);
  return path;
}

Block intersect(const Block& a, const Block& b) {
  const int64_t row = std::max(a.row, b.row);
  const int64_t col = std::max(a.col, b.col);
  return {.row = row,
          .col = col,
          .rows = std::max<int64_t>(0, std::min(a.row + a.rows, b.row + b.rows) - row),
          .cols = std::max<int64_t>(0, std::min(a.col + a.cols, b.col + b.cols) - col)};
}

}  // namespace

void require_file_of_checkpoint(const std::filesystem::path& path) {
  struct stat info {};
  const auto damaged = [&](std::string_view what) {
    return damaged_error("checkpoint", printable(path.string()), " ", what, "; use an older checkpoint");
  };
  if (::stat(path.c_str(), &info) == 0) {
    if (S_ISREG(info.st_mode)) return;
    throw damaged(S_ISFIFO(info.st_mode)   ? "is a pipe, not a file"
                  : S_ISDIR(info.st_mode)  ? "is a directory, not a file"
                  : S_ISSOCK(info.st_mode) ? "is a socket, not a file"
                                           : "is a device, not a file");
  }
  switch (const int why = errno) {
    case ENOENT: throw damaged("is missing");
    case ENOTDIR: throw damaged("is missing: its parent is not a directory");
    case ELOOP: throw damaged("cannot be opened: its path has a loop of links");
    case EACCES:
    case EPERM:
      throw input_error("checkpoint", "cannot read ", printable(path.string()), ": ", std::strerror(why),
                        "; give this user read permission, or move that checkpoint away to use an older one");
    default: throw io::system_error("checkpoint", "read", path, why);
  }
}

std::string read_manifest_text(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kManifestFile;
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) {
    throw input_error("checkpoint", "expected a checkpoint directory with ", kManifestFile, ", got ",
                      printable(directory.string()), "; give a checkpoint or a run directory");
  }
  require_file_of_checkpoint(path);
  if (const auto bytes = std::filesystem::file_size(path, error); !error && bytes > kMaxManifestBytes) {
    throw damaged_error("checkpoint", printable(path.string()), " has ", bytes,
                        " bytes, expected a manifest of at most ", kMaxManifestBytes, "; use an older checkpoint");
  }
  return io::read_text_file(path, kMaxManifestBytes);
}

/// One safetensors file. It caches the last checksum chunk that a read covered only in part, so that a pass over
/// adjacent small tensors reads and checks each chunk once. The parsed header is kept while the file is closed.
class CheckpointReader::File {
 public:
  File(std::filesystem::path path, const io::ChunkChecksums& checksums)
      : path_(std::move(path)), checksums_(checksums), chunk_bytes_(checksums.chunk_bytes) {
    open();
    const io::SafetensorsReader header(path_, checksums_);
    for (const io::TensorEntry& entry : header.tensors()) entries_.emplace(entry.name, entry);
  }

  void open() {
    if (!checked_) checked_.emplace(present(path_), checksums_);
  }
  void close() {
    checked_.reset();
    cached_chunk_ = -1;
    std::vector<std::byte>().swap(cache_);
  }

  /// check_entry requires that the header lists the tensor `spec`, which the manifest lists. check_no_others, called
  /// last, requires that the header lists no other tensors.
  void check_entry(const io::TensorSpec& spec) {
    ++num_expected_;
    const auto at = entries_.find(spec.name);
    if (at == entries_.end() || at->second.dtype != spec.dtype || at->second.shape != spec.shape) {
      throw damaged_error("checkpoint", printable(path_.string()), " does not hold tensor ", printable(spec.name),
                          " with the dtype and shape that the manifest records; use an older checkpoint");
    }
  }
  void check_no_others() const {
    if (num_expected_ == entries_.size()) return;
    throw damaged_error("checkpoint", printable(path_.string()), " holds ", entries_.size(),
                        " tensors, but the manifest lists ", num_expected_, "; use an older checkpoint");
  }

  int64_t begin_of(const std::string& stored_as) const { return entries_.at(stored_as).begin; }

  void read_at(int64_t offset, std::span<std::byte> out) {
    while (!out.empty()) {
      const int64_t chunk = offset / chunk_bytes_;
      const int64_t begin = chunk * chunk_bytes_;
      const auto size = static_cast<int64_t>(out.size());
      int64_t count = 0;
      if (offset == begin && size >= chunk_bytes_) {
        count = size / chunk_bytes_ * chunk_bytes_;
        checked_->read_at(offset, out.first(static_cast<size_t>(count)));
      } else {
        count = std::min(begin + chunk_bytes_ - offset, size);
        load_chunk(chunk);
        std::memcpy(out.data(), cache_.data() + (offset - begin), static_cast<size_t>(count));
      }
      out = out.subspan(static_cast<size_t>(count));
      offset += count;
    }
  }

 private:
  void load_chunk(int64_t chunk) {
    if (chunk == cached_chunk_) return;
    cached_chunk_ = -1;
    const int64_t begin = chunk * chunk_bytes_;
    cache_.resize(static_cast<size_t>(std::min(chunk_bytes_, checked_->size_bytes() - begin)));
    checked_->read_at(begin, cache_);
    cached_chunk_ = chunk;
  }

  std::filesystem::path path_;
  const io::ChunkChecksums& checksums_;  // from the manifest
  std::optional<io::CheckedFile> checked_;
  int64_t chunk_bytes_;
  std::unordered_map<std::string, io::TensorEntry> entries_;
  size_t num_expected_ = 0;
  std::vector<std::byte> cache_;
  int64_t cached_chunk_ = -1;
};

CheckpointReader::CheckpointReader(std::filesystem::path directory)
    : CheckpointReader(directory, read_manifest_text(directory)) {}
CheckpointReader::CheckpointReader(std::filesystem::path directory, std::string_view manifest_text)
    : path_(std::move(directory)),
      manifest_(parse_manifest(manifest_text, path_ / kManifestFile)),
      files_(manifest_.files.size()) {}
CheckpointReader::~CheckpointReader() = default;
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;
CheckpointReader& CheckpointReader::operator=(CheckpointReader&&) noexcept = default;

void CheckpointReader::list_slices() {
  if (!slices_of_.empty()) return;
  slices_of_.resize(files_.size());
  for (const TensorRecord& tensor : manifest_.tensors) {
    for (const Slice& slice : tensor.slices) {
      slices_of_[static_cast<size_t>(slice.file)].push_back({.tensor = &tensor, .slice = &slice});
    }
  }
}

CheckpointReader::File& CheckpointReader::file(int64_t index) {
  auto& slot = files_[static_cast<size_t>(index)];
  // 1. Return the file if it is open. Otherwise, if kMaxOpenFiles files are open, close the least recently used one.
  if (const auto at = std::find(open_.begin(), open_.end(), index); at != open_.end()) {
    std::rotate(at, at + 1, open_.end());
    return *slot;
  }
  if (open_.size() == kMaxOpenFiles) {
    files_[static_cast<size_t>(open_.front())]->close();
    open_.erase(open_.begin());
  }
  // 2. Open the file. The first time, also check its header against the manifest.
  if (slot) {
    slot->open();
  } else {
    const FileRecord& record = manifest_.files[static_cast<size_t>(index)];
    auto opened = std::make_unique<File>(path_ / record.name, record.checksums);
    list_slices();
    for (const SliceAt& at : slices_of_[static_cast<size_t>(index)]) {
      opened->check_entry(
          StoredBlock{.global = *at.tensor, .block = at.slice->block, .stored_as = at.slice->stored_as}.stored_spec());
    }
    opened->check_no_others();
    slot = std::move(opened);
  }
  open_.push_back(index);
  return *slot;
}

const TensorRecord* CheckpointReader::find(std::string_view name) const {
  const auto& tensors = manifest_.tensors;
  const auto at = std::lower_bound(tensors.begin(), tensors.end(), name,
                                   [](const TensorRecord& t, std::string_view n) { return t.name < n; });
  return at != tensors.end() && at->name == name ? &*at : nullptr;
}

const TensorRecord& CheckpointReader::at(std::string_view name) const {
  const TensorRecord* tensor = find(name);
  if (tensor == nullptr) {
    throw input_error("checkpoint", printable(path_.string()), " has no tensor ", printable(name), "; it holds ",
                      tensors().size(), " other tensors; use a checkpoint of this model");
  }
  return *tensor;
}

bool CheckpointReader::has_optimizer_state() const {
  return std::any_of(tensors().begin(), tensors().end(),
                     [](const TensorRecord& t) { return t.group == Group::kOptimizer; });
}

void CheckpointReader::read(std::string_view name, std::span<std::byte> out) {
  const TensorRecord& tensor = at(name);
  read_block(tensor, {.rows = tensor.matrix_rows(), .cols = tensor.matrix_cols()}, out);
}

void CheckpointReader::read_block(const TensorRecord& tensor, const Block& block, std::span<std::byte> out) {
  const int64_t elem = io::size_of(tensor.dtype);
  ASHLAR_CHECK(block.row >= 0 && block.col >= 0 && block.row + block.rows <= tensor.matrix_rows() &&
                   block.col + block.cols <= tensor.matrix_cols(),
               tensor.name, ": block outside the tensor");
  ASHLAR_CHECK(static_cast<int64_t>(out.size()) == block.rows * block.cols * elem, tensor.name, ": ", out.size(),
               " bytes for ", block.rows, " x ", block.cols, " elements of ", elem, " bytes");
  std::vector<std::byte> stage;
  for (const Slice& slice : tensor.slices) {
    const Block& stored = slice.block;
    const Block part = intersect(stored, block);
    if (part.rows == 0 || part.cols == 0) continue;
    try {
      File& source = file(slice.file);
      const int64_t base = source.begin_of(slice.stored_as);
      const auto source_at = [&](int64_t row, int64_t col) {
        return base + ((row - stored.row) * stored.cols + (col - stored.col)) * elem;
      };
      const auto target_at = [&](int64_t row, int64_t bytes) {
        return out.subspan(static_cast<size_t>(((row - block.row) * block.cols + (part.col - block.col)) * elem),
                           static_cast<size_t>(bytes));
      };
      const int64_t part_bytes = part.cols * elem;
      if (part.rows == 1 || (part.cols == stored.cols && part.cols == block.cols)) {
        source.read_at(source_at(part.row, part.col), target_at(part.row, part.rows * part_bytes));
        continue;
      }
      // Reads whole stored rows through a small buffer, since a column slice needs a few bytes of every row.
      const int64_t stored_bytes = stored.cols * elem;
      const int64_t rows_at_once = std::max<int64_t>(1, kStageBytes / stored_bytes);
      for (int64_t row = part.row; row < part.row + part.rows; row += rows_at_once) {
        const int64_t count = std::min(rows_at_once, part.row + part.rows - row);
        stage.resize(static_cast<size_t>(count * stored_bytes));
        source.read_at(source_at(row, stored.col), stage);
        for (int64_t r = 0; r < count; ++r) {
          std::memcpy(target_at(row + r, part_bytes).data(),
                      stage.data() + r * stored_bytes + (part.col - stored.col) * elem,
                      static_cast<size_t>(part_bytes));
        }
      }
    } catch (const Error& problem) {
      if (problem.code() != ExitCode::kDamagedData) throw;
      throw damaged_error("checkpoint", "tensor ", printable(tensor.name), " cannot be read: ", text_of(problem));
    }
  }
}

void CheckpointReader::verify(const Share& share, const std::function<bool()>& cancelled) {
  constexpr int64_t kChunksAtOnce = 32;  // number of chunks verified between two checks of `cancelled`
  // Indexed by file: 1 if the file is to be verified.
  std::vector<char> wanted(files_.size(), 1);
  if (share.beyond_weights) {
    for (const TensorRecord& tensor : manifest_.tensors)
      for (const Slice& slice : tensor.slices) wanted[static_cast<size_t>(slice.file)] = 0;
    for (const TensorRecord& tensor : manifest_.tensors)
      for (const Slice& slice : tensor.slices)
        if (tensor.group != Group::kWeights) wanted[static_cast<size_t>(slice.file)] = 1;
  }
  const auto chunks_of = [&](size_t file) {
    return wanted[file] != 0 ? static_cast<int64_t>(manifest_.files[file].checksums.crcs.size()) : 0;
  };
  int64_t total = 0;
  for (size_t i = 0; i < files_.size(); ++i) total += chunks_of(i);
  // Each rank verifies a contiguous range of the chunks of all files. If the ranks are those that wrote the checkpoint,
  // a rank's range is approximately what this rank has written.
  const int64_t begin = total * share.rank / share.size, end = total * (share.rank + 1) / share.size;
  int64_t at = 0;  // index of the file's first chunk among the chunks of all files
  for (size_t i = 0; i < files_.size(); ++i) {
    const FileRecord& record = manifest_.files[i];
    const int64_t chunks = chunks_of(i);
    const int64_t first = std::max(begin - at, int64_t{0}), last = std::min(end - at, chunks);
    at += chunks;
    if (first >= last) continue;
    if (first == 0) file(static_cast<int64_t>(i));  // checks its header against the manifest
    const io::CheckedFile checked(present(path_ / record.name), record.checksums);
    for (int64_t chunk = first; chunk < last; chunk += kChunksAtOnce) {
      if (cancelled && cancelled()) return;
      checked.verify(chunk, std::min(chunk + kChunksAtOnce, last));
    }
  }
}

}  // namespace ashlar::checkpoint
