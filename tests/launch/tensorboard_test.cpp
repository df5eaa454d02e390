// Event files of TensorBoard, read by a reader of protocol buffers that shares nothing with the writer. What
// TensorBoard itself reads stands in launch/RESULTS.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/strings.h"
#include "launch/training/tensorboard_events.h"
#include "launch/training/tensorboard_sink.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::training {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

/// CRC-32C, bit by bit.
uint32_t slow_crc(std::string_view bytes) {
  uint32_t crc = 0xffffffff;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc / 2 ^ 0x82F63B78 : crc / 2;
  }
  return crc ^ 0xffffffff;
}
uint32_t masked(std::string_view bytes) {
  const uint32_t crc = slow_crc(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8;
}

template <typename T>
T value_at(std::string_view bytes, size_t at) {
  T value{};
  if (at + sizeof(T) > bytes.size()) ADD_FAILURE() << "the text ends at " << bytes.size();
  if (at + sizeof(T) <= bytes.size()) std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

/// The payloads of a file of TFRecords, whose checksums are checked.
std::vector<std::string> payloads(const std::string& file) {
  std::vector<std::string> all;
  for (size_t at = 0; at < file.size();) {
    const auto size = value_at<uint64_t>(file, at);
    EXPECT_EQ(value_at<uint32_t>(file, at + 8), masked(file.substr(at, 8)));
    if (at + 16 + size > file.size()) {
      ADD_FAILURE() << "a record of " << size << " bytes at " << at << " of " << file.size();
      break;
    }
    all.push_back(file.substr(at + 12, size));
    EXPECT_EQ(value_at<uint32_t>(file, at + 12 + size), masked(all.back()));
    at += 16 + size;
  }
  return all;
}

/// The fields of a message, in order: number and bytes (of a varint its 8 bytes).
std::vector<std::pair<uint64_t, std::string>> fields(const std::string& message) {
  std::vector<std::pair<uint64_t, std::string>> all;
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0; at < message.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(message[at++]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    return value;
  };
  while (at < message.size()) {
    const uint64_t key = varint();
    std::string bytes;
    if (key % 8 == 0) {
      const uint64_t value = varint();
      bytes.assign(reinterpret_cast<const char*>(&value), 8);
    } else {
      const size_t size = key % 8 == 1 ? 8 : key % 8 == 5 ? 4 : varint();
      bytes = message.substr(at, size);
      at += size;
    }
    all.emplace_back(key / 8, bytes);
  }
  return all;
}

struct Event {
  double time = 0;
  int64_t step = 0;
  std::string version;
  std::map<std::string, float> scalars;
  std::map<std::string, std::string> texts;
  bool starts = false;
};

Event event_of(const std::string& payload) {
  Event e;
  for (const auto& [field, bytes] : fields(payload)) {
    if (field == 1) e.time = value_at<double>(bytes, 0);
    if (field == 2) e.step = value_at<int64_t>(bytes, 0);
    if (field == 3) e.version = bytes;
    if (field == 7) e.starts = fields(bytes) == std::vector{std::pair{uint64_t{1}, std::string("\1\0\0\0\0\0\0\0", 8)}};
    if (field != 5) continue;
    for (const auto& [one, value] : fields(bytes)) {
      EXPECT_EQ(one, 1U);
      std::string tag, text, plugin;
      std::optional<float> scalar;
      for (const auto& [part, what] : fields(value)) {
        if (part == 1) tag = what;
        if (part == 2) scalar = value_at<float>(what, 0);
        if (part == 8)
          for (const auto& [of_tensor, string] : fields(what)) text = of_tensor == 8 ? string : text;
        if (part == 9) plugin = fields(fields(what).at(0).second).at(0).second;
      }
      if (scalar) e.scalars[tag] = *scalar;
      if (plugin == "text") e.texts[tag] = text;
    }
  }
  return e;
}

class TensorBoard : public ::testing::Test {
 protected:
  TensorBoardSink sink(int64_t completed_steps) {
    return TensorBoardSink({.dir = dir_.path(),
                            .completed_steps = completed_steps,
                            .config_toml = "[run]\n",
                            .log = log_,
                            .clock = [this] { return time_ += 0.0625; }});
  }
  /// The events of each file, in the order of the files' names.
  std::vector<std::vector<Event>> files() const {
    std::map<std::string, std::vector<Event>> all;
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
      std::ifstream in(entry.path(), std::ios::binary);
      std::ostringstream text;
      text << in.rdbuf();
      for (const std::string& payload : payloads(text.str())) all[entry.path().filename()].push_back(event_of(payload));
    }
    std::vector<std::vector<Event>> ordered;
    for (auto& [name, events] : all) {
      EXPECT_THAT(name, ::testing::StartsWith("events.out.tfevents.17"));
      ordered.push_back(std::move(events));
    }
    return ordered;
  }

  testing::ScratchDir dir_;
  Log log_{[](std::string_view) {}};
  double time_ = 1.7e9;
};

TEST_F(TensorBoard, HasWhatTheRunMeasures) {
  {
    TensorBoardSink s = sink(0);
    s.step({.step = 1,
            .total_steps = 2,
            .result = {.loss = 1.5, .grad_norm = 0.25, .layers = {{"moe_balance", 1.25}}},
            .lr = 1e-3,
            .tokens = 300,
            .mfu = 0.5});
    s.validation({.step = 1, .result = {}, .seconds = 1});  // was interrupted
    s.validation({.step = 2,
                  .result = ValidationResult{
                      .sources = {{"a", 1, 2, 7}, {"b", 3, 3, 7}}, .mixture = true, .loss = 2.75, .tokens = 14}});
    s.validation({.step = 3, .result = ValidationResult{.sources = {{"a", 1, 2, 7, 9}}, .bits_per_byte = 1.5}});
    s.statistics({.step = 2,
                  .tensors = {{.name = "w", .weight_rms = 0.5, .grad_rms = 0.125}},
                  .residual_rms = {1, 2},
                  .experts = {{.layer = 3, .max_over_mean = 1.5, .idle = 2, .bias_range = std::pair(-0.5, 0.5)}}});
  }
  ASSERT_EQ(files().size(), 1U);
  const std::vector<Event> events = files()[0];
  ASSERT_EQ(events.size(), 6U);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_THAT(events[1].texts, ElementsAre(Pair("config", "```toml\n[run]\n```\n")));
  EXPECT_EQ(events[2].step, 1);
  EXPECT_EQ(events[2].time, 1.7e9 + 0.25);
  const auto of = [&](const char* tag) { return events[2].scalars.at(tag); };
  EXPECT_EQ(of("train/loss"), 1.5F);
  EXPECT_EQ(of("train/grad_norm"), 0.25F);
  EXPECT_EQ(of("train/lr"), 1e-3F);
  EXPECT_EQ(of("train/tokens"), 300.0F);
  EXPECT_EQ(of("train/moe_balance"), 1.25F);
  EXPECT_EQ(of("speed/mfu"), 0.5F);
  EXPECT_EQ(events[2].scalars.count("speed/mfu_causal"), 0U) << "is not known";
  EXPECT_EQ(events[2].scalars.count("gpu/watts"), 0U) << "is not known";
  EXPECT_EQ(events[3].step, 2);
  EXPECT_THAT(events[3].scalars,
              UnorderedElementsAre(Pair("val/loss", 2.75F), Pair("val/loss/a", 2.0F), Pair("val/loss/b", 3.0F)));
  EXPECT_THAT(events[4].scalars, UnorderedElementsAre(Pair("val/loss", 0.0F), Pair("val/bpb", 1.5F)));
  EXPECT_THAT(events[5].scalars,
              UnorderedElementsAre(Pair("weight_rms/w", 0.5F), Pair("grad_rms/w", 0.125F),
                                   Pair("output_rms/embed", 1.0F), Pair("output_rms/blocks.0", 2.0F),
                                   Pair("experts/max_over_mean/blocks.3", 1.5F), Pair("experts/idle/blocks.3", 2.0F),
                                   Pair("experts/bias_min/blocks.3", -0.5F), Pair("experts/bias_max/blocks.3", 0.5F)));
}

// Three starts within a second: the files sort in their order, and the second says from where it repeats steps.
TEST_F(TensorBoard, AResumeMarksItsFirstStep) {
  for (const int64_t completed : {0, 40, 40}) sink(completed).step({.step = completed + 1, .total_steps = 100});
  const auto all = files();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_FALSE(all[0][1].starts);
  for (const size_t file : {1, 2}) {
    EXPECT_TRUE(all[file][1].starts);
    EXPECT_EQ(all[file][1].step, 41);
    EXPECT_EQ(all[file].back().step, 41);
    EXPECT_LT(all[file - 1].back().time, all[file][0].time);
  }
}

TEST_F(TensorBoard, OfAFolderThatIsGoneIsAnInputError) {
  try {
    TensorBoardSink({.dir = dir_.path() / "none", .config_toml = "", .log = log_});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kInput);
    EXPECT_THAT(error.what(), HasSubstr("[tensorboard] cannot open "));
  }
}

// RFC 3720, appendix B.4, and the check value of the catalogue of CRCs.
TEST(Crc32c, HasThePublishedValues) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43U);
}

}  // namespace
}  // namespace ashlar::training
