// What no writer of the fixtures writes, but the formats of Thrift and Parquet allow or forbid.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/parquet/codec.h"
#include "data/parquet/fault.h"
#include "data/parquet/footer.h"
#include "data/parquet/number_runs.h"
#include "data/parquet/text_values.h"
#include "data/parquet/thrift_compact.h"
#include "tests/data/input_fixture.h"

namespace ashlar::data {
namespace {

using namespace std::string_literals;
using namespace std::string_view_literals;

TEST(ThriftLists, OfFifteenElementsHaveACount) {
  for (const int count : {14, 15, 16}) {
    std::string bytes = "\x19";                                  // field 1, a list
    bytes += static_cast<char>((std::min(count, 15) << 4) | 5);  // of 32-bit integers
    if (count >= 15) bytes += static_cast<char>(count);
    for (int i = 0; i < count; ++i) bytes += static_cast<char>(2 * i);
    bytes += '\0';
    std::vector<int64_t> read;
    ThriftReader reader(bytes);
    reader.structure([&](int64_t, ThriftReader::Type type) {
      reader.list(type, ThriftReader::Type::kI32, [&] { read.push_back(reader.integer(ThriftReader::Type::kI32)); });
      return true;
    });
    ASSERT_EQ(std::ssize(read), count);
    EXPECT_EQ(read.back(), count - 1);
    EXPECT_EQ(reader.consumed(), bytes.size());
  }
}

/// Numbers 0, 1, 2, ... in blocks of 128 differences, four parts each; parts without numbers have widths of 7.
std::string counting_deltas(int count) {
  std::string bytes = "\x80\x01\x04"s;
  for (int left = count; left > 0; left = left > 127 ? left >> 7 : 0)
    bytes += static_cast<char>(left > 127 ? (left & 127) | 128 : left);
  bytes += '\0';  // the first number
  for (int left = count - 1; left > 0; left -= 128) {
    bytes += '\x02';  // the smallest difference, 1; of no bits each
    for (int part = 0; part < 4; ++part) bytes += left > 32 * part ? '\0' : '\7';
  }
  return bytes;
}

TEST(DeltaNumbers, EndWithTheirLastPart) {
  for (const int count : {1, 2, 32, 33, 34, 65, 128, 129, 130, 257}) {
    const std::string bytes = counting_deltas(count);
    const std::string all = bytes + std::string(64, '\1');  // enough for a part of seven bits, read by mistake
    DeltaReader reader(all);
    EXPECT_EQ(reader.end(), bytes.size()) << count;
    for (int i = 0; i < count; ++i) EXPECT_EQ(reader.next(), i) << count;
    EXPECT_THROW(reader.next(), ParquetFault);
  }
}

std::vector<std::string> texts_of_page(std::string_view body, int64_t values, int64_t encoding,
                                       std::span<const std::string_view> dictionary = {}) {
  const auto bytes = static_cast<int64_t>(body.size());
  const PageHeader header{
      .type = PageType::kDataV2, .packed_bytes = bytes, .bytes = bytes, .values = values, .encoding = encoding};
  std::vector<std::string> texts;
  each_text(UnpackedPage(header, ParquetCodec::kUncompressed, body), 0, dictionary,
            [&](std::optional<std::string_view> text) { texts.emplace_back(text.value()); });
  return texts;
}

TEST(ParquetTexts, AreThoseOfADictionaryAndNoOthers) {
  const std::string_view dictionary[] = {"zero", "one"};
  // Indices of two bits: a run of three ones, a run of one zero.
  EXPECT_THAT(texts_of_page("\x02\x06\x01\x02\x00"sv, 4, 8, dictionary),
              ::testing::ElementsAre("one", "one", "one", "zero"));
  try {
    texts_of_page("\x02\x02\x02"sv, 1, 8, dictionary);
    FAIL() << "an index behind the dictionary";
  } catch (const ParquetFault& fault) {
    EXPECT_THAT(fault.reason, ::testing::HasSubstr("index 2 into a dictionary of 2 texts"));
  }
}

TEST(ParquetTexts, FillTheirPage) {
  EXPECT_THAT(texts_of_page("\x02\0\0\0ab\x01\0\0\0c"sv, 2, 0), ::testing::ElementsAre("ab", "c"));
  EXPECT_THROW(texts_of_page("\x02\0\0\0ab\x01\0\0\0c"sv, 1, 0), ParquetFault);
  EXPECT_THROW(texts_of_page("\x02\0\0\0ab\x01\0\0\0c"sv, 3, 0), ParquetFault);
}

TEST(ParquetPages, MayBeSeveralMembersOfGzip) {
  std::string out(5, ' ');
  unpack_page(ParquetCodec::kGzip, gzipped("one") + gzipped("tw"), out);
  EXPECT_EQ(out, "onetw");
  EXPECT_THROW(unpack_page(ParquetCodec::kGzip, gzipped("one"), out), ParquetFault);
}

/// A field of a struct: its number as a distance to the one before, and its type.
char field(int distance, int type) { return static_cast<char>(distance << 4 | type); }
char zigzag(int64_t number) { return static_cast<char>(2 * number); }
std::string name_field(int distance, const std::string& name) {
  return std::string{field(distance, 8), static_cast<char>(name.size())} + name;
}

/// A footer of one row group of required strings, `rows` in all and `in_group` in the group.
std::string footer_of(const std::vector<std::string>& columns, int64_t rows, int64_t in_group) {
  constexpr int kI32 = 5, kI64 = 6, kList = 9, kStruct = 12;
  const auto count = std::ssize(columns);
  std::string footer{field(2, kList), field(static_cast<int>(count) + 1, kStruct)};
  footer += name_field(4, "root") + std::string{field(1, kI32), zigzag(count), '\0'};
  for (const std::string& column : columns)
    footer += std::string{field(1, kI32), zigzag(6), field(2, kI32), zigzag(0)} + name_field(1, column) + '\0';
  footer += std::string{field(1, kI64), zigzag(rows), field(1, kList), field(1, kStruct)};
  footer += std::string{field(1, kList), field(static_cast<int>(count), kStruct)};
  for (int64_t i = 0; i < count; ++i)
    footer += std::string{field(3, kStruct), field(1, kI32), zigzag(6), field(3, kI32), zigzag(0), field(1, kI64),
                          zigzag(in_group),  field(4, kI64), zigzag(4), '\0',           '\0'};
  return footer + std::string{field(2, kI64), zigzag(in_group), '\0', '\0'};
}

std::string fault_of_footer(const std::string& footer) {
  try {
    read_column_footer(footer, 100, "text");
  } catch (const ParquetFault& fault) {
    return fault.reason;
  }
  return "";
}

TEST(ParquetFooters, HaveAsManyRowsAsTheirGroups) {
  EXPECT_EQ(read_column_footer(footer_of({"other", "text"}, 3, 3), 100, "text").chunks.at(0).rows, 3);
  EXPECT_THAT(fault_of_footer(footer_of({"text"}, 4, 3)), ::testing::HasSubstr("says 4 rows, its row groups have 3"));
}

TEST(ParquetFooters, HaveOneColumnOfTheName) {
  EXPECT_EQ(fault_of_footer(footer_of({"text", "texts"}, 3, 3)), "");
  EXPECT_THAT(fault_of_footer(footer_of({"text", "a", "text"}, 3, 3)), ::testing::HasSubstr("two columns 'text'"));
}

}  // namespace
}  // namespace ashlar::data
