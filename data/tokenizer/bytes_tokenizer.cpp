#include "data/tokenizer/bytes_tokenizer.h"

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "data/tokenizer/byte_characters.h"
#include "data/tokenizer/tokenizer_json.h"

namespace ashlar::data {
namespace {

class BytesScan final : public CorpusScan {
 public:
  SplitPoints split_points() const override { return SplitPoints::kAnyByte; }
  bool one_token_per_byte() const override { return true; }
  int64_t add(std::string_view text) override { return static_cast<int64_t>(text.size()); }
  void merge(const CorpusScan&) override {}
  std::unique_ptr<Tokenizer> finish() const override { return std::make_unique<BytesTokenizer>(); }
};

}  // namespace

void BytesTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  const size_t start = ids.size();
  ids.resize(start + text.size());
  for (size_t i = 0; i < text.size(); ++i) ids[start + i] = static_cast<uint8_t>(text[i]);
}

std::string BytesTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (const int32_t id : ids) {
    if (id < 0 || id > kEod) throw input_error("tokenizer", "id ", id, " is outside the vocabulary of 257 (bytes)");
    if (id != kEod) text.push_back(static_cast<char>(id));
  }
  return text;
}

std::string BytesTokenizer::to_json() const { return R"({"eod_id":256,"kind":"bytes","vocab_size":257})"; }

std::string BytesTokenizer::tokenizer_json_text() const {
  const ByteCharacters characters;
  OrderedJson parts = {{"added_tokens", OrderedJson::array()}};
  OrderedJson vocab = OrderedJson::object();
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    add_token(vocab, characters.written(std::string_view(&c, 1)), byte);
  }
  add_token(vocab, std::string(kEndOfText), kEod);
  parts["added_tokens"].push_back(added_token_json(std::string(kEndOfText), kEod));
  parts["pre_tokenizer"] = byte_level_json(false, false);
  parts["decoder"] = byte_level_json(false, false);
  parts["model"] = bpe_model_json({{"vocab", std::move(vocab)}});
  return tokenizer_json_of_parts(parts);
}

std::unique_ptr<CorpusScan> make_bytes_scan() { return std::make_unique<BytesScan>(); }

}  // namespace ashlar::data
