#include "data/tokenizer/tiktoken.h"

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/base/utf8.h"
#include "core/io/json.h"
#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/byte_characters.h"
#include "data/tokenizer/folder_tokens.h"
#include "data/tokenizer/model.h"
#include "data/tokenizer/pipeline_tokenizer.h"
#include "data/tokenizer/tokenizer_json.h"

namespace ashlar::data {
namespace {

using nlohmann::json;

/// The pattern that splits text, and the special tokens with their ids.
struct Splitting {
  std::string pattern;
  std::vector<std::pair<std::string, int32_t>> special;
};

const char* const kCl100k =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char* const kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::vector<std::pair<std::string, int32_t>> llama3_special() {
  std::vector<std::pair<std::string, int32_t>> special;
  int32_t reserved = 0;
  const auto add = [&](std::string name) {
    special.emplace_back(std::move(name), 128000 + static_cast<int32_t>(special.size()));
  };
  const auto reserve = [&](int n) {
    for (int i = 0; i < n; ++i) add(str_cat("<|reserved_special_token_", reserved++, "|>"));
  };
  add("<|begin_of_text|>");
  add("<|end_of_text|>");
  reserve(4);
  add("<|start_header_id|>");
  add("<|end_header_id|>");
  reserve(1);
  add("<|eot_id|>");
  reserve(246);
  return special;
}

/// Returns the splitting pattern and the special tokens of a published file, identified by its number of ranks. Source:
/// tiktoken, tiktoken_ext/openai_public.py; Llama 3, tokenizer.py.
std::optional<Splitting> published(size_t ranks) {
  switch (ranks) {
    case 50256:  // r50k_base
    case 50280:  // p50k_base
      return Splitting{kGpt2Pattern, {{"<|endoftext|>", 50256}}};
    case 100256:
      return Splitting{kCl100k,
                       {{"<|endoftext|>", 100257},
                        {"<|fim_prefix|>", 100258},
                        {"<|fim_middle|>", 100259},
                        {"<|fim_suffix|>", 100260},
                        {"<|endofprompt|>", 100276}}};
    case 199998: return Splitting{kO200k, {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}};
    case 128000: return Splitting{kCl100k, llama3_special()};
    default: return std::nullopt;
  }
}

using Ranks = std::vector<std::pair<std::string, int32_t>>;

/// Parses one line. Returns nothing if the line is invalid.
std::optional<std::pair<std::string, int32_t>> parse_line(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  std::string bytes;
  const auto rank = parse_number<int32_t>(line.substr(space + 1));
  if (!rank || *rank < 0 || !absl::Base64Unescape(absl::string_view(line.data(), space), &bytes) || bytes.empty())
    return std::nullopt;
  return std::pair(std::move(bytes), *rank);
}

Ranks parse_ranks(std::string_view text, const std::string& name) {
  constexpr uint64_t kMaxWork = uint64_t{1} << 33;
  Ranks ranks;
  int64_t number = 0;
  uint64_t work = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t stop = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, stop - at);
    at = stop + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    auto entry = parse_line(line);
    if (!entry)
      throw input_error("tokenizer", name, ", line ", number, ": expected BASE64 RANK, got ", printable(line, 40),
                        "; download the file again");
    // The work is quadratic in the length of a token, since each way to split it in two is looked up.
    work += static_cast<uint64_t>(entry->first.size()) * entry->first.size();
    if (entry->first.size() > kMaxTokenBytes || work > kMaxWork)
      throw input_error("tokenizer", name, ", line ", number, ": a token of ", entry->first.size(), " bytes, at most ",
                        kMaxTokenBytes, " are allowed, fewer if the file has many long tokens; remove the token");
    ranks.push_back(std::move(*entry));
  }
  return ranks;
}

/// Returns the file of ranks among the files, and its name; null if there is none.
const std::string* ranks_file(const TokenizerFiles& files, std::string* name) {
  if (const std::string* const found = files.find_ending(".tiktoken", name)) return found;
  const std::string* const model = files.find("tokenizer.model");
  if (model == nullptr) return nullptr;
  *name = "tokenizer.model";
  return parse_line(std::string_view(*model).substr(0, model->find('\n'))) ? model : nullptr;
}

Splitting splitting_of(const TokenizerFiles& files, const std::string& name, size_t ranks) {
  for (const std::string& beside : {name.substr(0, name.rfind('.')) + ".json", std::string("about.json")}) {
    const std::string* const text = files.find(beside);
    if (text == nullptr) continue;
    json value;
    io::reading_json(
        [&](const std::string& sentence) {
          return input_error("tokenizer", files.shown, ": ", beside, ": ", sentence);
        },
        [&] { value = io::parse_json(*text); });
    Fields fields(value, beside);
    Splitting made{.pattern = fields.text("pattern"), .special = {}};
    Fields special = fields.object("special");
    for (const auto& [token, id] : value["special"].items()) {
      made.special.emplace_back(token, static_cast<int32_t>(special.integer(token, -1, 0, (1 << 24) - 1)));
      if (made.special.back().second < 0) throw special.error(token, "expected a number; correct the file");
    }
    return made;
  }
  if (auto known = published(ranks)) return *known;
  throw input_error("tokenizer", files.shown, ": ", name, " has ", ranks, " ranks, unlike any published file; give the",
                    " \"pattern\" and \"special\" (names and ids) in a file about.json in the same folder");
}

/// Throws an input error if the files of transformers list an added token that is not a special token of `splitting`.
/// The file of ranks itself contains no added tokens.
void check_listed(const TokenizerFiles& files, const std::string& name, const Splitting& splitting) {
  if (files.rules == 1) return;  // the ids of an older dataset must not change
  for (const AddedToken& token : listed_tokens(files)) {
    const auto known =
        std::find(splitting.special.begin(), splitting.special.end(), std::pair(token.content, token.id));
    if (known == splitting.special.end())
      throw input_error("tokenizer", files.shown, ": added_tokens_decoder (or added_tokens.json) has ",
                        printable(token.content), " with the id ", token.id, ", which is not a special token of ", name,
                        "; list all special tokens with their ids under \"special\" in about.json in the same folder");
    if (token.lstrip || token.rstrip || token.single_word)
      throw input_error("tokenizer", files.shown, ": added_tokens_decoder: ", printable(token.content),
                        ": lstrip, rstrip and single_word are not supported for tiktoken ranks; set them to false");
  }
}

class TiktokenTokenizer final : public FormTokenizer {
 public:
  TiktokenTokenizer(const Ranks& ranks, Splitting splitting, const std::string& name)
      : splitting_(std::move(splitting)), pattern_(splitting_.pattern, Dialect::kPerl, str_cat(name, ": pattern")) {
    absl::flat_hash_map<std::string, int32_t> ids;
    std::array<int32_t, 256> byte_ids{};
    byte_ids.fill(-1);
    for (const auto& [bytes, rank] : ranks) {
      if (id_too_far(rank, ranks.size()))
        throw input_error("tokenizer", name, ": the rank ", rank, " is far beyond the ", ranks.size(),
                          " tokens; correct it");
      if (!ids.emplace(bytes, rank).second || !vocabulary_.add(characters_.written(bytes), rank))
        throw input_error("tokenizer", name, ": expected each rank and token once, got rank ", rank,
                          " or its token twice; remove one");
      if (bytes.size() == 1) byte_ids[static_cast<uint8_t>(bytes[0])] = rank;
    }
    const auto missing = std::find(byte_ids.begin(), byte_ids.end(), -1);
    if (missing != byte_ids.end())
      throw input_error("tokenizer", name, ": no rank for the byte ", missing - byte_ids.begin(),
                        ", expected one for each of the 256 bytes; download the file again");
    // If the bytes of two tokens together are the bytes of a third token, a merge joins the two into the third. Merges
    // are sorted by the rank of the third token.
    for (const auto& [bytes, rank] : ranks) {
      for (size_t i = 1; i < bytes.size(); ++i) {
        const auto left = ids.find(bytes.substr(0, i)), right = ids.find(bytes.substr(i));
        if (left == ids.end() || right == ids.end()) continue;
        merges_.push_back({left->second, right->second, static_cast<uint32_t>(rank), rank});
      }
    }
    std::sort(merges_.begin(), merges_.end(), [](const auto& a, const auto& b) {
      return std::tie(a.rank, a.left, a.right) < std::tie(b.rank, b.left, b.right);
    });
    model_ = std::make_unique<BpeModel>(vocabulary_, BpeModel::Options{.ignore_merges = true}, merges_);
    model_->set_byte_vocabulary(byte_ids, std::move(ids));
    ranks_ = vocabulary_.size();
    std::vector<AddedToken> special;
    for (const auto& [token, id] : splitting_.special) special.push_back({.id = id, .content = token, .special = true});
    added_ = std::make_unique<AddedTokens>(std::move(special), nullptr, vocabulary_, name);
  }

  std::string identity() const override { return "tiktoken (byte-level BPE)"; }
  int32_t vocab_size() const override { return vocabulary_.size(); }
  std::string form() const override { return "tiktoken"; }
  bool byte_level() const override { return true; }
  std::string token(int32_t id) const override { return vocabulary_.used(id) ? vocabulary_.token(id) : ""; }
  std::optional<int32_t> id_of(std::string_view token) const override { return vocabulary_.find(token); }
  std::vector<std::string> special_tokens() const override {
    std::vector<std::pair<std::string, int32_t>> sorted = splitting_.special;
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    std::vector<std::string> names;
    for (const auto& [token, id] : sorted) names.push_back(token);
    return names;
  }

  void encode(std::string_view text, std::vector<int32_t>& ids) const override { encode_all(text, ids, nullptr); }
  void encode_as_text(std::string_view text, std::vector<int32_t>& ids,
                      std::vector<SpecialSpelling>& found) const override {
    encode_all(text, ids, &found);
  }

  std::optional<size_t> joint(std::string_view window, size_t at) const override {
    if (at == 0 || at >= window.size() || valid_utf8_end(window) != window.size()) return std::nullopt;
    std::unique_ptr<Scratch> scratch = acquire_scratch();
    scratch->segments.clear();
    std::vector<SpecialSpelling> special;
    added_->split(window, false, scratch->segments, &special);
    std::vector<size_t> whole, parts;
    const auto ends = [&](std::string_view text, size_t begin, std::vector<size_t>& out) {
      pattern_.find_all(text, scratch->regex, [&](Span found) {
        out.push_back(begin + found.begin);
        out.push_back(begin + found.end);
      });
    };
    ends(window, 0, whole);
    ends(window.substr(0, at), 0, parts);
    ends(window.substr(at), at, parts);
    release_scratch(std::move(scratch));
    return special.empty() && whole == parts ? std::optional<size_t>(0) : std::nullopt;
  }

  void encode_all(std::string_view text, std::vector<int32_t>& ids, std::vector<SpecialSpelling>* as_text) const {
    check_size(text);
    std::unique_ptr<Scratch> scratch = acquire_scratch();
    scratch->segments.clear();
    // Special tokens are valid UTF-8, so they are matched in each run of valid UTF-8 between invalid bytes.
    for (size_t at = 0; at < text.size();) {
      const size_t good = valid_utf8_end(text, at);
      const size_t known = as_text == nullptr ? 0 : as_text->size();
      encode_valid(text.substr(at, good - at), *scratch, ids, as_text);
      if (as_text != nullptr)
        for (size_t i = known; i < as_text->size(); ++i) (*as_text)[i].offset += at;
      size_t bad = good;
      while (bad < text.size() && next_code_point(text.substr(bad)).bytes == 0) ++bad;
      if (bad > good) model_->encode(text.substr(good, bad - good), scratch->model, ids);
      at = bad;
    }
    release_scratch(std::move(scratch));
  }

  std::string decode(std::span<const int32_t> ids) const override {
    std::string text, bytes;
    for (const int32_t id : ids) {
      if (id < 0 || id >= vocab_size())
        throw input_error("tokenizer", "id ", id, " is outside the vocabulary of ", vocab_size(), " (", identity(),
                          ")");
      if (!vocabulary_.used(id)) continue;
      if (added_->find(id) != nullptr || !characters_.read(vocabulary_.token(id), bytes)) {
        text += vocabulary_.token(id);
      } else {
        text += bytes;
      }
    }
    return text;
  }

  std::string tokenizer_json_text() const override {
    OrderedJson parts = {{"added_tokens", OrderedJson::array()}};
    OrderedJson vocab = OrderedJson::object();
    for (int32_t id = 0; id < ranks_; ++id) {
      if (vocabulary_.used(id)) add_token(vocab, vocabulary_.token(id), id);
    }
    OrderedJson merges = OrderedJson::array();
    for (const BpeModel::Merge& m : merges_) merges.push_back({vocabulary_.token(m.left), vocabulary_.token(m.right)});
    for (const auto& [token, id] : splitting_.special) parts["added_tokens"].push_back(added_token_json(token, id));
    const json split = {
        {"type", "Split"}, {"pattern", {{"Regex", splitting_.pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
    parts["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, byte_level_json(false, false)}}};
    parts["decoder"] = byte_level_json(true, true);
    parts["model"] =
        bpe_model_json({{"vocab", std::move(vocab)}, {"merges", std::move(merges)}, {"ignore_merges", true}});
    return tokenizer_json_of_parts(parts);
  }

 private:
  struct Scratch {
    Regex::Scratch regex;
    Model::Scratch model;
    std::vector<Segment> segments;
  };
  static void check_size(std::string_view text) {
    if (text.size() > (size_t{1} << 30))
      throw TextError{0, "expected a text of at most 1 GiB, got more; split the text"};
  }
  std::unique_ptr<Scratch> acquire_scratch() const {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::make_unique<Scratch>();
    std::unique_ptr<Scratch> scratch = std::move(idle_.back());
    idle_.pop_back();
    return scratch;
  }
  void release_scratch(std::unique_ptr<Scratch> scratch) const {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(scratch));
  }
  void encode_valid(std::string_view text, Scratch& scratch, std::vector<int32_t>& ids,
                    std::vector<SpecialSpelling>* as_text) const {
    scratch.segments.clear();
    added_->split(text, false, scratch.segments, as_text);
    for (const Segment& s : scratch.segments) {
      if (s.id >= 0) {
        ids.push_back(s.id);
        continue;
      }
      const std::string_view part = text.substr(s.span.begin, s.span.end - s.span.begin);
      pattern_.find_all(part, scratch.regex, [&](Span found) {
        // Text that the pattern does not match gets no ids.
        model_->encode(part.substr(found.begin, found.end - found.begin), scratch.model, ids);
      });
    }
  }

  Splitting splitting_;
  Regex pattern_;
  ByteCharacters characters_;
  Vocabulary vocabulary_;
  int32_t ranks_ = 0;
  std::vector<BpeModel::Merge> merges_;
  std::unique_ptr<BpeModel> model_;
  std::unique_ptr<AddedTokens> added_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_;
};

}  // namespace

bool is_tiktoken(const TokenizerFiles& files) {
  std::string name;
  return ranks_file(files, &name) != nullptr;
}

std::unique_ptr<FormTokenizer> open_tiktoken(const TokenizerFiles& files) {
  std::string name;
  const std::string* const text = ranks_file(files, &name);
  const Ranks ranks = parse_ranks(*text, name);
  Splitting splitting = splitting_of(files, name, ranks.size());
  check_listed(files, name, splitting);
  return std::make_unique<TiktokenTokenizer>(ranks, std::move(splitting), name);
}

}  // namespace ashlar::data
