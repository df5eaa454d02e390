#include "data/build/build_plan.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/hex.h"
#include "core/io/checksum.h"
#include "core/io/json.h"

namespace ashlar::data {
namespace {

constexpr std::string_view kPlanFormat = "ashlar.build.3";

}  // namespace

int64_t BuildPlan::part_start(Part part, int64_t i) const {
  const bool last = i == static_cast<int64_t>(blocks.size());
  const int64_t stream = last ? tokens : blocks[i].stream_start;
  int64_t validation = last ? validation_tokens : blocks[i].validation_start;
  if (rule == SplitRule::kTail) validation = std::max<int64_t>(0, stream - train_tokens);
  return part == Part::kValidation ? validation : stream - validation;
}

std::vector<Block> split_into_blocks(const SourceList& sources, int64_t block_bytes) {
  std::vector<Block> blocks;
  for (size_t f = 0; f < sources.files.size(); ++f) {
    const SourceFile& file = sources.files[f];
    const int64_t bytes = file.bytes;
    if (file.shape == TextShape::kJsonArray) {
      const std::vector<int64_t>& starts = file.element_starts;
      // The first block includes the opening bracket, so that the blocks together contain every byte.
      for (size_t i = 0; i < starts.size(); ++i) {
        blocks.push_back({.file = static_cast<int64_t>(f),
                          .begin = i == 0 ? 0 : starts[i],
                          .end = i + 1 < starts.size() ? starts[i + 1] : bytes});
      }
      continue;
    }
    if (file.rows != nullptr) {
      for (const PageRun& run : file.rows->runs())
        blocks.push_back({.file = static_cast<int64_t>(f), .begin = run.begin, .end = run.end});
      continue;
    }
    // For a token file the step is a multiple of the size of an id, so that no block boundary divides an id.
    const int64_t step = block_bytes - (file.tokens ? block_bytes % bytes_of(file.tokens->type) : 0);
    for (int64_t at = 0; at < bytes; at += step) {
      blocks.push_back({.file = static_cast<int64_t>(f), .begin = at, .end = std::min(bytes, at + step)});
    }
  }
  return blocks;
}

void PlanBuilder::add(int64_t block, const BlockCount& count) {
  Block& b = plan_.blocks[block];
  b.first_document = document_;
  b.stream_start = tokens_;
  b.validation_start = validation_tokens_;
  for (const BlockCount::Piece& piece : count.pieces) {
    tokens_ += piece.tokens;
    if (is_validation_document(plan_.share, document_)) validation_tokens_ += piece.tokens;
    document_ += piece.ends ? 1 : 0;
  }
  plan_.empty_documents += count.read.empty_documents;
  plan_.special_spellings += count.special_spellings;
  plan_.bad_lines += count.read.bad_lines;
  plan_.bad_places += count.read.bad_places;
  b.digested = count.digest ? 1 : 0;
  b.digest = count.digest.value_or(Digest{});
}

void PlanBuilder::finish() {
  plan_.documents = document_;
  plan_.tokens = tokens_;
  if (document_ == 0) {
    throw input_error("data build", "expected input with text, got no text in ", plan_.empty_documents,
                      " documents; give other inputs");
  }
  plan_.rule = split_rule(plan_.share, document_);
  plan_.validation_tokens = validation_tokens_;
  if (plan_.rule == SplitRule::kTail) {
    plan_.train_tokens = tail_train_tokens(plan_.share, tokens_);
    plan_.validation_tokens = tokens_ - plan_.train_tokens;
  }
  if (plan_.part_tokens(Part::kTrain) == 0) {
    throw input_error("data build", "nothing is left for the train part: ", tokens_, " tokens with --validation ",
                      plan_.share, "; use more text or a smaller --validation");
  }
}

namespace {

/// Calls visit(name, field) for each field of a plan that is a string or a number.
template <typename Plan, typename Visit>
void for_each_field(Plan& plan, const Visit& visit) {
  visit("fingerprint", plan.fingerprint);
  visit("tokenizer", plan.tokenizer_json);
  visit("share", plan.share);
  visit("cut", plan.train_tokens);
  visit("documents", plan.documents);
  visit("empty_documents", plan.empty_documents);
  visit("special_spellings", plan.special_spellings);
  visit("bad_lines", plan.bad_lines);
  visit("bad_places", plan.bad_places);
  visit("tokens", plan.tokens);
  visit("validation_tokens", plan.validation_tokens);
  visit("shard_tokens", plan.shard_tokens);
}

}  // namespace

std::string serialise_plan(const BuildPlan& plan) {
  nlohmann::json head = {{"rule", static_cast<int>(plan.rule)}};
  for_each_field(plan, [&](const char* name, const auto& value) { head[name] = value; });
  head["blocks"] = plan.blocks.size();
  std::string bytes = str_cat(kPlanFormat, "\n", head.dump(), "\n");
  bytes.append(reinterpret_cast<const char*>(plan.blocks.data()), plan.blocks.size() * sizeof(Block));
  return bytes + hex32(io::crc32(bytes));
}

BuildPlan parse_plan(const std::string& bytes) {
  BuildPlan plan;
  const size_t first = bytes.find('\n');
  const size_t second = first == std::string::npos ? first : bytes.find('\n', first + 1);
  if (second == std::string::npos || bytes.size() < second + 9) return {};
  const std::string_view body = std::string_view(bytes).substr(0, bytes.size() - 8);
  if (hex32(io::crc32(body)) != bytes.substr(bytes.size() - 8) || body.substr(0, first) != kPlanFormat) return {};
  const nlohmann::json head = io::parse_json(body.substr(first + 1, second - first - 1));
  plan.rule = static_cast<SplitRule>(head.at("rule").get<int>());
  for_each_field(plan, [&](const char* name, auto& value) { head.at(name).get_to(value); });
  plan.blocks.resize(head.at("blocks"));
  if (body.size() - second - 1 != plan.blocks.size() * sizeof(Block)) return {};
  std::memcpy(static_cast<void*>(plan.blocks.data()), body.data() + second + 1, plan.blocks.size() * sizeof(Block));
  return plan;
}

}  // namespace ashlar::data
