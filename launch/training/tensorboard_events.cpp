#include "launch/training/tensorboard_events.h"

#include <array>
#include <bit>

namespace ashlar::training {

namespace {

constexpr std::array<uint32_t, 256> crc32c_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0);
    table[byte] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrc32c = crc32c_table();

void put_little_endian(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

/// Builds a message of protocol buffers from its fields.
class Message {
 public:
  Message& varint(int field, uint64_t value) {
    put_key(field, 0);
    put_varint(value);
    return *this;
  }
  Message& fixed64(int field, double value) {
    put_key(field, 1);
    put_little_endian(text_, std::bit_cast<uint64_t>(value), 8);
    return *this;
  }
  Message& fixed32(int field, float value) {
    put_key(field, 5);
    put_little_endian(text_, std::bit_cast<uint32_t>(value), 4);
    return *this;
  }
  Message& bytes(int field, std::string_view value) {
    put_key(field, 2);
    put_varint(value.size());
    text_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return bytes(field, value.text_); }
  const std::string& text() const { return text_; }

 private:
  void put_key(int field, int wire_type) { put_varint(static_cast<uint64_t>(field << 3 | wire_type)); }
  void put_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_ += static_cast<char>(value | 0x80);
    text_ += static_cast<char>(value);
  }

  std::string text_;
};

uint32_t masked_crc(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8U; }

std::string record(const Message& event) {
  std::string text;
  put_little_endian(text, event.text().size(), 8);
  put_little_endian(text, masked_crc(text), 4);
  text += event.text();
  put_little_endian(text, masked_crc(event.text()), 4);
  return text;
}

// Event: wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7.
Message event_at(double time, int64_t step) {
  Message event;
  event.fixed64(1, time).varint(2, static_cast<uint64_t>(step));
  return event;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0U;
  for (const char c : bytes) crc = (crc >> 8) ^ kCrc32c[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return ~crc;
}

std::string version_record(double time) { return record(event_at(time, 0).bytes(3, "brain.Event:2")); }

std::string start_record(double time, int64_t step) {
  constexpr int kStatus = 1, kStart = 1;  // SessionLog
  return record(event_at(time, step).message(7, Message().varint(kStatus, kStart)));
}

std::string scalars_record(double time, int64_t step, std::span<const Scalar> scalars) {
  Message summary;  // value = 1, of Summary.Value: tag = 1, simple_value = 2
  for (const Scalar& s : scalars) summary.message(1, Message().bytes(1, s.tag).fixed32(2, static_cast<float>(s.value)));
  return record(event_at(time, step).message(5, summary));
}

std::string text_record(double time, int64_t step, std::string_view tag, std::string_view markdown) {
  // Summary.Value: tag = 1, tensor = 8, metadata = 9. TensorProto: dtype = 1, tensor_shape = 2, string_val = 8.
  // TensorShapeProto: dim = 2, of Dim: size = 1. SummaryMetadata: plugin_data = 1, of PluginData: plugin_name = 1.
  constexpr uint64_t kString = 7;  // DT_STRING
  const Message shape = Message().message(2, Message().varint(1, 1));
  const Message tensor = Message().varint(1, kString).message(2, shape).bytes(8, markdown);
  const Message metadata = Message().message(1, Message().bytes(1, "text"));
  const Message value = Message().bytes(1, tag).message(8, tensor).message(9, metadata);
  return record(event_at(time, step).message(5, Message().message(1, value)));
}

}  // namespace ashlar::training
