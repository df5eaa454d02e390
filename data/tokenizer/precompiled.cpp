#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/escaping.h"
#include "core/base/error.h"
#include "core/base/utf8.h"
#include "data/tokenizer/normalizers.h"
#include "data/tokenizer/pipeline_tokenizer.h"
#include "data/tokenizer/sentencepiece_model.h"
#include "data/tokenizer/unicode.h"

namespace ashlar::data {
namespace {

constexpr size_t kGraphemeBytes = 6;  // grapheme clusters with fewer bytes are looked up as a whole

class Precompiled final : public Normalizer {
 public:
  Precompiled(std::vector<uint32_t> units, std::string texts) : units_(std::move(units)), texts_(std::move(texts)) {}

  /// Always returns true: the `tokenizers` library treats a first character that a rule removes as if it were still
  /// there.
  bool apply(std::string& text, Regex::Scratch& scratch) const override {
    if (units_.empty()) return true;
    std::string out;
    out.reserve(text.size());
    const std::string_view all = text;
    for (size_t at = 0; at < all.size();) {
      const size_t end = grapheme_end(all, at);
      const std::string_view grapheme = all.substr(at, end - at);
      at = end;
      check_growth(out.size(), scratch);
      if (grapheme.size() < kGraphemeBytes && replace(grapheme, out)) continue;
      for (size_t i = 0; i < grapheme.size();) {
        const auto n = static_cast<size_t>(next_code_point(grapheme.substr(i)).bytes);
        const std::string_view character = grapheme.substr(i, n);
        if (!replace(character, out)) out += character;
        i += n;
      }
    }
    text = std::move(out);
    return true;
  }

 private:
  /// Appends the replacement of the shortest rule that is a prefix of `part`. Returns false if there is none.
  bool replace(std::string_view part, std::string& out) const {
    size_t node = offset(units_[0]);
    for (const char c : part) {
      const auto byte = static_cast<uint8_t>(c);
      if (byte == 0) return false;
      node ^= byte;
      if (node >= units_.size()) return false;
      const uint32_t unit = units_[node];
      if ((unit & 0x800000FFU) != byte) return false;
      node ^= offset(unit);
      if (((unit >> 8) & 1U) == 0) continue;
      if (node >= units_.size()) return false;
      const size_t at = units_[node] & 0x7FFFFFFFU;
      if (at >= texts_.size()) return false;
      if ((static_cast<uint8_t>(texts_[at]) & 0xC0U) == 0x80U) {
        throw input_error("tokenizer",
                          "precompiled_charsmap: a replacement starts in the middle of a UTF-8 character; "
                          "the file is damaged, download it again");
      }
      out += std::string_view(texts_).substr(at, texts_.find('\0', at) - at);
      return true;
    }
    return false;
  }

  static size_t offset(uint32_t unit) { return static_cast<size_t>(unit >> 10) << ((unit & (1U << 9)) >> 6); }

  std::vector<uint32_t> units_;
  std::string texts_;  ///< replacements, each terminated by NUL
};

}  // namespace

std::unique_ptr<Normalizer> precompiled_normalizer(const std::string& charsmap_base64, const Fields& fields) {
  std::string bytes;
  if (!absl::Base64Unescape(charsmap_base64, &bytes))
    throw fields.error("precompiled_charsmap", "expected base64; download the file again");
  std::vector<uint32_t> units;
  std::string texts;
  if (!bytes.empty()) {
    const size_t trie_bytes = bytes.size() < 4 ? bytes.size() : number_at(bytes, 0);
    if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > bytes.size() - 4)
      throw fields.error("precompiled_charsmap",
                         "its first number is not the size of its rules; download the file again");
    for (size_t at = 4; at < 4 + trie_bytes; at += 4) units.push_back(number_at(bytes, at));
    texts = bytes.substr(4 + trie_bytes);
    if (valid_utf8_end(texts) != texts.size())
      throw fields.error("precompiled_charsmap", "the texts of its rules are not UTF-8; download the file again");
  }
  return std::make_unique<Precompiled>(std::move(units), std::move(texts));
}

}  // namespace ashlar::data
