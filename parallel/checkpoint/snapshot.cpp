#include "parallel/checkpoint/snapshot.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "core/base/error.h"
#include "core/device/wait_in_destructor.h"
#include "core/nn/flat_ranges.h"

namespace ashlar::checkpoint {
namespace {

constexpr int64_t kPartBytes = int64_t{16} << 20;  // bytes written between two checks of `cancelled`

/// Alignment in memory of the first byte of each file, so that the file can be written with direct I/O. begin_of_file
/// rounds an address up to it.
constexpr int64_t kFileAlignment = io::kDirectAlignment;
template <typename Byte>
Byte* begin_of_file(Byte* at) {
  return at + (kFileAlignment - reinterpret_cast<uintptr_t>(at) % kFileAlignment) % kFileAlignment;
}

int64_t bytes_of(const Tensor& tensor) { return tensor.size() * size_of(tensor.dtype()); }

}  // namespace

std::vector<Snapshot::File> Snapshot::files_of(const Source& source) {
  struct BufferToStore {
    std::span<const nn::ShardedRange> ranges;
    nn::FlatTensor buffer;
    std::string suffix;
  };
  std::vector<File> files;
  const auto add = [&](Group group, const std::vector<BufferToStore>& buffers) {
    File file{.group = group, .name = file_name(group, source.rank)};
    for (const BufferToStore& s : buffers) {
      for (const nn::ShardedRange& range : s.ranges) {
        const nn::ShardedTensor& tensor = *range.ref->tensor;
        if (!tensor.main_replica) continue;  // another rank has the same values and writes them
        const io::TensorSpec global{.name = tensor.name + s.suffix,
                                    .dtype = io::to_file_dtype(s.buffer.data.dtype()),
                                    .shape = tensor.global_shape.dims()};
        const std::vector<nn::RangeBlock> parts = nn::blocks_of(range);
        for (size_t i = 0; i < parts.size(); ++i) {
          const nn::RangeBlock& part = parts[i];
          file.blocks.push_back({.global = global,
                                 .group = group,
                                 .block = {.row = part.row, .col = part.col, .rows = part.rows, .cols = part.cols},
                                 .stored_as = parts.size() == 1 ? global.name : str_cat(global.name, ".part", i)});
          file.sources.push_back(s.buffer.of(range).flat_range(part.offset, part.rows * part.cols));
        }
      }
    }
    if (!file.blocks.empty()) files.push_back(std::move(file));
  };
  const std::vector<nn::ShardedRange> of_model = nn::buffer_ranges(source.store, nn::BufferUse::kModel);
  const std::vector<nn::ShardedRange> of_training = nn::buffer_ranges(source.store, nn::BufferUse::kTraining);
  const auto buffers = [&](const std::vector<nn::ShardedRange>& ranges) {
    return BufferToStore{ranges, {.data = source.store.buffer_values()}, ""};
  };
  if (const optim::Optimizer* optimizer = source.optimizer; optimizer != nullptr) {
    const std::vector<nn::ShardedRange>& own = optimizer->ranges();
    add(Group::kWeights, {{own, optimizer->master(), ""}, buffers(of_model)});
    std::vector<BufferToStore> state;
    for (const auto& [name, tensor] : optimizer->state()) state.push_back({own, tensor, str_cat(".", name.suffix)});
    state.push_back(buffers(of_training));
    add(Group::kOptimizer, state);
  } else {
    const std::vector<nn::ShardedRange> all = nn::sharded_ranges(source.store, nn::FlatRanges::whole(source.store));
    add(Group::kWeights, {{all, {.data = source.store.values()}, ""}, buffers(of_model)});
  }
  return files;
}

int64_t Snapshot::bytes_of(const Source& source) {
  int64_t bytes = 0;
  for (const File& file : files_of(source)) {
    bytes = (bytes + kFileAlignment - 1) / kFileAlignment * kFileAlignment;
    for (const Tensor& tensor : file.sources) bytes += checkpoint::bytes_of(tensor);
  }
  return bytes;
}

void Snapshot::reserve(const Source& source) {
  const int64_t bytes = bytes_of(source);
  if (bytes <= reserved_) return;
  free_memory();
  memory_ = io::allocate_direct_memory(static_cast<size_t>(bytes));
  std::memset(memory_.get(), 0, static_cast<size_t>(bytes));
  reserved_ = bytes;
  auto* const device = dynamic_cast<DeviceFacts*>(&source.ctx.backend);
  if (device == nullptr || bytes == 0) return;
  unlocked_ = !device->lock_host_memory(memory_.get(), bytes);
  if (!unlocked_) locked_by_ = device;
}

void Snapshot::free_memory() {
  if (locked_by_ != nullptr) std::exchange(locked_by_, nullptr)->unlock_host_memory(memory_.get());
  memory_.reset();
  reserved_ = 0;
}

void Snapshot::refer(const Source& source) {
  files_ = files_of(source);
  ctx_ = &source.ctx;
}

Event& Snapshot::copy(const Source& source) {
  wait();
  reserve(source);
  refer(source);
  ctx_ = nullptr;
  Backend& backend = source.ctx.backend;
  if (!stream_) {
    stream_ = backend.make_stream();
    current_ = backend.make_event();
    copied_ = backend.make_event();
  }
  source.ctx.stream.record(*current_);
  stream_->wait_for(*current_);
  std::byte* to = memory_.get();
  for (const File& file : files_) {
    to = begin_of_file(to);
    for (const Tensor& tensor : file.sources) {
      backend.copy_to_host(tensor.view(), to, *stream_);
      to += checkpoint::bytes_of(tensor);
    }
  }
  stream_->record(*copied_);
  return *copied_;
}

void Snapshot::wait() {
  if (copied_) copied_->synchronize();
}

Snapshot::~Snapshot() {
  wait_in_destructor(copied_.get());
  try {
    free_memory();
  } catch (const std::exception&) {  // a device that has failed has said so before
  }
}

Manifest Snapshot::write(const std::filesystem::path& directory, const BackgroundJob::Cancelled& cancelled) const {
  Manifest list;
  const std::byte* copied = memory_.get();
  std::vector<std::byte> buffer;
  for (const File& file : files_) {
    copied = begin_of_file(copied);
    size_t next = 0;  // index of the next block; write_blocks requests the blocks in order
    const auto produce = [&](const StoredBlock&, const EmitBytes& emit) {
      const Tensor& source = file.sources[next++];
      const int64_t element = size_of(source.dtype());
      for (int64_t at = 0; at < source.size();) {
        if (cancelled()) throw Interrupted();
        const int64_t count = std::min(kPartBytes / element, source.size() - at);
        const auto bytes = static_cast<size_t>(count * element);
        if (ctx_ != nullptr) {
          buffer.resize(std::max(buffer.size(), bytes));
          ctx_->backend.read(source.flat_range(at, count).view(), buffer.data(), ctx_->stream);
          emit(std::span(buffer).first(bytes));
        } else {
          emit({copied, bytes});
          copied += bytes;
        }
        at += count;
      }
    };
    add_file(list, write_blocks(directory, file.name, file.blocks, produce));
  }
  return list;
}

}  // namespace ashlar::checkpoint
