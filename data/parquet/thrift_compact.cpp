#include "data/parquet/thrift_compact.h"

namespace ashlar::data {
namespace {

constexpr int kMaxThriftDepth = 32;
constexpr size_t kMaxVarintBytes = 10;

}  // namespace

bool read_varint(std::string_view bytes, size_t& at, uint64_t& value) {
  value = 0;
  for (size_t n = 0; n < kMaxVarintBytes; ++n) {
    if (at >= bytes.size()) return false;
    const auto byte = static_cast<uint8_t>(bytes[at++]);
    value |= static_cast<uint64_t>(byte & 0x7FU) << (7 * n);
    if (byte < 0x80U) return true;
  }
  throw damaged_parquet("an integer has more than ", kMaxVarintBytes, " bytes");
}

ThriftReader::Type ThriftReader::type_of(unsigned code) {
  if (code > static_cast<unsigned>(Type::kStruct)) throw damaged_parquet("its metadata has a field of type ", code);
  return static_cast<Type>(code);
}

uint8_t ThriftReader::byte() { return static_cast<uint8_t>(take(1)[0]); }

uint64_t ThriftReader::varint() {
  uint64_t value = 0;
  if (!read_varint(bytes_, at_, value)) throw End{};
  return value;
}

std::string_view ThriftReader::take(uint64_t n) {
  if (n > bytes_.size() - at_) throw End{};
  const std::string_view taken = bytes_.substr(at_, n);
  at_ += n;
  return taken;
}

int64_t ThriftReader::integer(Type type) {
  if (type == Type::kByte) return static_cast<int8_t>(byte());
  if (type != Type::kI16 && type != Type::kI32 && type != Type::kI64)
    throw damaged_parquet("a field of its metadata is not an integer");
  return from_zigzag(varint());
}

bool ThriftReader::boolean(Type type) const {
  if (type != Type::kTrue && type != Type::kFalse) throw damaged_parquet("a field of its metadata is not a boolean");
  return type == Type::kTrue;
}

std::string_view ThriftReader::binary(Type type) {
  if (type != Type::kBinary) throw damaged_parquet("a field of its metadata is not a string");
  return take(varint());
}

ThriftReader::Elements ThriftReader::list_head(Type type) {
  if (type != Type::kList && type != Type::kSet) throw damaged_parquet("a field of its metadata is not a list");
  const uint8_t head = byte();
  Elements elements{.type = type_of(head & 0x0FU), .count = static_cast<uint64_t>(head >> 4)};
  if (elements.count == 15) elements.count = varint();
  if (elements.count > bytes_.size() - at_) throw End{};  // every element has at least one byte
  return elements;
}

void ThriftReader::skip_element(Type type, int depth) {
  // In a list a boolean is a byte; as a field it is in the type.
  if (type == Type::kTrue || type == Type::kFalse) {
    take(1);
  } else {
    skip(type, depth);
  }
}

void ThriftReader::skip(Type type, int depth) {
  if (depth > kMaxThriftDepth) throw damaged_parquet("its metadata is nested too deeply");
  switch (type) {
    case Type::kStop: throw damaged_parquet("its metadata has a value without a type");
    case Type::kTrue:
    case Type::kFalse: return;
    case Type::kByte: take(1); return;
    case Type::kI16:
    case Type::kI32:
    case Type::kI64: varint(); return;
    case Type::kDouble: take(8); return;
    case Type::kBinary: take(varint()); return;
    case Type::kList:
    case Type::kSet: {
      const Elements elements = list_head(type);
      for (uint64_t i = 0; i < elements.count; ++i) skip_element(elements.type, depth + 1);
      return;
    }
    case Type::kMap: {
      const uint64_t count = varint();
      if (count == 0) return;
      const uint8_t types = byte();
      for (uint64_t i = 0; i < count; ++i) {
        skip_element(type_of(types >> 4), depth + 1);
        skip_element(type_of(types & 0x0FU), depth + 1);
      }
      return;
    }
    case Type::kStruct:
      structure([&](int64_t, Type field) {
        skip(field, depth + 1);
        return true;
      });
  }
}

}  // namespace ashlar::data
