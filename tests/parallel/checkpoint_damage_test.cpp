#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/io/safetensors.h"
#include "parallel/checkpoint/find.h"
#include "parallel/checkpoint/load.h"
#include "parallel/checkpoint/reader.h"
#include "parallel/checkpoint/save.h"
#include "tests/parallel/checkpoint_fixture.h"
#include "tests/support/long_form.h"
#include "tests/support/sanitizers.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::ashlar::testing::CheckpointModel;
using ::ashlar::testing::flip_bit;
using ::ashlar::testing::long_form;
using ::ashlar::testing::patch;
using ::ashlar::testing::ScratchDir;
using ::ashlar::testing::slurp;
using ::ashlar::testing::state_at;
using ::ashlar::testing::under_address_sanitizer;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;  // the unit of checksums, as documented

constexpr CheckpointModel::Size kDamageSize{.width = 128, .vocab = 3900, .padded = 3968, .layers = 2};

/// Two good checkpoints of which the newer is damaged again and again.
class CheckpointDamage : public ::testing::Test {
 protected:
  CheckpointDamage() : model_(DType::kFloat32, true, kDamageSize) {
    for (const int64_t step : {1, 2}) {
      model_.randomize(static_cast<uint64_t>(step));
      newest_ = save(model_.ctx(), {.ranks = model_.ranks(),
                                    .run_dir = dir_.path(),
                                    .store = model_.store(),
                                    .optimizer = &model_.optimizer(),
                                    .state = state_at(step),
                                    .config_toml = "[run]\nseed = 5\n",
                                    .tokenizer_json = "{}"})
                    .path;
    }
    for (const char* name : kFiles) clean_[name] = slurp(newest_ / name);
    for (const char* name : {kFiles[1], kFiles[2]}) {
      const io::SafetensorsReader reader(newest_ / name);
      for (const io::TensorEntry& entry : reader.tensors()) layout_[entry.name] = {name, entry};
    }
  }

  struct Place {
    std::string file;
    io::TensorEntry entry;
  };
  static constexpr const char* kFiles[] = {"manifest.json", "optimizer-00000.safetensors", "weights-00000.safetensors"};

  std::string message(const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kDamagedData) << error.what();
      return error.what();
    }
    return "";
  }

  /// Tensors that a reader must refuse when bytes of chunk `chunk` of `file` are wrong: those with bytes in it, and
  /// all of the file when the header is in it.
  std::set<std::string> victims(const std::string& file, int64_t chunk) const {
    std::set<std::string> names;
    int64_t first = std::numeric_limits<int64_t>::max();
    for (const auto& [name, at] : layout_) {
      if (at.file == file) first = std::min(first, at.entry.begin);
    }
    const bool header = chunk * kMiB < first;
    for (const auto& [name, at] : layout_) {
      if (at.file != file) continue;
      if (header || (at.entry.begin < (chunk + 1) * kMiB && at.entry.end > chunk * kMiB)) names.insert(name);
    }
    return names;
  }

  /// With the newest checkpoint damaged in `file`: what is read of it is what was written, or an error with names.
  void expect_found(const std::string& file, const std::set<std::string>& bad_tensors, const std::string& what) {
    SCOPED_TRACE(what);
    if (file == "manifest.json") {
      EXPECT_THAT(message([&] { CheckpointReader reader(newest_); }), HasSubstr(file));
    } else {
      CheckpointReader reader(newest_);
      // In random order: what a failed read leaves behind must not leak into the next.
      std::vector<std::pair<std::string, Place>> order(layout_.begin(), layout_.end());
      std::shuffle(order.begin(), order.end(), std::mt19937_64(what.size()));
      for (const auto& [name, at] : order) {
        std::string bytes(static_cast<size_t>(at.entry.num_bytes()), '\0');
        const std::string error = message([&] { reader.read(name, std::as_writable_bytes(std::span(bytes))); });
        if (bad_tensors.contains(name)) {
          EXPECT_THAT(error, AllOf(HasSubstr("'" + name + "'"), HasSubstr(file)));
        } else {
          EXPECT_EQ(error, "") << name;
          EXPECT_EQ(std::memcmp(bytes.data(), clean_[at.file].data() + at.entry.begin, bytes.size()), 0) << name;
        }
      }
    }
    Log log([](std::string_view) {});
    const auto found = newest_good(dir_.path(), log);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->step, 1);
    ASSERT_EQ(log.warnings().size(), 1U);
    EXPECT_THAT(log.warnings()[0], AllOf(HasSubstr("step-00000002"), HasSubstr(file)));
  }

  void expect_clean() {
    Log log([](std::string_view) {});
    EXPECT_EQ(newest_good(dir_.path(), log)->step, 2);
    EXPECT_TRUE(log.warnings().empty());
  }

  /// Where to strike: manifest, headers and data; metadata as often as data.
  std::pair<std::string, int64_t> random_byte(std::mt19937_64& random, int trial) {
    if (trial % 4 == 0) return {kFiles[0], static_cast<int64_t>(random() % clean_[kFiles[0]].size())};
    const std::string file = kFiles[1 + random() % 2];
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, clean_[file].data(), 8);
    header_bytes += 8;
    const uint64_t data_bytes = clean_[file].size() - header_bytes;
    return {file,
            static_cast<int64_t>(trial % 4 == 2 ? random() % header_bytes : header_bytes + random() % data_bytes)};
  }

  ScratchDir dir_;
  CheckpointModel model_;
  fs::path newest_;
  std::map<std::string, std::string> clean_;
  std::map<std::string, Place> layout_;
};

/// What this process has asked the system to read.
int64_t bytes_read() {
  std::ifstream io("/proc/self/io");
  std::string key;
  int64_t value = -1;
  while (io >> key >> value && key != "rchar:") {
  }
  return value;
}

std::optional<Found> load_newest(CheckpointModel& model, const fs::path& run, Log& log) {
  return load_newest_good(
      {.path = run, .log = log, .ranks = model.ranks(), .load = [&](CheckpointReader& reader) {
         load_training(
             model.ctx(),
             {.ranks = model.ranks(), .reader = reader, .store = model.store(), .optimizer = &model.optimizer()});
       }});
}

TEST_F(CheckpointDamage, LoadingTheNewestReadsEachByteOnceAndFindsDamageInAnyChunk) {
  Log log([](std::string_view) {});
  CheckpointModel loaded(DType::kFloat32, true, kDamageSize);
  const auto matches = [&](int64_t step) {
    model_.randomize(static_cast<uint64_t>(step));
    return loaded.all_bytes() == model_.all_bytes();
  };
  int64_t bytes = 0;
  for (const auto& [name, text] : clean_) bytes += static_cast<int64_t>(text.size());
  const int64_t before = bytes_read();
  ASSERT_GE(before, 0);
  ASSERT_EQ(load_newest(loaded, dir_.path(), log)->step, 2);
  // Chunks at the seams of tensors that are read in parts, and headers, come twice: at most one each a file and flat
  // buffer.
  EXPECT_LE(bytes_read() - before, bytes + 6 * kMiB) << "of " << bytes;
  EXPECT_TRUE(matches(2));
  EXPECT_TRUE(log.warnings().empty());
  for (const char* name : {kFiles[1], kFiles[2]}) {
    const auto size = static_cast<int64_t>(clean_[name].size());
    for (int64_t chunk = 0; chunk < size; chunk += kMiB) {
      SCOPED_TRACE(str_cat(name, " at ", chunk));
      flip_bit(newest_ / name, 8 * (std::min(chunk + kMiB, size) - 1) + 3);
      EXPECT_EQ(load_newest(loaded, dir_.path(), log)->step, 1);
      EXPECT_TRUE(matches(1)) << "nothing of the damaged one stays";
      flip_bit(newest_ / name, 8 * (std::min(chunk + kMiB, size) - 1) + 3);
    }
  }
  EXPECT_EQ(load_newest(loaded, dir_.path(), log)->step, 2);
}

TEST_F(CheckpointDamage, EveryFlippedBitIsFoundByTheReadThatUsesIt) {
  std::mt19937_64 random(20240607);
  const int trials = long_form() ? 5000 : under_address_sanitizer() ? 60 : 200;
  int partial_damage = 0;
  for (int trial = 0; trial < trials; ++trial) {
    const auto [file, byte] = random_byte(random, trial);
    const int64_t bit = 8 * byte + static_cast<int64_t>(random() % 8);
    flip_bit(newest_ / file, bit);
    const auto bad = victims(file, byte / kMiB);
    partial_damage += file != kFiles[0] && bad.size() < layout_.size() / 3 ? 1 : 0;
    expect_found(file, bad, str_cat("bit ", bit, " of ", file));
    flip_bit(newest_ / file, bit);
    if (HasFailure()) break;
  }
  EXPECT_GT(partial_damage, trials / 20) << "the checkpoint is too small to tell damaged tensors from whole ones";
  expect_clean();
}

TEST_F(CheckpointDamage, EveryTruncationIsFound) {
  std::mt19937_64 random(20240608);
  const int trials = long_form() ? 5000 : under_address_sanitizer() ? 60 : 200;
  for (int trial = 0; trial < trials; ++trial) {
    const auto [file, length] = random_byte(random, trial);
    fs::resize_file(newest_ / file, static_cast<uintmax_t>(length));
    std::set<std::string> bad;  // the size of a file is checked before anything is read of it
    for (const auto& [name, at] : layout_) {
      if (at.file == file) bad.insert(name);
    }
    expect_found(file, bad, str_cat(file, " cut at ", length));
    patch(newest_ / file, length, clean_[file].substr(static_cast<size_t>(length)));
    if (HasFailure()) break;
  }
  expect_clean();
}

TEST_F(CheckpointDamage, BytesAppendedAndFilesExchangedAreFound) {
  for (const char* file : kFiles) {
    patch(newest_ / file, static_cast<int64_t>(clean_[file].size()), "x");
    std::set<std::string> bad;
    for (const auto& [name, at] : layout_) {
      if (at.file == file) bad.insert(name);
    }
    expect_found(file, bad, str_cat(file, " longer by a byte"));
    fs::resize_file(newest_ / file, clean_[file].size());
  }
  // The older checkpoint's weights: a valid file of the same size and layout, but not this checkpoint's.
  const fs::path older = checkpoints_dir(dir_.path()) / directory_name(1) / kFiles[2];
  ASSERT_EQ(fs::file_size(older), clean_[kFiles[2]].size());
  fs::copy_file(older, newest_ / kFiles[2], fs::copy_options::overwrite_existing);
  Log log([](std::string_view) {});
  EXPECT_EQ(newest_good(dir_.path(), log)->step, 1);
}

}  // namespace
}  // namespace ashlar::checkpoint
