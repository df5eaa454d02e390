#include "data/tokenizer/decoders.h"

#include <algorithm>

#include "core/base/utf8.h"
#include "data/tokenizer/byte_characters.h"
#include "data/tokenizer/normalizers.h"
#include "data/tokenizer/vocabulary.h"

namespace ashlar::data {
namespace {

const char* const kReplacementCharacter = "\xEF\xBF\xBD";

using Tokens = std::vector<std::string>;

class Sequence final : public Decoder {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Decoder>> steps) : steps_(std::move(steps)) {}
  void apply(Tokens& tokens, Regex::Scratch& scratch) const override {
    for (const auto& step : steps_) step->apply(tokens, scratch);
  }

 private:
  std::vector<std::unique_ptr<Decoder>> steps_;
};

class ByteLevel final : public Decoder {
 public:
  void apply(Tokens& tokens, Regex::Scratch&) const override {
    std::string all, bytes;
    for (const std::string& token : tokens) all += characters_.read(token, bytes) ? bytes : token;
    tokens = {as_utf8(all)};
  }

 private:
  ByteCharacters characters_;
};

class ByteFallback final : public Decoder {
 public:
  void apply(Tokens& tokens, Regex::Scratch&) const override {
    Tokens out;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      bool good = true;
      for (size_t at = 0; at < bytes.size() && good;) {
        const int n = next_code_point(std::string_view(bytes).substr(at)).bytes;
        good = n > 0;
        at += static_cast<size_t>(n);
      }
      if (good) {
        out.push_back(bytes);
      } else {
        out.insert(out.end(), bytes.size(), kReplacementCharacter);
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      const int byte = byte_of_token(token);
      if (byte >= 0) {
        bytes.push_back(static_cast<char>(byte));
        continue;
      }
      flush();
      out.push_back(std::move(token));
    }
    flush();
    tokens = std::move(out);
  }
};

class Fuse final : public Decoder {
 public:
  void apply(Tokens& tokens, Regex::Scratch&) const override {
    std::string all;
    for (const std::string& token : tokens) all += token;
    tokens = {std::move(all)};
  }
};

class Strip final : public Decoder {
 public:
  Strip(std::string content, int64_t start, int64_t stop) : content_(std::move(content)), start_(start), stop_(stop) {}
  void apply(Tokens& tokens, Regex::Scratch&) const override {
    for (std::string& token : tokens) {
      std::string_view left = token;
      for (int64_t i = 0; i < start_ && left.starts_with(content_); ++i) left.remove_prefix(content_.size());
      for (int64_t i = 0; i < stop_ && left.ends_with(content_); ++i) left.remove_suffix(content_.size());
      if (left.size() < token.size()) token = std::string(left);
    }
  }

 private:
  std::string content_;
  int64_t start_, stop_;
};

class Replace final : public Decoder {
 public:
  Replace(Regex pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(Tokens& tokens, Regex::Scratch& scratch) const override {
    for (std::string& token : tokens) replace_all(pattern_, content_, scratch, token);
  }

 private:
  Regex pattern_;
  std::string content_;
};

class Metaspace final : public Decoder {
 public:
  Metaspace(std::string mark, bool prepended) : mark_(std::move(mark)), prepended_(prepended) {}
  void apply(Tokens& tokens, Regex::Scratch&) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::string out;
      const std::string& token = tokens[i];
      for (size_t at = 0; at < token.size();) {
        if (std::string_view(token).substr(at).starts_with(mark_)) {
          if (i > 0 || !prepended_) out.push_back(' ');
          at += mark_.size();
        } else {
          out.push_back(token[at++]);
        }
      }
      tokens[i] = std::move(out);
    }
  }

 private:
  std::string mark_;
  bool prepended_;
};

}  // namespace

std::string as_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (size_t at = 0; at < bytes.size();) {
    const int n = next_code_point(bytes.substr(at)).bytes;
    if (n > 0) {
      out += bytes.substr(at, static_cast<size_t>(n));
      at += static_cast<size_t>(n);
      continue;
    }
    // The bytes of an incomplete character are replaced together.
    const auto byte = [&](size_t i) {
      return at + i < bytes.size() ? static_cast<uint8_t>(bytes[at + i]) : uint8_t{0};
    };
    const uint8_t b0 = byte(0), b1 = byte(1);
    size_t length = 1;
    const bool second = b0 == 0xE0   ? b1 >= 0xA0 && b1 <= 0xBF
                        : b0 == 0xED ? b1 >= 0x80 && b1 <= 0x9F
                        : b0 == 0xF0 ? b1 >= 0x90 && b1 <= 0xBF
                        : b0 == 0xF4 ? b1 >= 0x80 && b1 <= 0x8F
                                     : b0 >= 0xE1 && b0 <= 0xF3 && b1 >= 0x80 && b1 <= 0xBF;
    if (second) length = b0 >= 0xF0 && (byte(2) & 0xC0U) == 0x80U ? 3 : 2;
    out += kReplacementCharacter;
    at += length;
  }
  return out;
}

std::unique_ptr<Decoder> read_decoder(Fields fields) {
  fields.count_step();
  const std::string type = fields.text("type");
  std::unique_ptr<Decoder> made;
  if (type == "Sequence") {
    std::vector<std::unique_ptr<Decoder>> steps;
    for (size_t i = 0; i < fields.length("decoders"); ++i) steps.push_back(read_decoder(fields.element("decoders", i)));
    made = std::make_unique<Sequence>(std::move(steps));
  } else if (type == "ByteLevel") {
    fields.ignore({"add_prefix_space", "trim_offsets", "use_regex"});
    made = std::make_unique<ByteLevel>();
  } else if (type == "ByteFallback") {
    made = std::make_unique<ByteFallback>();
  } else if (type == "Fuse") {
    made = std::make_unique<Fuse>();
  } else if (type == "Strip") {
    const std::string content = fields.text("content");
    if (content.empty()) throw fields.error("content", "expected one character");
    const int64_t start = fields.integer("start", 0, 0, 1'000'000);
    made = std::make_unique<Strip>(content, start, fields.integer("stop", 0, 0, 1'000'000));
  } else if (type == "Replace") {
    Regex pattern = read_pattern(fields, "pattern");
    made = std::make_unique<Replace>(std::move(pattern), read_content(fields));
  } else if (type == "Metaspace") {
    fields.ignore({"str_rep", "split"});
    const std::string mark = fields.text("replacement", "\xE2\x96\x81");
    const std::string scheme =
        fields.text("prepend_scheme", fields.boolean("add_prefix_space", true) ? "always" : "never");
    made = std::make_unique<Metaspace>(mark, scheme != "never");
  } else {
    throw fields.unsupported("type", "Sequence, ByteLevel, ByteFallback, Fuse, Strip, Replace or Metaspace");
  }
  fields.finish();
  return made;
}

}  // namespace ashlar::data
