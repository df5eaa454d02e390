#pragma once

#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace ashlar::data {

/// The id of a byte is its value; 256 is the end-of-document id. Accepts any input, text or not.
class BytesTokenizer final : public Tokenizer {
 public:
  static constexpr int32_t kEod = 256;

  using Tokenizer::encode;
  std::string identity() const override { return "bytes"; }
  int32_t vocab_size() const override { return kEod + 1; }
  int32_t eod_id() const override { return kEod; }
  SplitPoints split_points() const override { return SplitPoints::kAnyByte; }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  std::string to_json() const override;
  /// Returns a tokenizer.json of byte-level BPE without merges, in which "<|endoftext|>" is the end-of-document token.
  std::string tokenizer_json_text() const override;
};

std::unique_ptr<CorpusScan> make_bytes_scan();

}  // namespace ashlar::data
