#include <gtest/gtest.h>

#include <cstring>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "core/io/atomic_file.h"
#include "parallel/checkpoint/load.h"
#include "parallel/checkpoint/partial.h"
#include "parallel/checkpoint/reader.h"
#include "parallel/checkpoint/writer.h"
#include "tests/parallel/checkpoint_fixture.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::ashlar::testing::CheckpointModel;
using ::ashlar::testing::ScratchDir;

/// A global matrix in memory, and the bytes of any block of it: the reference that the reader is held against.
struct Global {
  io::TensorSpec spec;
  std::vector<float> values;

  Global(std::string name, std::vector<int64_t> shape, uint64_t seed)
      : spec{.name = std::move(name), .dtype = io::FileDType::kF32, .shape = std::move(shape)} {
    std::mt19937 random(static_cast<uint32_t>(seed));
    for (int64_t i = 0; i < spec.num_elems(); ++i) values.push_back(static_cast<float>(random()));
  }
  int64_t cols() const { return spec.shape.back(); }
  std::string bytes(const Block& b) const {
    std::string out;
    for (int64_t r = b.row; r < b.row + b.rows; ++r) {
      out.append(reinterpret_cast<const char*>(values.data() + r * cols() + b.col), static_cast<size_t>(4 * b.cols));
    }
    return out;
  }
};

/// Writes a checkpoint as `files.size()` ranks would: each its own file with its blocks.
void write_ranks(const fs::path& path, const std::vector<const Global*>& globals,
                 const std::vector<std::vector<StoredBlock>>& files) {
  PartialDirectory directory(path);
  Manifest manifest;
  for (size_t rank = 0; rank < files.size(); ++rank) {
    const auto produce = [&](const StoredBlock& block, const EmitBytes& emit) {
      for (const Global* g : globals) {
        if (g->spec.name != block.global.name) continue;
        const std::string bytes = g->bytes(block.block);
        emit(std::as_bytes(std::span(bytes)));
      }
    };
    Manifest part;
    add_file(part, write_blocks(directory.path(), file_name(Group::kWeights, static_cast<int64_t>(rank)), files[rank],
                                produce));
    add_part(manifest, parse_part(part_text(part)));  // as rank 0 gets the others'
  }
  directory.commit(manifest);
}

StoredBlock block_of(const Global& g, const Block& block, const std::string& suffix = "") {
  return {.global = g.spec, .block = block, .stored_as = g.spec.name + suffix};
}

std::string read_block(CheckpointReader& reader, const std::string& name, const Block& block) {
  std::string out(static_cast<size_t>(4 * block.rows * block.cols), '\0');
  reader.read_block(reader.at(name), block, std::as_writable_bytes(std::span(out)));
  return out;
}

/// The whole tensor, and 300 random blocks of it, equal the reference.
void expect_equal(CheckpointReader& reader, const Global& g) {
  const int64_t cols = g.cols();
  const int64_t rows = g.spec.num_elems() / cols;
  std::string whole(static_cast<size_t>(4 * rows * cols), '\0');
  reader.read(g.spec.name, std::as_writable_bytes(std::span(whole)));
  EXPECT_EQ(whole, g.bytes({.rows = rows, .cols = cols})) << g.spec.name;
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    Block b;
    b.row = static_cast<int64_t>(random() % rows);
    b.col = static_cast<int64_t>(random() % cols);
    b.rows = static_cast<int64_t>(random() % (rows - b.row + 1));
    b.cols = static_cast<int64_t>(random() % (cols - b.col + 1));
    ASSERT_EQ(read_block(reader, g.spec.name, b), g.bytes(b))
        << b.row << "+" << b.rows << ", " << b.col << "+" << b.cols;
  }
}

TEST(CheckpointSlices, TwoRanksSplitByRowsOrColumnsEqualOneFile) {
  const ScratchDir dir;
  const Global w("w", {31, 17}, 1);
  const Global bias("bias", {29}, 2);
  write_ranks(dir.path() / "one", {&w, &bias},
              {{whole_tensor(bias.spec, Group::kWeights), whole_tensor(w.spec, Group::kWeights)}});
  write_ranks(dir.path() / "rows", {&w, &bias},
              {{block_of(w, {.rows = 13, .cols = 17}), block_of(bias, {.rows = 1, .cols = 11})},
               {block_of(bias, {.col = 11, .rows = 1, .cols = 18}), block_of(w, {.row = 13, .rows = 18, .cols = 17})}});
  write_ranks(dir.path() / "columns", {&w, &bias},
              {{block_of(w, {.col = 6, .rows = 31, .cols = 11}), block_of(bias, {.rows = 1, .cols = 29})},
               {block_of(w, {.rows = 31, .cols = 6})}});
  for (const char* name : {"one", "rows", "columns"}) {
    SCOPED_TRACE(name);
    CheckpointReader reader(dir.path() / name);
    expect_equal(reader, w);
    expect_equal(reader, bias);
    reader.verify();
  }
}

TEST(CheckpointSlices, AFlatShardIsThreeBlocksInOneFile) {
  // Elements [20, 70) of a 10 x 10 matrix are half a row, four rows, half a row less; a sharded optimizer writes these.
  const ScratchDir dir;
  const Global w("w", {10, 9}, 3);
  write_ranks(
      dir.path() / "flat", {&w},
      {{block_of(w, {.rows = 2, .cols = 9}), block_of(w, {.row = 2, .rows = 1, .cols = 2}, "#1")},
       {block_of(w, {.row = 2, .col = 2, .rows = 1, .cols = 7}), block_of(w, {.row = 3, .rows = 4, .cols = 9}, "#1"),
        block_of(w, {.row = 7, .rows = 1, .cols = 7}, "#2")},
       {block_of(w, {.row = 7, .col = 7, .rows = 1, .cols = 2}), block_of(w, {.row = 8, .rows = 2, .cols = 9}, "#1")}});
  CheckpointReader reader(dir.path() / "flat");
  expect_equal(reader, w);
}

TEST(CheckpointSlices, BlocksLargerThanEveryBufferAndChunk) {
  const ScratchDir dir;
  const Global w("w", {1100, 1537}, 4);      // 6.8 MB: several checksum chunks, more than the staging buffer
  const Global row("row", {1, 3000001}, 5);  // one row of 12 MB
  const Global thin("thin", {200003, 3}, 6);
  write_ranks(dir.path() / "big", {&w, &row, &thin},
              {{block_of(w, {.rows = 1100, .cols = 700}), block_of(row, {.rows = 1, .cols = 1500000}),
                block_of(thin, {.rows = 200003, .cols = 1})},
               {block_of(w, {.col = 700, .rows = 1100, .cols = 837}),
                block_of(row, {.col = 1500000, .rows = 1, .cols = 1500001}),
                block_of(thin, {.col = 1, .rows = 200003, .cols = 2})}});
  CheckpointReader reader(dir.path() / "big");
  for (const Global* g : {&w, &row, &thin}) {
    const int64_t rows = g->spec.shape[0];
    const Block whole{.rows = rows, .cols = g->cols()};
    EXPECT_TRUE(read_block(reader, g->spec.name, whole) == g->bytes(whole)) << g->spec.name;
    const Block inner{.row = rows / 3, .col = g->cols() / 3, .rows = rows - rows / 3, .cols = g->cols() / 3 + 1};
    EXPECT_TRUE(read_block(reader, g->spec.name, inner) == g->bytes(inner)) << g->spec.name;
  }

  // A store that holds a column slice of each loads just that.
  std::vector<nn::ShardedTensor> tensors;
  for (const Global* g : {&w, &row, &thin}) {
    const int64_t rows = g->spec.shape[0];
    const int64_t col = g->cols() / 3;
    tensors.push_back({.name = g->spec.name,
                       .global_shape = {rows, g->cols()},
                       .global_col = col,
                       .rows = rows,
                       .cols = g->cols() - col,
                       .axes = nn::kTensorSharded});
  }
  CheckpointModel model(DType::kFloat32, tensors);
  load_weights(model.ctx(),
               {.ranks = model.ranks(), .reader = reader, .store = model.store(), .optimizer = &model.optimizer()});
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Global* g = std::vector<const Global*>{&w, &row, &thin}[i];
    const Block block{.col = tensors[i].global_col, .rows = tensors[i].rows, .cols = tensors[i].cols};
    EXPECT_TRUE(model.bytes_of(model.store().values(), g->spec.name) == g->bytes(block)) << g->spec.name;
  }
}

int64_t open_descriptors() { return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()); }

TEST(CheckpointSlices, ManyRanksNeedFewDescriptors) {
  const ScratchDir dir;
  const Global w("w", {120, 6}, 1);
  std::vector<std::vector<StoredBlock>> files;
  for (int64_t rank = 0; rank < 60; ++rank) files.push_back({block_of(w, {.row = 2 * rank, .rows = 2, .cols = 6})});
  write_ranks(dir.path() / "many", {&w}, files);
  CheckpointReader reader(dir.path() / "many");
  const int64_t before = open_descriptors();
  expect_equal(reader, w);
  EXPECT_LE(open_descriptors() - before, static_cast<int64_t>(CheckpointReader::kMaxOpenFiles));
  reader.verify();
  EXPECT_LE(open_descriptors() - before, static_cast<int64_t>(CheckpointReader::kMaxOpenFiles));
}

TEST(CheckpointSlices, SharesOfTheVerificationAreTheWholeAndEqual) {
  const ScratchDir dir;
  const Global big("big", {3000, 600}, 2);  // 7 chunks and more
  const Global small("small", {5, 6}, 3);
  write_ranks(dir.path() / "two", {&big, &small},
              {{whole_tensor(big.spec, Group::kWeights)}, {whole_tensor(small.spec, Group::kWeights)}});
  const fs::path file = dir.path() / "two" / "weights-00000.safetensors";
  for (const int size : {1, 2, 3, 8, 20}) {
    // A damaged chunk is one share's to find, whichever it is, and the others find nothing.
    for (const int64_t byte : {int64_t{100}, int64_t{3} << 20, (int64_t{7} << 20) - 500000}) {
      testing::flip_bit(file, 8 * byte);
      int finds = 0;
      for (int rank = 0; rank < size; ++rank) {
        CheckpointReader reader(dir.path() / "two");
        try {
          reader.verify({.rank = rank, .size = size});
        } catch (const Error& problem) {
          EXPECT_EQ(problem.code(), ExitCode::kDamagedData);
          ++finds;
        }
      }
      EXPECT_EQ(finds, 1) << size << " shares, byte " << byte;
      testing::flip_bit(file, 8 * byte);
    }
  }
}

TEST(CheckpointSlices, RanksThatDisagreeOrOverlapAreBugs) {
  const ScratchDir dir;
  const Global w("w", {4, 4}, 1);
  Global other = w;
  other.spec.shape = {4, 5};
  EXPECT_THROW(
      write_ranks(dir.path() / "a", {&w},
                  {{block_of(w, {.rows = 2, .cols = 4})}, {block_of(other, {.row = 2, .rows = 2, .cols = 4})}}),
      Bug);
  EXPECT_THROW(write_ranks(dir.path() / "b", {&w},
                           {{block_of(w, {.rows = 3, .cols = 4})}, {block_of(w, {.row = 2, .rows = 2, .cols = 4})}}),
               Bug);
  EXPECT_THROW(write_ranks(dir.path() / "c", {&w}, {{block_of(w, {.rows = 3, .cols = 4})}}), Bug);
  EXPECT_TRUE(fs::is_empty(dir.path())) << "nothing half-written stays";
}

TEST(CheckpointSlices, AFileThatHoldsOtherThanTheManifestSaysIsDamage) {
  const ScratchDir dir;
  const Global w("w", {4, 4}, 1);
  const Global x("x", {4, 4}, 2);
  for (const bool extra : {false, true}) {
    const fs::path path = dir.path() / (extra ? "extra" : "renamed");
    fs::create_directories(path);
    std::vector<StoredBlock> blocks = {whole_tensor(w.spec, Group::kWeights)};
    if (extra) blocks.push_back(whole_tensor(x.spec, Group::kWeights));
    WrittenFile file =
        write_blocks(path, file_name(Group::kWeights, 0), blocks, [&](const StoredBlock& b, const EmitBytes& emit) {
          const std::string bytes = (b.stored_as == "w" ? w : x).bytes({.rows = 4, .cols = 4});
          emit(std::as_bytes(std::span(bytes)));
        });
    file.blocks.resize(1);
    if (!extra) file.blocks[0].stored_as = "v";
    Manifest manifest;
    add_file(manifest, file);
    io::write_file_atomically(path / kManifestFile, manifest_text(manifest));
    const Error error = testing::error_of([&] { CheckpointReader(path).verify(); });
    EXPECT_EQ(error.code(), ExitCode::kDamagedData);
    EXPECT_NE(std::string(error.what()).find(extra ? "holds 2 tensors" : "'v'"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace ashlar::checkpoint
