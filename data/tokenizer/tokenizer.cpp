#include "data/tokenizer/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/hex.h"
#include "core/base/philox.h"
#include "core/base/utf8.h"
#include "core/io/json.h"
#include "data/digest.h"
#include "data/tokenizer/bytes_tokenizer.h"
#include "data/tokenizer/canonical.h"
#include "data/tokenizer/characters_tokenizer.h"
#include "data/tokenizer/files_json.h"
#include "data/tokenizer/forms.h"

namespace ashlar::data {
namespace {

std::unique_ptr<Tokenizer> characters_from(const nlohmann::json& json) {
  if (!json.contains("code_points") || !json["code_points"].is_array()) {
    throw input_error(
        "tokenizer",
        "the characters tokenizer of the dataset or checkpoint has no code_points list; rebuild the dataset or restore "
        "the checkpoint");
  }
  std::vector<char32_t> vocabulary;
  for (const nlohmann::json& entry : json["code_points"]) {
    const bool good = entry.is_number_unsigned() && entry.get<uint64_t>() <= kLastCodePoint &&
                      (vocabulary.empty() || entry.get<uint64_t>() > vocabulary.back());
    if (!good)
      throw input_error("tokenizer", "expected ascending code_points up to U+10FFFF, got ", entry.dump(),
                        "; rebuild the dataset or restore the checkpoint");
    vocabulary.push_back(static_cast<char32_t>(entry.get<uint32_t>()));
  }
  return std::make_unique<CharactersTokenizer>(std::move(vocabulary));
}

/// A kind of tokenizer: its name as given to --tokenizer, and functions that create it from its JSON and from a corpus.
/// `scan` is null for tokenizers that are read from files.
struct Kind {
  std::string_view name;
  std::unique_ptr<Tokenizer> (*from_json)(const nlohmann::json&);
  std::unique_ptr<CorpusScan> (*scan)();
};
constexpr Kind kKinds[] = {
    {"bytes", [](const nlohmann::json&) -> std::unique_ptr<Tokenizer> { return std::make_unique<BytesTokenizer>(); },
     make_bytes_scan},
    {"characters", characters_from, make_characters_scan},
    {kFilesKind, tokenizer_from_files_json, nullptr},
};

/// The CorpusScan of a tokenizer that is read from files: it counts tokens and learns nothing from the corpus.
class ReadyScan final : public CorpusScan {
 public:
  ReadyScan(std::shared_ptr<const Tokenizer> tokenizer, std::string json)
      : tokenizer_(std::move(tokenizer)), json_(std::move(json)) {}

  SplitPoints split_points() const override { return tokenizer_->split_points(); }
  bool one_token_per_byte() const override { return false; }
  int64_t add(std::string_view text) override {
    ids_.clear();
    tokenizer_->encode(text, ids_);
    return static_cast<int64_t>(ids_.size());
  }
  void merge(const CorpusScan&) override {}
  std::unique_ptr<Tokenizer> finish() const override { return tokenizer_from_json(json_); }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string json_;
  std::vector<int32_t> ids_;
};

const Kind* find_kind(std::string_view name) {
  const auto* const at =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& kind) { return kind.name == name; });
  return at == std::end(kKinds) ? nullptr : at;
}

std::string known_kinds() {
  std::string text;
  for (const Kind& kind : kKinds) {
    if (kind.scan != nullptr) text += str_cat(text.empty() ? "" : ", ", kind.name);
  }
  return text;
}

}  // namespace

size_t first_split_point(SplitPoints rule, std::string_view text) {
  ASHLAR_CHECK(rule == SplitPoints::kAnyByte || rule == SplitPoints::kCodePoint,
               "expected a rule that allows splitting");
  if (rule == SplitPoints::kAnyByte) return 0;
  size_t at = 0;
  while (at < text.size() && at < 3 && (static_cast<uint8_t>(text[at]) & 0xC0U) == 0x80U) ++at;
  return at;
}

std::string Tokenizer::hash() const { return hex64(hash64(to_json())); }

std::string Tokenizer::fingerprint() const {
  std::string what;
  const auto* const form = dynamic_cast<const FormTokenizer*>(this);
  try {
    what = canonical_tokenizer(tokenizer_json_text());
  } catch (const Error&) {
    if (form == nullptr) throw;
    // No tokenizer.json can express this tokenizer, so the digest covers the files of its form.
    for (const TokenizerFile& file : files()) {
      if (makes_form(file.name)) what += str_cat(file.name, " ", digest_of(file.bytes).hex(), " ");
    }
  }
  const bool ends = form == nullptr || form->eos_id();
  return digest_of(str_cat(what, " ends with ", ends ? str_cat(eod_id()) : "nothing")).hex();
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  encode(text, ids);
  return ids;
}

std::unique_ptr<Tokenizer> tokenizer_from_json(std::string_view text) {
  nlohmann::json json;
  io::reading_json(
      [&](const std::string& sentence) {
        return input_error("tokenizer",
                           "the tokenizer of the dataset or checkpoint: expected a JSON object with a \"kind\", but ",
                           sentence, "; rebuild the dataset or restore the checkpoint");
      },
      [&] { json = io::parse_json(text); });
  if (!json.is_object() || !json.contains("kind") || !json["kind"].is_string()) {
    throw input_error("tokenizer",
                      "the tokenizer of the dataset or checkpoint: expected a JSON object with a \"kind\", got ",
                      text.substr(0, 60), "; rebuild the dataset or restore the checkpoint");
  }
  const std::string name = json["kind"];
  const Kind* const kind = find_kind(name);
  if (kind == nullptr)
    throw input_error("tokenizer", "unknown kind \"", name, "\" of tokenizer; expected one of ", known_kinds(),
                      " or files; rebuild the dataset or restore the checkpoint");
  std::unique_ptr<Tokenizer> tokenizer = kind->from_json(json);
  if (tokenizer->to_json() != json.dump()) {
    throw input_error("tokenizer", "the ", name,
                      " tokenizer of the dataset or checkpoint was written by another version of this program: ",
                      text.substr(0, 60), "; use that version, or build the dataset again");
  }
  return tokenizer;
}

std::unique_ptr<Tokenizer> tokenizer_of_path(const std::string& path) {
  std::unique_ptr<FormTokenizer> opened = open_tokenizer(path);
  if (opened->form() != "tokenizer.json" || !opened->eos_id()) return opened;
  const std::string fingerprint = opened->fingerprint();
  auto bytes = std::make_unique<BytesTokenizer>();
  if (opened->vocab_size() == bytes->vocab_size() && fingerprint == bytes->fingerprint()) return bytes;
  std::vector<char32_t> points;
  for (int32_t id = 0; id < opened->eod_id(); ++id) {
    const std::string token = opened->token(id);
    const CodePoint c = token.empty() ? CodePoint() : next_code_point(token);
    const bool character = c.bytes > 0 && static_cast<size_t>(c.bytes) == token.size();
    if (!character || (!points.empty() && c.value <= points.back())) return opened;
    points.push_back(c.value);
  }
  if (points.empty()) return opened;
  auto characters = std::make_unique<CharactersTokenizer>(std::move(points));
  if (fingerprint == characters->fingerprint()) return characters;
  return opened;
}

CorpusScans corpus_scans(const std::string& kind_or_path) {
  const Kind* const kind = find_kind(kind_or_path);
  if (kind != nullptr && kind->scan != nullptr)
    return {.make = kind->scan, .identity = kind_or_path, .tokenizer = nullptr};
  std::error_code ignored;
  if (!std::filesystem::exists(kind_or_path, ignored)) {
    throw input_error("data build", "--tokenizer ", kind_or_path, " is neither a kind (", known_kinds(),
                      ") nor a tokenizer's file or folder; correct --tokenizer");
  }
  const std::shared_ptr<const Tokenizer> tokenizer = tokenizer_of_path(kind_or_path);
  tokenizer->eod_id();  // throws if there is no eos token, since no document could end
  for (const Kind& own : kKinds) {
    if (own.name == tokenizer->identity() && own.scan == make_bytes_scan)
      return {.make = own.scan, .identity = std::string(own.name), .tokenizer = nullptr};
  }
  const auto make = [tokenizer, json = tokenizer->to_json()]() -> std::unique_ptr<CorpusScan> {
    return std::make_unique<ReadyScan>(tokenizer, json);
  };
  return {.make = make, .identity = tokenizer->hash(), .tokenizer = tokenizer};
}

}  // namespace ashlar::data
