#include "parallel/model/attention_options.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "core/base/strings.h"

namespace ashlar::model {

namespace {

ConstView described(int64_t rows, int64_t cols) { return {.rows = rows, .cols = cols, .stride = cols}; }

}  // namespace

Mask attention_mask(const ModelConfig& c, int64_t layer) {
  Mask mask;
  const int64_t window = layer_windows(c).at(static_cast<size_t>(layer));
  if (window > 0 && c.attn.window_kind == WindowKind::kSliding) mask.window = window;
  if (window > 0 && c.attn.window_kind == WindowKind::kChunked) mask.chunk = window;
  return mask;
}

ScoreChange score_change(const ModelConfig& c) {
  ScoreChange scores{.scale = c.attn.scale, .softcap = c.attn.softcap.value_or(0)};
  if (c.pos.type == PosType::kAlibi) scores.alibi_slopes = described(1, c.n_heads);
  if (c.attn.sinks) scores.sinks = described(1, c.n_heads);
  if (c.pos.type == PosType::kT5Bias) {
    scores.t5_bias = described(c.pos.t5_num_buckets, c.n_heads);
    scores.t5_buckets = described(1, c.pos.t5_max_distance);
  }
  return scores;
}

void add_attention_errors(const ModelConfig& c, std::vector<std::string>& errors) {
  const auto add = [&](const auto&... parts) { errors.push_back(str_cat(parts...)); };
  if (!(c.attn.scale > 0))
    add("attn.scale = ", c.attn.scale, ": expected a number above 0; \"head_dim^-0.5\" is usual");
  if (c.attn.softcap && !(*c.attn.softcap > 0))
    add("attn.softcap = ", *c.attn.softcap, ": expected a number above 0, or \"none\"; Gemma 2 uses 50");
  if (c.attn.clip_qkv && !(*c.attn.clip_qkv > 0))
    add("attn.clip_qkv = ", *c.attn.clip_qkv, ": expected a number above 0, or \"none\"; OLMo uses 8");
  const auto& cycle = c.attn.window_cycle;
  if (cycle.empty() || std::any_of(cycle.begin(), cycle.end(), [](int64_t w) { return w != -1 && w < 1; }))
    add("attn.window_cycle = [", absl::StrJoin(cycle, ", "),
        "]: expected windows of 1 or more tokens, or -1 for full attention; [-1] is full in every layer");
  if (!(c.pos.alibi_scale > 0)) add("pos.alibi_scale = ", c.pos.alibi_scale, ": expected a number above 0; 1 is usual");
  if (c.attn.temperature_offset < 0)
    add("attn.temperature_offset = ", c.attn.temperature_offset, ": expected 0 or more; Llama 4 uses 1");
  if (c.attn.temperature_positions < 0 || !(c.attn.temperature_beta >= 0))
    add("attn.temperature_positions = ", c.attn.temperature_positions,
        ", attn.temperature_beta = ", c.attn.temperature_beta,
        ": expected both to be 0 or more; attn.temperature_positions = 0 turns the query scaling off");
  const bool whole_heads =
      c.rope.dims == c.head_dim && global_rope_dims(c) == c.attn.global_head_dim.value_or(c.head_dim);
  if (c.attn.temperature_positions > 0 && (c.pos.type != PosType::kRope || !whole_heads))
    add("attn.temperature_positions = ", c.attn.temperature_positions,
        ": expected 0 unless all columns of every head rotate (pos.type = \"rope\", rope.fraction = 1); remove ",
        "attn.temperature_positions and attn.temperature_beta");
  if (c.attn.temperature_positions > 0 && c.attn.temperature_beta == 0)
    add("attn.temperature_positions = ", c.attn.temperature_positions,
        ": expected attn.temperature_beta above 0 too, got 0; set both keys, or neither");
  if (c.attn.temperature_positions == 0 && c.attn.temperature_beta > 0)
    add("attn.temperature_beta = ", c.attn.temperature_beta,
        ": expected attn.temperature_positions above 0 too, got 0; set both keys, or neither");
}

}  // namespace ashlar::model
