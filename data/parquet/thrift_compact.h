#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "data/parquet/fault.h"

namespace ashlar::data {

/// Reads the variable-length integer (7 bits a byte, the lowest first) at `at` and moves `at` behind it. Returns false
/// if the bytes end inside it. Throws ParquetFault for more than ten bytes.
bool read_varint(std::string_view bytes, size_t& at, uint64_t& value);
constexpr int64_t from_zigzag(uint64_t value) {
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1U);
}

/// Reads structs in Thrift's compact protocol, without copies: strings are views of the bytes. Allocates nothing, and
/// never reads outside the bytes.
/// Source: Apache Thrift, doc/specs/thrift-compact-protocol.md.
class ThriftReader {
 public:
  enum class Type : uint8_t {
    kStop,
    kTrue,
    kFalse,
    kByte,
    kI16,
    kI32,
    kI64,
    kDouble,
    kBinary,
    kList,
    kSet,
    kMap,
    kStruct
  };
  /// Thrown when the bytes end inside the struct: there may be more in the file.
  struct End {};

  explicit ThriftReader(std::string_view bytes) : bytes_(bytes) {}
  size_t consumed() const { return at_; }

  /// Reads a struct. Calls `field(id, type)` for each field, which reads the value and returns true, or returns false
  /// to skip it.
  template <typename Field>
  void structure(const Field& field) {
    int64_t id = 0;
    for (;;) {
      const uint8_t head = byte();
      const Type type = type_of(head & 0x0FU);
      if (type == Type::kStop) return;
      id = head >> 4 != 0 ? id + (head >> 4) : from_zigzag(varint());
      if (!field(id, type)) skip(type, 0);
    }
  }
  /// Reads a list of values of type `element` and calls `each()` for each, which reads it. `type` is the type of the
  /// field.
  template <typename Each>
  void list(Type type, Type element, const Each& each) {
    const Elements elements = list_head(type);
    if (elements.count > 0 && elements.type != element)
      throw damaged_parquet("a list in its metadata has another type");
    for (uint64_t i = 0; i < elements.count; ++i) each();
  }
  int64_t integer(Type type);
  bool boolean(Type type) const;
  std::string_view binary(Type type);

 private:
  struct Elements {
    Type type = Type::kStop;
    uint64_t count = 0;
  };
  static Type type_of(unsigned code);
  Elements list_head(Type type);
  uint8_t byte();
  uint64_t varint();
  std::string_view take(uint64_t n);
  void skip(Type type, int depth);
  void skip_element(Type type, int depth);

  std::string_view bytes_;
  size_t at_ = 0;
};

}  // namespace ashlar::data
