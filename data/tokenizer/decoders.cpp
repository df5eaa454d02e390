#include "data/tokenizer/decoders.h"

#include <algorithm>

#include "absl/strings/str_replace.h"
#include "data/tokenizer/byte_characters.h"
#include "data/tokenizer/normalizers.h"
#include "data/tokenizer/pipeline_tokenizer.h"
#include "data/tokenizer/utf8_repair.h"
#include "data/tokenizer/vocabulary.h"

namespace ashlar::data {
namespace {

using Tokens = std::vector<std::string>;

class Sequence final : public Decoder {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Decoder>> steps) : steps_(std::move(steps)) {}
  void apply(Tokens& tokens, Regex::Scratch& scratch) const override {
    for (const auto& step : steps_) step->apply(tokens, scratch);
  }
  bool reads_byte_characters() const override {
    return std::any_of(steps_.begin(), steps_.end(), [](const auto& step) { return step->reads_byte_characters(); });
  }

 private:
  std::vector<std::unique_ptr<Decoder>> steps_;
};

class ByteLevel final : public Decoder {
 public:
  void apply(Tokens& tokens, Regex::Scratch&) const override {
    std::string all, bytes;
    for (const std::string& token : tokens) all += characters_.read(token, bytes) ? bytes : token;
    int64_t places = 0;
    tokens = {repaired(all, true, places)};
  }
  bool reads_byte_characters() const override { return true; }

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
      if (valid_utf8_end(bytes) == bytes.size()) {
        out.push_back(bytes);
      } else {
        out.insert(out.end(), bytes.size(), std::string(kReplacement));
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
    for (size_t i = 0; i < tokens.size(); ++i)
      absl::StrReplaceAll({{mark_, i > 0 || !prepended_ ? " " : ""}}, &tokens[i]);
  }

 private:
  std::string mark_;
  bool prepended_;
};

}  // namespace

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
    if (content.empty()) throw fields.error("content", "expected at least one character; correct the file");
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
