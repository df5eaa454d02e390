#include "data/tokenizer/sentencepiece_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "core/base/error.h"
#include "data/tokenizer/tokenizer_json.h"

namespace ashlar::data {
namespace {

using Json = OrderedJson;
using Type = SentencePieceModelFile::Type;

Json replace(const Json& pattern, std::string_view by) {
  return {{"type", "Replace"}, {"pattern", pattern}, {"content", by}};
}

bool has(const SentencePieceModelFile& model, Type type) {
  return std::any_of(model.pieces.begin(), model.pieces.end(), [&](const auto& piece) { return piece.type == type; });
}

/// Returns why no tokenizer.json gives the same ids; empty if one does.
std::string obstacle(const SentencePieceModelFile& model) {
  if (model.space_as_suffix) return "treat_whitespace_as_suffix";
  if (!model.escape_spaces) return "escape_whitespaces = false";
  // If the result contains an unused piece, the library splits it again. tokenizer.json cannot express this.
  if (has(model, Type::kUnused)) return "pieces that are marked as unused";
  // With a tokenizer.json, user-defined symbols are matched before normalization, so each part between them would get a
  // space at its start. The library adds a space only at the start of the whole text.
  if (has(model, Type::kUserDefined) && model.dummy_prefix) return "user-defined symbols with add_dummy_prefix";
  return "";
}

/// Returns the normalizer. It also adds the space at the start of a text. The pre-tokenizer Metaspace cannot add this
/// space: it adds none if the normalizer has removed the first characters.
Json normalizer(const SentencePieceModelFile& model) {
  Json steps = Json::array();
  if (model.charsmap.size() > 4)
    steps.push_back({{"type", "Precompiled"}, {"precompiled_charsmap", absl::Base64Escape(model.charsmap)}});
  if (model.remove_extra_spaces) {
    steps.push_back(replace({{"Regex", "\\A +"}}, ""));
    steps.push_back(replace({{"Regex", " +"}}, kSpaceMark));
    steps.push_back(replace({{"Regex", str_cat("(?:", kSpaceMark, ")+\\z")}}, ""));
  } else {
    steps.push_back(replace({{"String", " "}}, kSpaceMark));
  }
  if (model.dummy_prefix) steps.push_back({{"type", "Prepend"}, {"prepend", kSpaceMark}});
  return {{"type", "Sequence"}, {"normalizers", steps}};
}

Json bpe(const SentencePieceModelFile& model) {
  absl::flat_hash_map<std::string_view, int32_t> ids;  // ids of the normal pieces; merges join only these
  Json vocab = Json::object();
  std::string unknown;
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const auto& piece = model.pieces[i];
    add_token(vocab, piece.text, static_cast<int64_t>(i));
    if (piece.type == Type::kNormal) ids.emplace(piece.text, static_cast<int32_t>(i));
    if (piece.type == Type::kUnknown) unknown = piece.text;
  }
  /// A merge of the pieces `left` and `right` into the piece `joined`, whose score is `score`. Merges are sorted by
  /// descending score. Of several merges into the same piece, the merge of the pieces with lower ids comes first.
  struct Merge {
    float score;
    int32_t joined, left, right;
  };
  std::vector<Merge> merges;
  for (const auto& [text, joined] : ids) {
    const float score = model.pieces[static_cast<size_t>(joined)].score;
    for (size_t split = 1; split < text.size(); ++split) {
      if ((static_cast<uint8_t>(text[split]) & 0xC0U) == 0x80U) continue;
      const auto left = ids.find(text.substr(0, split)), right = ids.find(text.substr(split));
      if (left != ids.end() && right != ids.end()) merges.push_back({score, joined, left->second, right->second});
    }
  }
  std::sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    return std::tuple(-a.score, a.joined, a.left, a.right) < std::tuple(-b.score, b.joined, b.left, b.right);
  });
  Json list = Json::array();
  for (const Merge& m : merges) {
    const auto text = [&](int32_t id) { return model.pieces[static_cast<size_t>(id)].text; };
    list.push_back({text(m.left), text(m.right)});
  }
  return bpe_model_json({{"vocab", std::move(vocab)},
                         {"merges", std::move(list)},
                         {"unk_token", unknown},
                         {"fuse_unk", true},
                         {"byte_fallback", model.byte_fallback}});
}

Json unigram(const SentencePieceModelFile& model) {
  Json vocab = Json::array();
  int64_t unknown = 0;
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const auto& piece = model.pieces[i];
    if (piece.type == Type::kUnknown) unknown = static_cast<int64_t>(i);
    vocab.push_back({piece.text, static_cast<double>(piece.score)});
  }
  return {{"type", "Unigram"}, {"unk_id", unknown}, {"vocab", vocab}, {"byte_fallback", model.byte_fallback}};
}

Json post_processor(const SentencePieceModelFile& model, const std::vector<int32_t>& before,
                    const std::vector<int32_t>& after, std::span<const AddedToken> added) {
  if (before.empty() && after.empty()) return nullptr;
  const auto spelled = [&](int32_t id) {
    if (static_cast<size_t>(id) < model.pieces.size()) return model.pieces[static_cast<size_t>(id)].text;
    for (const AddedToken& token : added) {
      if (token.id == id) return token.content;
    }
    return std::string();
  };
  Json special = Json::object(), single = Json::array(), pair = Json::array();
  const auto put = [&](int32_t id, int type, Json& list) {
    const std::string token = spelled(id);
    list.push_back({{"SpecialToken", {{"id", token}, {"type_id", type}}}});
    special[token] = {{"id", token}, {"ids", {id}}, {"tokens", {token}}};
  };
  const auto text = [&](const char* name, int type, Json& list) {
    for (const int32_t id : before) put(id, type, list);
    list.push_back({{"Sequence", {{"id", name}, {"type_id", type}}}});
    for (const int32_t id : after) put(id, type, list);
  };
  text("A", 0, single);
  text("A", 0, pair);
  text("B", 1, pair);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
}

/// Returns the decoder, which converts pieces to text.
Json decoder(const SentencePieceModelFile& model) {
  Json steps = Json::array();
  steps.push_back(replace({{"String", kSpaceMark}}, " "));
  if (model.byte_fallback) steps.push_back({{"type", "ByteFallback"}});
  steps.push_back({{"type", "Fuse"}});
  if (model.dummy_prefix) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", steps}};
}

/// Returns the list of added tokens: the tokens of the model that are matched in a text, and `added`.
Json added_tokens(const SentencePieceModelFile& model, std::span<const AddedToken> added) {
  Json list = Json::array();
  const auto is_added = [&](size_t id) {
    return std::any_of(added.begin(), added.end(),
                       [&](const AddedToken& token) { return static_cast<size_t>(token.id) == id; });
  };
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const auto& piece = model.pieces[i];
    const bool special = piece.type == Type::kControl || piece.type == Type::kUnknown;
    if ((special || piece.type == Type::kUserDefined) && !is_added(i))
      list.push_back(added_token_json(piece.text, static_cast<int64_t>(i), special));
  }
  for (AddedToken token : added) {
    token.normalized = false;  // matched in the original text, before a space is added at the start
    list.push_back(json_of(token));
  }
  return list;
}

}  // namespace

std::string tokenizer_json_of_sentencepiece(const SentencePieceModelFile& model, const std::vector<int32_t>& before,
                                            const std::vector<int32_t>& after, std::span<const AddedToken> added) {
  if (const std::string wrong = obstacle(model); !wrong.empty())
    throw input_error("tokenizer", "tokenizer.json cannot express a SentencePiece model with ", wrong);
  Json parts = {{"added_tokens", added_tokens(model, added)}};
  parts["normalizer"] = normalizer(model);
  parts["decoder"] = decoder(model);
  parts["post_processor"] = post_processor(model, before, after, added);
  parts["model"] = model.unigram ? unigram(model) : bpe(model);
  return tokenizer_json_of_parts(parts);
}

}  // namespace ashlar::data
