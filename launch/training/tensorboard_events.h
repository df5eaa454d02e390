#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ashlar::training {

// Records of TensorBoard's event files. A record is a protocol buffer `Event` in the TFRecord framing: length (8
// bytes), masked CRC-32C of the length, payload, masked CRC-32C of the payload, all little-endian. `time` is in seconds
// since 1970.
// Source: tensorflow/core/util/event.proto, framework/summary.proto and lib/io/record_writer.h.

struct Scalar {
  std::string tag;
  double value = 0;  ///< stored as a float
};

/// The first record of a file: the version of the format.
std::string version_record(double time);
/// Says that the writer begins anew at `step`: readers drop the values of this and later steps that came before.
std::string start_record(double time, int64_t step);
std::string scalars_record(double time, int64_t step, std::span<const Scalar> scalars);
/// A text for the page "Text", in Markdown.
std::string text_record(double time, int64_t step, std::string_view tag, std::string_view markdown);

/// CRC-32C (polynomial 0x82F63B78, reflected).
uint32_t crc32c(std::string_view bytes);

}  // namespace ashlar::training
