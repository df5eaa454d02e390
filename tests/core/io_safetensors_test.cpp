#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/philox.h"
#include "core/io/safetensors.h"
#include "core/io/safetensors_model.h"
#include "tests/support/file_bytes.h"
#include "tests/support/scratch_dir.h"
#include "tests/support/thrown.h"

namespace ashlar::io {
namespace {

using ::ashlar::testing::error_of;
using ::ashlar::testing::slurp;
using ::ashlar::testing::spit;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// A file put together by hand: length, header, data.
std::string file_bytes(const std::string& header, const std::string& data) {
  std::string out(8, '\0');
  uint64_t length = header.size();
  for (char& byte : out) {
    byte = static_cast<char>(length & 0xff);
    length >>= 8;
  }
  return out + header + data;
}

// Two tensors and a scalar, offsets out of name order, as any writer may lay them out.
const char kHeader[] =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,2],"data_offsets":[2,18]},)"
    R"("a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]},"none":{"dtype":"I64","shape":[3,0],"data_offsets":[18,18]}}  )";

std::string hand_made_data() {
  const float values[4] = {1.5F, -2.0F, 0.25F, 1e30F};
  std::string data("\x80\x3f", 2);  // bf16 1.0
  data.append(reinterpret_cast<const char*>(values), sizeof(values));
  return data;
}

TEST(Safetensors, ReadsHandMadeBytes) {
  const ashlar::testing::ScratchDir dir;
  const std::string path = dir.file("x.safetensors");
  spit(path, file_bytes(kHeader, hand_made_data()));
  const SafetensorsReader reader(path);
  ASSERT_EQ(reader.tensors().size(), 3U);
  EXPECT_EQ(reader.tensors()[0].name, "a");
  EXPECT_EQ(reader.tensors()[0].num_elems(), 1);
  EXPECT_EQ(reader.tensors()[0].dtype, FileDType::kBF16);
  EXPECT_THAT(reader.at("b").shape, ElementsAre(2, 2));
  EXPECT_EQ(reader.at("none").num_bytes(), 0);
  EXPECT_EQ(reader.metadata().at("format"), "pt");
  EXPECT_EQ(reader.find("c"), nullptr);
  std::vector<float> b(4);
  reader.read(reader.at("b"), std::as_writable_bytes(std::span(b)));
  EXPECT_THAT(b, ElementsAre(1.5F, -2.0F, 0.25F, 1e30F));
  reader.read_range(reader.at("b"), 8, std::as_writable_bytes(std::span(b).first(2)));
  EXPECT_EQ(b[0], 0.25F);
  EXPECT_EQ(b[1], 1e30F);
  const Error error = error_of([&] { reader.at("c"); });
  EXPECT_EQ(error.code(), ExitCode::kDamagedData);
  EXPECT_THAT(error.what(), HasSubstr("'c'"));
}

struct BadHeader {
  const char* header;
  const char* expect;
};

TEST(SafetensorsReader, NoMetadataMayBeWrittenAsNull) {
  const ashlar::testing::ScratchDir dir;
  const auto path = dir.file("x.safetensors");
  spit(path, file_bytes(R"({"__metadata__":null,"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "1234"));
  const SafetensorsReader reader(path);
  EXPECT_TRUE(reader.metadata().empty());
  EXPECT_EQ(reader.tensors().size(), 1U);
}

TEST(Safetensors, EveryMalformedHeaderIsNamed) {
  const ashlar::testing::ScratchDir dir;
  const std::string path = dir.file("bad.safetensors");
  const BadHeader table[] = {
      {"", "does not begin with '{'"},
      {"[]", "does not begin with '{'"},
      {" {}", "does not begin with '{'"},
      {"{", "not valid JSON"},
      {"{}x", "not valid JSON"},
      {"{\"a\":1e999}", "a number or index is out of range: number overflow parsing '1e999'"},
      {"{\"a\":\xff}", "not valid JSON"},
      {R"({"a":1})", "'a' is not described by an object"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", "'data_offsets' is missing"},
      {R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", "'shape' is missing"},
      {R"({"a":{"shape":[1],"data_offsets":[0,4]}})", "'dtype' is missing"},
      {R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", "unknown dtype 'F31'"},
      {R"({"a":{"dtype":5,"shape":[1],"data_offsets":[0,4]}})", "dtype is not a string"},
      {R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", "shape is not a list"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "non-negative"},
      {R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", "non-negative"},
      {R"({"a":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})", "non-negative"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", "below 2^63"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,1e3]}})", "non-negative"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", "not a pair"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", "are outside"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "are outside the 4 bytes"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "need 8"},
      {R"({"a":{"dtype":"F16","shape":[1],"data_offsets":[0,4]}})", "need 2"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", "too large"},
      {R"({"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}})", "the tensors end at byte"},
      {R"({"a":{"dtype":"F16","shape":[1],"data_offsets":[2,4]}})", "overlap or leave a gap"},
      {R"({"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       "overlap or leave a gap"},
      {R"({"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},"a":{"dtype":"F16","shape":[1],"data_offsets":[2,4]}})",
       "has the key 'a' twice"},
      {R"({"a":{"dtype":"F32","dtype":"I32","shape":[1],"data_offsets":[0,4]}})", "has the key 'dtype' twice"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"strides":[1]}})", "unknown field 'strides'"},
      {R"({"__metadata__":3,"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "__metadata__ is not an object"},
      {R"({"__metadata__":{"k":3},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "'k' is not a string"},
      {"{\"line\\nbreak\":1}", "'line\\nbreak'"},
  };
  for (const BadHeader& row : table) {
    spit(path, file_bytes(row.header, "1234"));
    const Error error = error_of([&] { SafetensorsReader reader(path); });
    EXPECT_EQ(error.code(), ExitCode::kDamagedData) << row.header;
    EXPECT_THAT(error.what(), HasSubstr(row.expect)) << row.header;
    EXPECT_THAT(error.what(), HasSubstr(path)) << row.header;
  }
}

TEST(Safetensors, DeeplyNestedHeadersDoNotExhaustTheStack) {
  const ashlar::testing::ScratchDir dir;
  const std::string path = dir.file("deep.safetensors");
  const std::string open(500'000, '[');
  for (const std::string& header : {"{\"a\":" + open, "{\"a\":" + open + std::string(500'000, ']') + "}"}) {
    spit(path, file_bytes(header, ""));
    EXPECT_EQ(error_of([&] { SafetensorsReader reader(path); }).code(), ExitCode::kDamagedData);
  }
}

TEST(Safetensors, EveryTruncationAndTrailingByteIsAnError) {
  const ashlar::testing::ScratchDir dir;
  const std::string path = dir.file("cut.safetensors");
  const std::string whole = file_bytes(kHeader, hand_made_data());
  for (size_t length = 0; length < whole.size(); ++length) {
    spit(path, whole.substr(0, length));
    EXPECT_EQ(error_of([&] { SafetensorsReader reader(path); }).code(), ExitCode::kDamagedData) << length;
  }
  spit(path, whole + "x");
  EXPECT_THAT(error_of([&] { SafetensorsReader reader(path); }).what(), HasSubstr("extra bytes"));
  std::string huge = whole;
  huge[7] = '\x7f';  // a header of 2^62 bytes
  spit(path, huge);
  EXPECT_THAT(error_of([&] { SafetensorsReader reader(path); }).what(), HasSubstr("header length"));
}

TEST(Safetensors, MutatedHeadersNeverCrashAndNeverReadOutOfPlace) {
  const ashlar::testing::ScratchDir dir;
  const std::string path = dir.file("fuzz.safetensors");
  const std::string whole = file_bytes(kHeader, hand_made_data());
  const size_t header_end = 8 + std::strlen(kHeader);
  int refused = 0;
  constexpr int kMutations = 600;
  for (int i = 0; i < kMutations; ++i) {
    const Philox::Counter random = Philox::block(7, 0, static_cast<uint64_t>(i));
    std::string mutated = whole;
    const size_t at = random[0] % header_end;
    switch (random[1] % 4) {
      case 0: mutated[at] = static_cast<char>(mutated[at] ^ (1 << (random[2] % 8))); break;
      case 1: mutated[at] = static_cast<char>(random[2]); break;
      case 2: mutated.erase(at, 1 + random[2] % 4); break;
      default: mutated.insert(at, 1 + random[2] % 4, "0123456789,:[]{}\""[random[3] % 17]); break;
    }
    spit(path, mutated);
    try {
      // A mutation may still be a valid file (a letter of a name, another dtype of the same width): then all it
      // declares must lie inside the file.
      const SafetensorsReader reader(path);
      for (const TensorEntry& tensor : reader.tensors()) {
        std::vector<std::byte> out(static_cast<size_t>(tensor.num_bytes()));
        reader.read(tensor, out);
      }
    } catch (const Error& error) {
      ++refused;
      EXPECT_EQ(error.code(), ExitCode::kDamagedData);
      EXPECT_THAT(error.what(), HasSubstr(path));
      EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
    }
  }
  EXPECT_GT(refused, kMutations / 2);
}

TEST(Safetensors, WriterAndReaderAgreeAndChecksumsCoverTheFile) {
  const ashlar::testing::ScratchDir dir;
  const std::string path = dir.file("w.safetensors");
  SafetensorsWriter writer(
      path, {{"z", FileDType::kF64, {3}}, {"empty", FileDType::kF32, {0, 5}}, {"a", FileDType::kU8, {2, 1}}},
      {{"format", "pt"}, {"note", "quote \" and \\"}});
  const double z[3] = {1.0, -0.0, 5e-324};
  writer.write("z", std::as_bytes(std::span(z, 1)));
  EXPECT_FALSE(std::filesystem::exists(path));
  writer.write("z", std::as_bytes(std::span(z + 1, 2)));
  const uint8_t a[2] = {7, 255};
  writer.write("a", std::as_bytes(std::span(a)));
  const ChunkChecksums sums = writer.finish();
  EXPECT_EQ(sums, checksum_file(path));
  const SafetensorsReader reader(path, sums);
  EXPECT_EQ(reader.metadata().at("note"), "quote \" and \\");
  EXPECT_EQ(reader.tensors()[0].begin % 8, 0);
  double back[3];
  reader.read(reader.at("z"), std::as_writable_bytes(std::span(back)));
  EXPECT_EQ(std::memcmp(back, z, sizeof(z)), 0);
  // A flip in the data fails the read that would use it; a flip in the header fails the opening.
  std::string bytes = slurp(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  spit(path, bytes);
  EXPECT_EQ(error_of([&] { SafetensorsReader damaged(path, sums); }).code(), ExitCode::kDamagedData);
}

TEST(Safetensors, WriterIsByteIdenticalToTheHandMadeLayout) {
  const ashlar::testing::ScratchDir dir;
  SafetensorsWriter writer(dir.file("w"), {{"a", FileDType::kI32, {1}}});
  const int32_t value = 0x01020304;
  writer.write("a", std::as_bytes(std::span(&value, 1)));
  writer.finish();
  EXPECT_EQ(slurp(dir.file("w")),
            file_bytes(R"({"a":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}}  )", "\x04\x03\x02\x01"));
}

TEST(Safetensors, WriterRefusesMisuse) {
  const ashlar::testing::ScratchDir dir;
  const auto make = [&](std::vector<TensorSpec> specs) { SafetensorsWriter writer(dir.file("m"), std::move(specs)); };
  EXPECT_EQ(error_of([&] {
              make({{"a", FileDType::kF32, {1}}, {"a", FileDType::kF32, {1}}});
            }).code(),
            ExitCode::kInput);
  EXPECT_EQ(error_of([&] { make({{"__metadata__", FileDType::kF32, {1}}}); }).code(), ExitCode::kInput);
  SafetensorsWriter writer(dir.file("m"), {{"a", FileDType::kU8, {2}}, {"b", FileDType::kU8, {2}}});
  const uint8_t data[3] = {1, 2, 3};
  EXPECT_THROW(writer.write("b", std::as_bytes(std::span(data, 2))), Bug);
  EXPECT_THROW(writer.write("a", std::as_bytes(std::span(data, 3))), Bug);
  writer.write("a", std::as_bytes(std::span(data, 2)));
  EXPECT_THROW(writer.finish(), Bug);
  EXPECT_FALSE(std::filesystem::exists(dir.file("m")));
}

void write_shard(const std::string& path, const std::string& name, uint8_t value) {
  SafetensorsWriter writer(path, {{name, FileDType::kU8, {1}}});
  writer.write(name, std::as_bytes(std::span(&value, 1)));
  writer.finish();
}

TEST(SafetensorsModel, ShardsReadAsOneModel) {
  const ashlar::testing::ScratchDir dir;
  write_shard(dir.file("s1"), "x", 1);
  write_shard(dir.file("s2"), "y", 2);
  const std::string index = dir.file("model.safetensors.index.json");
  spit(index, R"({"metadata":{"total_size":2},"weight_map":{"x":"s1","y":"s2"}})");
  SafetensorsModel model(dir.path());
  EXPECT_THAT(model.names(), ElementsAre("x", "y"));
  uint8_t value = 0;
  model.read("y", std::as_writable_bytes(std::span(&value, 1)));
  EXPECT_EQ(value, 2);
  EXPECT_EQ(model.find("z"), nullptr);
  EXPECT_EQ(error_of([&] { model.at("z"); }).code(), ExitCode::kDamagedData);

  const auto expect_bad = [&](const char* text, const char* expected, ExitCode code) {
    spit(index, text);
    const Error error = error_of([&] { SafetensorsModel bad(dir.path()); });
    EXPECT_EQ(error.code(), code) << text;
    EXPECT_THAT(error.what(), HasSubstr(expected)) << text;
  };
  expect_bad("nonsense", "not valid JSON", ExitCode::kDamagedData);
  expect_bad("[]", "not a JSON object", ExitCode::kDamagedData);
  expect_bad("{\"weight_map\": 1e999}", "out of range", ExitCode::kDamagedData);
  expect_bad(R"({"metadata":{}})", "weight_map", ExitCode::kDamagedData);
  expect_bad(R"({"weight_map":{}})", "empty", ExitCode::kDamagedData);
  expect_bad(R"({"weight_map":{"x":3}})", "not a string", ExitCode::kDamagedData);
  expect_bad(R"({"weight_map":{"x":"../s1"}})", "not a file name", ExitCode::kDamagedData);
  expect_bad(R"({"weight_map":{"x":"s1","y":"s1"}})", "'y'", ExitCode::kDamagedData);
  expect_bad(R"({"weight_map":{"x":"s1","y":"s2","z":"s2"}})", "'z'", ExitCode::kDamagedData);
  expect_bad(R"({"weight_map":{"x":"s1","q":"s3"}})", "s3", ExitCode::kInput);
  write_shard(dir.file("s3"), "x", 3);
  expect_bad(R"({"weight_map":{"x":"s1","y":"s3"}})", "'y'", ExitCode::kDamagedData);
}

TEST(SafetensorsModel, ShardWithATensorThatTheIndexDoesNotPlaceThere) {
  const ashlar::testing::ScratchDir dir;
  SafetensorsWriter writer(dir.file("s1"), {{"x", FileDType::kU8, {1}}, {"extra", FileDType::kU8, {1}}});
  const uint8_t value = 1;
  writer.write("x", std::as_bytes(std::span(&value, 1)));
  writer.write("extra", std::as_bytes(std::span(&value, 1)));
  writer.finish();
  spit(dir.file("model.safetensors.index.json"), R"({"weight_map":{"x":"s1"}})");
  EXPECT_THAT(error_of([&] { SafetensorsModel bad(dir.path()); }).what(), HasSubstr("'extra'"));
}

// The second shard holds a further `x`: which one is the model's cannot be known.
TEST(SafetensorsModel, ATensorInTwoShards) {
  const ashlar::testing::ScratchDir dir;
  const uint8_t value = 1;
  for (const char* shard : {"s1", "s2"}) {
    SafetensorsWriter writer(dir.file(shard), {{"x", FileDType::kU8, {1}}, {shard, FileDType::kU8, {1}}});
    writer.write("x", std::as_bytes(std::span(&value, 1)));
    writer.write(shard, std::as_bytes(std::span(&value, 1)));
    writer.finish();
  }
  spit(dir.file("model.safetensors.index.json"), R"({"weight_map":{"x":"s1","s1":"s1","s2":"s2"}})");
  const Error error = error_of([&] { SafetensorsModel bad(dir.path()); });
  EXPECT_EQ(error.code(), ExitCode::kDamagedData);
  EXPECT_THAT(error.what(), HasSubstr("'x'"));
  EXPECT_THAT(error.what(), HasSubstr("s2"));
}

TEST(SafetensorsModel, ManyShardsAreOpenedAsNeeded) {
  const ashlar::testing::ScratchDir dir;
  constexpr int kShards = 3 * static_cast<int>(SafetensorsModel::kMaxOpenFiles);
  std::string map;
  for (int i = 0; i < kShards; ++i) {
    const std::string name = str_cat("t", i);
    write_shard(dir.file(name), name, static_cast<uint8_t>(i));
    map += str_cat(i == 0 ? "" : ",", "\"", name, "\":\"", name, "\"");
  }
  spit(dir.file("model.safetensors.index.json"), str_cat("{\"weight_map\":{", map, "}}"));
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  const auto before = open_files();
  SafetensorsModel model(dir.path());
  EXPECT_EQ(open_files(), before);
  const auto read = [&](int i) {
    uint8_t value = 255;
    model.read(str_cat("t", i), std::as_writable_bytes(std::span(&value, 1)));
    return value;
  };
  for (const int stride : {1, 7, 1}) {
    for (int k = 0; k < kShards; ++k) {
      const int i = k * stride % kShards;
      ASSERT_EQ(read(i), i);
      ASSERT_LE(open_files(), before + static_cast<int>(SafetensorsModel::kMaxOpenFiles));
    }
  }
  // Closed by now, and another one when it is opened again.
  write_shard(dir.file("t0"), "longer", 0);
  const Error error = error_of([&] { read(0); });
  EXPECT_EQ(error.code(), ExitCode::kDamagedData);
  EXPECT_THAT(error.what(), HasSubstr("t0' has"));
}

TEST(SafetensorsModel, NeitherFileIsAnInputError) {
  const ashlar::testing::ScratchDir dir;
  EXPECT_EQ(error_of([&] { SafetensorsModel model(dir.path()); }).code(), ExitCode::kInput);
}

TEST(FileDType, NamesSizesAndCoreTypes) {
  for (const char* name : {"BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "I16", "U16", "F16", "BF16", "I32", "U32", "F32",
                           "F64", "I64", "U64"}) {
    const auto dtype = file_dtype_from_name(name);
    ASSERT_TRUE(dtype.has_value()) << name;
    EXPECT_EQ(name_of(*dtype), name);
    const auto core = to_dtype(*dtype);
    if (core) {
      EXPECT_EQ(to_file_dtype(*core), *dtype);
      EXPECT_EQ(size_of(*core), size_of(*dtype));
    }
  }
  EXPECT_EQ(size_of(FileDType::kF16), 2);
  EXPECT_EQ(size_of(FileDType::kU64), 8);
  EXPECT_FALSE(file_dtype_from_name("f32").has_value());
  EXPECT_FALSE(to_dtype(FileDType::kF16).has_value());
}

}  // namespace
}  // namespace ashlar::io
