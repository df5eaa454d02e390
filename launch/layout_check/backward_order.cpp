#include "launch/layout_check/backward_order.h"

#include <algorithm>
#include <charconv>
#include <compare>
#include <functional>
#include <limits>
#include <string_view>

namespace ashlar::layout_check {

namespace {

/// Where forward has a tensor: embeddings, blocks by number, what follows them.
struct ForwardPlace {
  int64_t block = 0;
  int part = 0;    ///< of a block: a norm, a branch
  int within = 0;  ///< a branch: its inputs before its output
  std::string_view name;
  auto operator<=>(const ForwardPlace&) const = default;
};

/// The part of a block by the rest of the name, in order of forward.
int part_of_block(std::string_view rest, model::NormPlacement placement) {
  const bool post = placement == model::NormPlacement::kPost;
  if (rest.starts_with("norm1.")) return post ? 2 : 0;
  if (rest.starts_with("attn.") || rest.starts_with("qkv_ffn_in.")) return 1;
  if (rest.starts_with("norm1_out.")) return 2;
  if (rest.starts_with("norm2.")) return post ? 5 : 3;
  if (rest.starts_with("ffn.") || rest.starts_with("moe.")) return 4;
  if (rest.starts_with("norm2_out.")) return 5;
  return 6;
}

int place_within(std::string_view rest) {
  if (rest.starts_with("moe.router")) return 0;
  const bool output = rest.starts_with("attn.out.") || rest.find(".down.") != rest.npos;
  return output ? 2 : 1;
}

ForwardPlace forward_place(std::string_view name, model::NormPlacement placement) {
  constexpr std::string_view kBlocks = "blocks.";
  if (name.starts_with("embed.")) return {.block = -1, .name = name};
  ForwardPlace place{.block = std::numeric_limits<int64_t>::max(), .name = name};
  if (!name.starts_with(kBlocks)) {
    place.part = name.starts_with("head.") ? 1 : 0;
    return place;
  }
  const std::string_view number = name.substr(kBlocks.size());
  const char* const end = std::from_chars(number.data(), number.data() + number.size(), place.block).ptr;
  const std::string_view rest = number.substr(std::min(number.size(), static_cast<size_t>(end - number.data()) + 1));
  place.part = part_of_block(rest, placement);
  place.within = place_within(rest);
  return place;
}

}  // namespace

void sort_as_backward_meets(std::vector<std::string>& names, model::NormPlacement placement) {
  std::ranges::sort(names, std::greater(), [&](const std::string& name) { return forward_place(name, placement); });
}

}  // namespace ashlar::layout_check
