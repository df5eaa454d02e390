#include "data/tokenizer/pipeline_tokenizer.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/io/json.h"
#include "data/tokenizer/folder_tokens.h"
#include "data/tokenizer/sentencepiece_model.h"
#include "data/tokenizer/tokenizer_json.h"

namespace ashlar::data {
namespace {

bool no_mark_inside(const Vocabulary& vocabulary) {
  for (int32_t id = 0; id < vocabulary.size(); ++id)
    if (vocabulary.used(id) && has_mark_inside(vocabulary.token(id))) return false;
  return vocabulary.find(kSpaceMark).has_value();
}

}  // namespace

size_t valid_utf8_end(std::string_view text, size_t begin) {
  size_t at = begin;
  while (at < text.size()) {
    uint64_t eight = 0;
    if (at + 8 <= text.size()) {
      std::memcpy(&eight, text.data() + at, 8);
      if ((eight & 0x8080808080808080ULL) == 0) {
        at += 8;
        continue;
      }
    }
    const int n = next_code_point(text.substr(at)).bytes;
    if (n == 0) break;
    at += static_cast<size_t>(n);
  }
  return at;
}

void check_text(std::string_view text) {
  // The limit is a quarter of the range of uint32_t, since normalizers and ByteCharacters may make the text longer.
  if (text.size() > std::numeric_limits<uint32_t>::max() / 4) {
    throw TextError{0, str_cat("a text of ", text.size(), " bytes, at most ", std::numeric_limits<uint32_t>::max() / 4,
                               " are encoded at once; split the text")};
  }
  const size_t end = valid_utf8_end(text);
  if (end < text.size()) {
    throw TextError{end, str_cat("invalid UTF-8 byte 0x", absl::StrFormat("%02x", static_cast<uint8_t>(text[end])))};
  }
}

PipelineTokenizer::PipelineTokenizer(std::string text, std::string form, const TokenizerFiles* beside)
    : text_(std::move(text)), form_(std::move(form)) {
  nlohmann::json json;
  io::reading_json([](const std::string& sentence) { return input_error("tokenizer", "tokenizer.json: ", sentence); },
                   [&] { json = io::parse_json(text_); });
  Fields fields(json, "tokenizer.json");
  // Texts are encoded whole: truncation and padding are ignored.
  fields.ignore({"version", "truncation", "padding"});
  if (fields.has("normalizer")) normalizer_ = read_normalizer(fields.object("normalizer"));
  if (fields.has("pre_tokenizer")) pre_tokenizer_ = read_pre_tokenizer(fields.object("pre_tokenizer"));
  Fields model = fields.object("model");
  const bool unigram = model.text("type", "BPE") == "Unigram";
  model_reads_bytes_ =
      pre_tokenizer_ && pre_tokenizer_->maps_bytes_last() && !unigram && !model.boolean("byte_fallback", false);
  model_ = read_model(fields.object("model"), vocabulary_, model_reads_bytes_);
  marks_begin_words_ = !model.boolean("ignore_merges", false) && no_mark_inside(vocabulary_);
  added_ = std::make_unique<AddedTokens>(added_tokens(fields, beside), normalizer_.get(), vocabulary_,
                                         fields.path_of("added_tokens"));
  if (fields.has("post_processor")) template_ = read_template(fields.object("post_processor"), vocabulary_);
  if (fields.has("decoder")) decoder_ = read_decoder(fields.object("decoder"));
  fields.finish();
  special_.assign(static_cast<size_t>(vocabulary_.size()), 0);
  for (const AddedToken& token : added_->all())
    if (token.special) note_special(token.id);
  identity_ = str_cat(form_, unigram ? " (Unigram)" : model_reads_bytes_ ? " (byte-level BPE)" : " (BPE)");
}

std::vector<AddedToken> PipelineTokenizer::added_tokens(Fields& fields, const TokenizerFiles* beside) {
  std::vector<AddedToken> tokens = read_added_tokens(fields);
  if (beside == nullptr || beside->rules == 1) return tokens;
  ModelTokens model{.count = 0, .id_of = [this](const std::string& token) { return vocabulary_.find(token); }};
  for (int32_t id = 0; id < vocabulary_.size(); ++id) model.count += vocabulary_.used(id) ? 1 : 0;
  const std::vector<AddedToken> own = tokens;
  add_folder_tokens(*beside, "", model, tokens);
  if (tokens == own) return tokens;
  rules_matter();
  OrderedJson whole = io::parse_ordered_json(text_);
  whole["added_tokens"] = OrderedJson::array();
  for (const AddedToken& token : tokens) whole["added_tokens"].push_back(json_of(token));
  text_ = whole.dump();
  return tokens;
}

std::unique_ptr<PipelineTokenizer::Scratch> PipelineTokenizer::acquire_scratch() const {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return std::make_unique<Scratch>();
  std::unique_ptr<Scratch> scratch = std::move(idle_.back());
  idle_.pop_back();
  return scratch;
}

void PipelineTokenizer::release_scratch(std::unique_ptr<Scratch> scratch) const {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(scratch));
}

void PipelineTokenizer::encode_pieces(std::string_view text, bool at_start, Scratch& scratch,
                                      std::vector<int32_t>& ids) const {
  Pieces& pieces = scratch.pieces;
  pieces.reset(text, at_start);
  if (model_reads_bytes_) {
    pre_tokenizer_->apply_without_mapping(pieces, scratch.regex);
  } else if (pre_tokenizer_) {
    pre_tokenizer_->apply(pieces, scratch.regex);
  }
  for (const Span s : pieces.spans) {
    if (scratch.apart) {
      encode_apart(pieces.piece(s), scratch, ids);
    } else {
      model_->encode(pieces.piece(s), scratch.model, ids);
    }
  }
}

/// Encodes a piece such that the ids include no special token whose spelling is in the piece. If the model encodes a
/// spelling as a special token, the piece is split inside the spelling, and both parts are encoded. The token for
/// unknown characters may remain, since its spelling is not in the piece.
void PipelineTokenizer::encode_apart(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const {
  const size_t first = ids.size();
  model_->encode(piece, scratch.model, ids);
  for (size_t i = first; i < ids.size(); ++i) {
    if (special_[static_cast<size_t>(ids[i])] == 0) continue;
    const std::string& token = vocabulary_.token(ids[i]);
    const size_t at = piece.find(token);
    if (at == std::string_view::npos) continue;
    const size_t character = at + static_cast<size_t>(std::max(1, next_code_point(piece.substr(at)).bytes));
    const size_t split = character < at + token.size() ? character : at;
    if (split == 0 || split >= piece.size()) {
      throw TextError{
          0, str_cat("\"", token,
                     "\" is a special token of one character and has no ids as text; use --special-tokens parse")};
    }
    ids.resize(first);
    encode_apart(piece.substr(0, split), scratch, ids);
    encode_apart(piece.substr(split), scratch, ids);
    return;
  }
}

/// Finds the parts of `text` that the model encodes, in order. Returns false if `text` contains an added token.
bool PipelineTokenizer::parts_of(std::string_view text, Scratch& scratch, std::vector<std::string>& parts) const {
  const TextLimit limit(scratch.regex, text.size());
  std::vector<SpecialSpelling> special;
  const auto plain = [&](std::string_view part, bool normalized) {
    scratch.inner.clear();
    added_->split(part, normalized, scratch.inner, &special);
    return special.empty() &&
           std::all_of(scratch.inner.begin(), scratch.inner.end(), [](const Segment& s) { return s.id < 0; });
  };
  parts.clear();
  if (!plain(text, false)) return false;
  bool at_start = true;
  scratch.normal = text;
  if (normalizer_) at_start = normalizer_->apply(scratch.normal, scratch.regex);
  if (!plain(scratch.normal, true)) return false;
  Pieces& pieces = scratch.pieces;
  pieces.reset(scratch.normal, at_start);
  if (pre_tokenizer_) pre_tokenizer_->apply(pieces, scratch.regex);
  for (const Span s : pieces.spans) parts.emplace_back(pieces.piece(s));
  return true;
}

std::optional<size_t> PipelineTokenizer::joint(std::string_view window, size_t at) const {
  if (at == 0 || at >= window.size() || valid_utf8_end(window) != window.size()) return std::nullopt;
  std::unique_ptr<Scratch> scratch = acquire_scratch();
  std::vector<std::string> whole, left, right;
  std::optional<size_t> left_out;
  const bool plain = parts_of(window, *scratch, whole) && parts_of(window.substr(0, at), *scratch, left);
  for (size_t skip = 0; plain && !left_out && !left.empty() && skip <= (window[at] == ' ' ? 1U : 0U); ++skip) {
    if (!parts_of(window.substr(at + skip), *scratch, right) || right.empty()) continue;
    // A part may also be split before U+2581, which represents a space, since no token extends across this place.
    const bool mark = marks_begin_words_ && right[0].starts_with(kSpaceMark) && !left.back().ends_with(kSpaceMark);
    if (mark && left.size() + right.size() == whole.size() + 1) {
      right[0] = left.back() + right[0];
      left.pop_back();
    }
    const bool same = left.size() + right.size() == whole.size() &&
                      std::equal(left.begin(), left.end(), whole.begin()) &&
                      std::equal(right.begin(), right.end(), whole.begin() + static_cast<int64_t>(left.size()));
    if (same) left_out = skip;
  }
  release_scratch(std::move(scratch));
  return left_out;
}

void PipelineTokenizer::treat_as_special(int32_t id) {
  note_special(id);
  added_->make_special(id);
}

void PipelineTokenizer::note_special(int32_t id) {
  special_[static_cast<size_t>(id)] = 1;
  special_low_ = std::min(special_low_, id);
  special_high_ = std::max(special_high_, id);
}

void PipelineTokenizer::encode_text(std::string_view text, bool at_start, Scratch& scratch,
                                    std::vector<int32_t>& ids) const {
  if (normalizer_) {
    scratch.normal = text;
    at_start = normalizer_->apply(scratch.normal, scratch.regex) && at_start;
    text = scratch.normal;
  }
  if (!added_->any(true)) return encode_pieces(text, at_start, scratch, ids);
  scratch.inner.clear();
  const size_t known = scratch.as_text == nullptr ? 0 : scratch.as_text->size();
  added_->split(text, true, scratch.inner, scratch.as_text);
  // The offsets of the spellings just found count in the normalized text. They are replaced by text_offset, the offset
  // of this part in the whole text.
  if (scratch.as_text != nullptr)
    for (size_t i = known; i < scratch.as_text->size(); ++i) (*scratch.as_text)[i].offset = scratch.text_offset;
  for (const Segment& s : scratch.inner) {
    if (s.id >= 0) {
      ids.push_back(s.id);
    } else {
      encode_pieces(text.substr(s.span.begin, s.span.end - s.span.begin), at_start && s.span.begin == 0, scratch, ids);
    }
  }
}

void PipelineTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  check_text(text);
  std::unique_ptr<Scratch> scratch = acquire_scratch();
  encode_whole(text, *scratch, ids);
  release_scratch(std::move(scratch));
}

void PipelineTokenizer::encode_as_text(std::string_view text, std::vector<int32_t>& ids,
                                       std::vector<SpecialSpelling>& found) const {
  check_text(text);
  std::unique_ptr<Scratch> scratch = acquire_scratch();
  scratch->as_text = &found;
  const size_t first = ids.size(), known = found.size();
  encode_whole(text, *scratch, ids);
  // In most vocabularies the special ids are contiguous. Testing their range is much faster than a look-up per id.
  const auto low = static_cast<uint32_t>(special_low_), span = static_cast<uint32_t>(special_high_ - special_low_);
  uint32_t near = 0;
  for (size_t i = first; i < ids.size(); ++i) near |= static_cast<uint32_t>(ids[i]) - low <= span ? 1U : 0U;
  const auto special = [&](int32_t id) { return special_[static_cast<size_t>(id)] != 0; };
  if (near != 0 && std::any_of(ids.begin() + static_cast<int64_t>(first), ids.end(), special)) {
    // Texts in which the model gives special ids are rare, so they are encoded twice. Checking each piece in the first
    // pass would make every text 5% slower.
    ids.resize(first);
    found.resize(known);
    scratch->apart = true;
    encode_whole(text, *scratch, ids);
    scratch->apart = false;
  }
  scratch->as_text = nullptr;
  release_scratch(std::move(scratch));
}

void PipelineTokenizer::encode_whole(std::string_view text, Scratch& scratch, std::vector<int32_t>& ids) const {
  const TextLimit limit(scratch.regex, text.size());
  scratch.outer.clear();
  added_->split(text, false, scratch.outer, scratch.as_text);
  for (const Segment& s : scratch.outer) {
    if (s.id >= 0) {
      ids.push_back(s.id);
    } else {
      scratch.text_offset = s.span.begin;
      encode_text(text.substr(s.span.begin, s.span.end - s.span.begin), s.span.begin == 0, scratch, ids);
    }
  }
}

void PipelineTokenizer::encode_with_template(std::string_view text, std::vector<int32_t>& ids) const {
  ids.insert(ids.end(), template_.before.begin(), template_.before.end());
  encode(text, ids);
  ids.insert(ids.end(), template_.behind.begin(), template_.behind.end());
}

std::string PipelineTokenizer::decode(std::span<const int32_t> ids) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size())
      throw input_error("tokenizer", "id ", id, " is outside the vocabulary of ", vocab_size(), " (", identity(), ")");
    if (!vocabulary_.used(id)) continue;
    const AddedToken* const added = added_->find(id);
    tokens.push_back(added != nullptr ? added->pattern : vocabulary_.token(id));
  }
  if (decoder_) {
    std::unique_ptr<Scratch> scratch = acquire_scratch();
    size_t bytes = 0;
    for (const std::string& token : tokens) bytes += token.size();
    {
      const TextLimit limit(scratch->regex, bytes);
      decoder_->apply(tokens, scratch->regex);
    }
    release_scratch(std::move(scratch));
  }
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && !decoder_) text.push_back(' ');
    text += tokens[i];
  }
  return text;
}

std::vector<std::string> PipelineTokenizer::special_tokens() const {
  std::vector<const AddedToken*> tokens;
  for (const AddedToken& token : added_->all()) {
    if (token.special) tokens.push_back(&token);
  }
  std::sort(tokens.begin(), tokens.end(), [](const AddedToken* a, const AddedToken* b) { return a->id < b->id; });
  std::vector<std::string> names;
  for (const AddedToken* token : tokens) names.push_back(token->content);
  return names;
}

}  // namespace ashlar::data
