#include "data/tokenizer/pre_tokenizers.h"

#include <algorithm>

#include "core/base/utf8.h"
#include "data/tokenizer/byte_characters.h"
#include "data/tokenizer/normalizers.h"
#include "data/tokenizer/unicode.h"

namespace ashlar::data {

const char* const kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

const char* const kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

void Pieces::reset(std::string_view of, bool starts) {
  text = of;
  at_start = starts;
  spans.clear();
  next.clear();
  if (!of.empty()) spans.push_back({0, static_cast<uint32_t>(of.size())});
}

namespace {

/// Splits one piece. Receives the matches in the piece from left to right and appends the resulting pieces to `out`.
class Parts {
 public:
  Parts(Split split, bool invert, Span piece, std::vector<Span>& out)
      : split_(split), invert_(invert), piece_(piece), done_(piece.begin), first_(out.size()), out_(out) {}

  void match(uint32_t begin, uint32_t end) {
    if (begin > done_) part({done_, begin}, invert_);
    part({begin, end}, !invert_);
    done_ = end;
  }
  void finish() {
    if (done_ < piece_.end) part({done_, piece_.end}, invert_);
    if (split_ == Split::kMergedWithNext && pending_.end > pending_.begin) out_.push_back(pending_);
  }

 private:
  void part(Span s, bool match) {
    const bool before = std::exchange(last_was_match_, match);
    const bool none = out_.size() == first_;
    switch (split_) {
      case Split::kIsolated: return put(s);
      case Split::kRemoved: return match ? void() : put(s);
      case Split::kContiguous: return match == before && !none ? extend(s) : put(s);
      case Split::kMergedWithPrevious: return match && !before && !none ? extend(s) : put(s);
      case Split::kMergedWithNext:
        // A match waits in pending_ for the text after it. Of several adjacent matches, only the last is merged with
        // the text after them.
        if (pending_.end > pending_.begin && !match) return put({std::exchange(pending_, {}).begin, s.end});
        if (pending_.end > pending_.begin) put(pending_);
        pending_ = match ? s : Span{};
        return match ? void() : put(s);
    }
  }
  void put(Span s) {
    if (s.end > s.begin) out_.push_back(s);
  }
  void extend(Span s) { out_.back().end = s.end; }

  Split split_;
  bool invert_;
  Span piece_;
  uint32_t done_;
  size_t first_;  // index in out_ of the first part of this piece
  std::vector<Span>& out_;
  bool last_was_match_ = false;
  Span pending_;
};

void split_by(const Regex& pattern, Split split, bool invert, Pieces& pieces, Regex::Scratch& scratch) {
  for (const Span s : pieces.spans) {
    Parts parts(split, invert, s, pieces.next);
    pattern.find_all(pieces.piece(s), scratch,
                     [&](Span found) { parts.match(s.begin + found.begin, s.begin + found.end); });
    parts.finish();
  }
  pieces.swap_next();
}

/// Splits every piece. Each character that satisfies `matches` is a separate match.
template <typename Matches>
void split_by_characters(Matches matches, Split split, Pieces& pieces) {
  for (const Span s : pieces.spans) {
    Parts parts(split, false, s, pieces.next);
    for (uint32_t at = s.begin; at < s.end;) {
      const CodePoint c = next_code_point(pieces.text.substr(at, s.end - at));
      const uint32_t end = at + static_cast<uint32_t>(std::max(1, c.bytes));
      if (c.bytes > 0 && matches(c.value)) parts.match(at, end);
      at = end;
    }
    parts.finish();
  }
  pieces.swap_next();
}

/// Replaces every piece. `write(span, text)` appends the new form of a piece to `text`.
template <typename Write>
void rewrite(Pieces& pieces, const Regex::Scratch& scratch, Write write) {
  std::string text;
  text.reserve(pieces.text.size() + pieces.text.size() / 4 + 16);
  for (const Span s : pieces.spans) {
    const auto begin = static_cast<uint32_t>(text.size());
    write(s, text);
    check_growth(text.size(), scratch);
    if (text.size() > begin) pieces.next.push_back({begin, static_cast<uint32_t>(text.size())});
  }
  pieces.own = std::move(text);
  pieces.text = pieces.own;
  pieces.swap_next();
}

class SplitStep final : public PreTokenizer {
 public:
  SplitStep(Regex pattern, Split split, bool invert) : pattern_(std::move(pattern)), split_(split), invert_(invert) {}
  void apply(Pieces& pieces, Regex::Scratch& scratch) const override {
    split_by(pattern_, split_, invert_, pieces, scratch);
  }

 private:
  Regex pattern_;
  Split split_;
  bool invert_;
};

class Characters final : public PreTokenizer {
 public:
  Characters(bool (*matches)(char32_t), Split split) : matches_(matches), split_(split) {}
  void apply(Pieces& pieces, Regex::Scratch&) const override { split_by_characters(matches_, split_, pieces); }

 private:
  bool (*matches_)(char32_t);
  Split split_;
};

class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(bool prefix_space, bool use_regex) : prefix_space_(prefix_space) {
    if (use_regex) pattern_ = std::make_unique<Regex>(kGpt2Pattern, Dialect::kOniguruma, "ByteLevel");
  }

  bool maps_bytes_last() const override { return true; }
  bool apply_without_mapping(Pieces& pieces, Regex::Scratch& scratch) const override {
    if (prefix_space_) {
      rewrite(pieces, scratch, [&](Span s, std::string& text) {
        if (!pieces.piece(s).starts_with(' ')) text += ' ';
        text += pieces.piece(s);
      });
    }
    if (pattern_) split_by(*pattern_, Split::kIsolated, false, pieces, scratch);
    return true;
  }
  void apply(Pieces& pieces, Regex::Scratch& scratch) const override {
    apply_without_mapping(pieces, scratch);
    rewrite(pieces, scratch, [&](Span s, std::string& text) { text += characters_.written(pieces.piece(s)); });
  }

 private:
  bool prefix_space_;
  std::unique_ptr<Regex> pattern_;
  ByteCharacters characters_;
};

class Metaspace final : public PreTokenizer {
 public:
  enum class Prepend : uint8_t { kNever, kFirst, kAlways };
  Metaspace(std::string mark, Prepend prepend, bool split) : mark_(std::move(mark)), prepend_(prepend), split_(split) {}

  void apply(Pieces& pieces, Regex::Scratch& scratch) const override {
    rewrite(pieces, scratch, [&](Span s, std::string& text) {
      const std::string_view piece = pieces.piece(s);
      const bool may = prepend_ == Prepend::kAlways || (prepend_ == Prepend::kFirst && pieces.at_start && s.begin == 0);
      if (may && !piece.starts_with(' ') && !piece.starts_with(mark_)) text += mark_;
      for (const char c : piece) {
        if (c == ' ') {
          text += mark_;
        } else {
          text.push_back(c);
        }
      }
    });
    if (!split_) return;
    for (const Span s : pieces.spans) {
      Parts parts(Split::kMergedWithNext, false, s, pieces.next);
      for (size_t at = s.begin; (at = pieces.text.find(mark_, at)) < s.end; at += mark_.size())
        parts.match(static_cast<uint32_t>(at), static_cast<uint32_t>(at + mark_.size()));
      parts.finish();
    }
    pieces.swap_next();
  }

 private:
  std::string mark_;
  Prepend prepend_;
  bool split_;
};

class Sequence final : public PreTokenizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<PreTokenizer>> steps) : steps_(std::move(steps)) {}
  void apply(Pieces& pieces, Regex::Scratch& scratch) const override {
    for (const auto& step : steps_) step->apply(pieces, scratch);
  }
  bool maps_bytes_last() const override {
    const auto maps = [](const auto& step) { return step->maps_bytes_last(); };
    return !steps_.empty() && maps(steps_.back()) && std::none_of(steps_.begin(), steps_.end() - 1, maps);
  }
  bool apply_without_mapping(Pieces& pieces, Regex::Scratch& scratch) const override {
    if (!maps_bytes_last()) return false;
    for (size_t i = 0; i + 1 < steps_.size(); ++i) steps_[i]->apply(pieces, scratch);
    return steps_.back()->apply_without_mapping(pieces, scratch);
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

Split read_behavior(Fields& fields, std::string_view key, std::string_view otherwise) {
  const std::string name = fields.text(key, otherwise);
  if (name == "Isolated") return Split::kIsolated;
  if (name == "Removed") return Split::kRemoved;
  if (name == "MergedWithPrevious") return Split::kMergedWithPrevious;
  if (name == "MergedWithNext") return Split::kMergedWithNext;
  if (name == "Contiguous") return Split::kContiguous;
  throw fields.unsupported(key, "Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous");
}

std::unique_ptr<PreTokenizer> read_metaspace(Fields& fields) {
  const std::string mark = fields.text("replacement", "\xE2\x96\x81");
  if (mark.empty() || static_cast<size_t>(next_code_point(mark).bytes) != mark.size())
    throw fields.error("replacement", "expected one character; correct the file");
  fields.ignore({"str_rep"});  // older name of the replacement
  const std::string scheme =
      fields.text("prepend_scheme", fields.boolean("add_prefix_space", true) ? "always" : "never");
  if (!fields.boolean("add_prefix_space", true) && scheme != "never")
    throw fields.error("prepend_scheme", "expected \"never\", since add_prefix_space = false; correct the file");
  using Prepend = Metaspace::Prepend;
  Prepend prepend = Prepend::kAlways;
  if (scheme == "first") {
    prepend = Prepend::kFirst;
  } else if (scheme == "never") {
    prepend = Prepend::kNever;
  } else if (scheme != "always") {
    throw fields.unsupported("prepend_scheme", "first, never or always");
  }
  return std::make_unique<Metaspace>(mark, prepend, fields.boolean("split", true));
}

}  // namespace

std::unique_ptr<PreTokenizer> read_pre_tokenizer(Fields fields) {
  fields.count_step();
  const std::string type = fields.text("type");
  std::unique_ptr<PreTokenizer> made;
  if (type == "Sequence") {
    std::vector<std::unique_ptr<PreTokenizer>> steps;
    for (size_t i = 0; i < fields.length("pretokenizers"); ++i)
      steps.push_back(read_pre_tokenizer(fields.element("pretokenizers", i)));
    made = std::make_unique<Sequence>(std::move(steps));
  } else if (type == "Split") {
    Regex pattern = read_pattern(fields, "pattern");
    const Split split = read_behavior(fields, "behavior", "");
    made = std::make_unique<SplitStep>(std::move(pattern), split, fields.boolean("invert", false));
  } else if (type == "ByteLevel") {
    fields.ignore({"trim_offsets"});
    const bool prefix = fields.boolean("add_prefix_space", true);
    made = std::make_unique<ByteLevel>(prefix, fields.boolean("use_regex", true));
  } else if (type == "Digits") {
    const bool each = fields.boolean("individual_digits", false);
    made = std::make_unique<Characters>(is_numeric, each ? Split::kIsolated : Split::kContiguous);
  } else if (type == "Punctuation") {
    made = std::make_unique<Characters>(is_punctuation, read_behavior(fields, "behavior", "Isolated"));
  } else if (type == "WhitespaceSplit") {
    made = std::make_unique<Characters>(is_white_space, Split::kRemoved);
  } else if (type == "Metaspace") {
    made = read_metaspace(fields);
  } else {
    throw fields.unsupported("type", "Sequence, Split, ByteLevel, Digits, Punctuation, Metaspace or WhitespaceSplit");
  }
  fields.finish();
  return made;
}

}  // namespace ashlar::data
