#include "launch/config/schema_model_table.h"

#include <algorithm>

#include "launch/config/schema_words.h"

namespace ashlar::config {
namespace {

using namespace schema_words;

// Conditions of keys. Fields: the condition in words, its test, and the names of the keys that the test reads.
constexpr Condition kParallel = {
    "block.topology = \"parallel\"",
    [](const RunConfig& c) { return c.model.block.topology == model::Topology::kParallel; }, "block.topology"};
constexpr Condition kLearned = {"pos.type = \"learned\"",
                                [](const RunConfig& c) { return c.model.pos.type == model::PosType::kLearned; },
                                "pos.type"};
constexpr Condition kHasTable = {"pos.type is learned or sinusoidal",
                                 [](const RunConfig& c) {
                                   return c.model.pos.type == model::PosType::kLearned ||
                                          c.model.pos.type == model::PosType::kSinusoidal;
                                 },
                                 "pos.type"};
constexpr Condition kRope = {"pos.type = \"rope\"",
                             [](const RunConfig& c) { return c.model.pos.type == model::PosType::kRope; }, "pos.type"};
// has_windows() is true if attn.window_cycle has a window; has_full_layers() is true if the cycle has a layer with full
// attention, or if the last layer has it. Both read the whole cycle even if the model has fewer layers, so that a key
// that applies to a model also applies to its copies with fewer layers. The last field of the four conditions below
// says that a key may be given with its default even if the condition does not hold, because stored configurations of
// earlier versions contain defaults.
bool is_window(int64_t window) { return window >= 0; }
bool has_windows(const model::AttentionConfig& attn) { return std::ranges::any_of(attn.window_cycle, is_window); }
bool has_full_layers(const model::AttentionConfig& attn) {
  return attn.last_layer_full || !std::ranges::all_of(attn.window_cycle, is_window);
}
constexpr Condition kWindows = {"some layer has a window (attn.window_cycle)",
                                [](const RunConfig& c) { return has_windows(c.model.attn); }, "attn.window_cycle",
                                true};
constexpr Condition kFullLayers = {"some layer has full attention (attn.window_cycle, attn.last_layer_full)",
                                   [](const RunConfig& c) { return has_full_layers(c.model.attn); },
                                   "attn.window_cycle|attn.last_layer_full", true};
constexpr Condition kRopeAndWindows = {
    "pos.type = \"rope\" and some layer has a window (attn.window_cycle)",
    [](const RunConfig& c) { return c.model.pos.type == model::PosType::kRope && has_windows(c.model.attn); },
    "pos.type|attn.window_cycle", true};
constexpr Condition kRopeAndFullLayers = {
    "pos.type = \"rope\" and some layer has full attention (attn.window_cycle, attn.last_layer_full)",
    [](const RunConfig& c) { return c.model.pos.type == model::PosType::kRope && has_full_layers(c.model.attn); },
    "pos.type|attn.window_cycle|attn.last_layer_full", true};
template <model::RopeScaling... kKinds>
bool scaling_is(const RunConfig& c) {
  return c.model.pos.type == model::PosType::kRope && ((c.model.rope.scaling == kKinds) || ...);
}
constexpr auto kLinearScaling = model::RopeScaling::kLinear, kLlama3Scaling = model::RopeScaling::kLlama3,
               kYarnScaling = model::RopeScaling::kYarn, kLongScaling = model::RopeScaling::kLongrope;
constexpr Condition kScaled = {"rope.scaling is not none",
                               [](const RunConfig& c) {
                                 return c.model.pos.type == model::PosType::kRope &&
                                        c.model.rope.scaling != model::RopeScaling::kNone;
                               },
                               "rope.scaling|pos.type"};
constexpr Condition kHasFactor = {"rope.scaling is linear, llama3, yarn or longrope",
                                  scaling_is<kLinearScaling, kLlama3Scaling, kYarnScaling, kLongScaling>,
                                  "rope.scaling|pos.type"};
constexpr Condition kHasOriginal = {"rope.scaling is llama3, yarn or longrope",
                                    scaling_is<kLlama3Scaling, kYarnScaling, kLongScaling>, "rope.scaling|pos.type"};
constexpr Condition kTurnsLonger = {"rope.scaling is yarn or longrope", scaling_is<kYarnScaling, kLongScaling>,
                                    "rope.scaling|pos.type"};
constexpr Condition kLlama3 = {"rope.scaling = \"llama3\"", scaling_is<kLlama3Scaling>, "rope.scaling|pos.type"};
constexpr Condition kYarn = {"rope.scaling = \"yarn\"", scaling_is<kYarnScaling>, "rope.scaling|pos.type"};
constexpr Condition kLongrope = {"rope.scaling = \"longrope\"", scaling_is<kLongScaling>, "rope.scaling|pos.type"};
constexpr Condition kDynamic = {"rope.scaling = \"dynamic\"", scaling_is<model::RopeScaling::kDynamic>,
                                "rope.scaling|pos.type"};
constexpr Condition kQkNorm = {"attn.qk_norm is not none",
                               [](const RunConfig& c) { return c.model.qk_norm.kind != model::QkNorm::kNone; },
                               "attn.qk_norm"};
constexpr Condition kTemperature = {"attn.temperature_positions is above 0",
                                    [](const RunConfig& c) { return c.model.attn.temperature_positions > 0; },
                                    "attn.temperature_positions"};
constexpr Condition kMla = {"attn.kind = \"mla\"",
                            [](const RunConfig& c) { return c.model.attn.kind == model::AttentionKind::kMla; },
                            "attn.kind"};
constexpr Condition kRenormalized = {
    "moe.renormalize = true",
    [](const RunConfig& c) { return c.model.moe.experts > 0 && c.model.moe.rule.renormalize; },
    "moe.experts|moe.renormalize"};
constexpr Condition kGroups = {
    "moe.groups is above 1", [](const RunConfig& c) { return c.model.moe.experts > 0 && c.model.moe.rule.groups > 1; },
    "moe.experts|moe.groups"};
constexpr Condition kSelectionBias = {
    "moe.selection_bias = true",
    [](const RunConfig& c) { return c.model.moe.experts > 0 && c.model.moe.selection_bias; },
    "moe.experts|moe.selection_bias"};
constexpr Condition kShared = {
    "moe.shared_d_ff is above 0",
    [](const RunConfig& c) { return c.model.moe.experts > 0 && c.model.moe.shared_d_ff > 0; },
    "moe.experts|moe.shared_d_ff"};
constexpr Condition kAlibi = {
    "pos.type = \"alibi\"", [](const RunConfig& c) { return c.model.pos.type == model::PosType::kAlibi; }, "pos.type"};
constexpr Condition kT5Bias = {"pos.type = \"t5_bias\"",
                               [](const RunConfig& c) { return c.model.pos.type == model::PosType::kT5Bias; },
                               "pos.type"};
// norm.unit_offset = false is always accepted; true requires a gain.
constexpr Condition kHasGain = {"norm.affine is scale or scale_bias",
                                [](const RunConfig& c) {
                                  return !c.model.norm.variant.unit_offset ||
                                         c.model.norm.affine != model::NormAffine::kNone;
                                },
                                "norm.affine"};

// clang-format off
constexpr KeySpec kModelKeys[] = {
    // ---- model
    {.section = "model", .key = "d_model", .member = MEMBER(model.d_model), .need = Need::kModel, .low = 1,
     .high = kMega, .example = "512", .unit = "columns", .doc = "Width of the residual stream."},
    {.section = "model", .key = "n_layers", .member = MEMBER(model.n_layers), .need = Need::kModel, .low = 1,
     .high = 10000, .example = "8", .unit = "blocks", .doc = "Number of transformer blocks."},
    {.section = "model", .key = "n_heads", .member = MEMBER(model.n_heads), .need = Need::kModel, .low = 1,
     .high = 16384, .example = "8", .unit = "heads",
     .doc = "Query heads of a layer. n_heads * head_dim need not equal d_model."},
    {.section = "model", .key = "n_kv_heads", .member = MEMBER(model.n_kv_heads), .need = kDerived,
     .rule = "model.n_heads", .low = 1, .high = 16384, .example = "2", .unit = "heads",
     .doc = "Key and value heads; divides n_heads. Query head h reads KV head h * n_kv_heads / n_heads. 1 is "
            "multi-query."},
    {.section = "model", .key = "head_dim", .member = MEMBER(model.head_dim), .need = kDerived,
     .rule = "d_model / n_heads", .low = 1, .high = 512, .example = "64", .unit = "columns",
     .doc = "Width of a head. Multiples of 8 are the fastest on a GPU, others are padded inside its kernels."},
    {.section = "model", .key = "d_ff", .member = MEMBER(model.d_ff), .need = kDerived,
     .rule = "gated: 8/3 d_model rounded up to ffn.multiple_of; else 4 d_model", .low = 1, .high = 16 * kMega,
     .example = "2048", .unit = "columns", .doc = "Width of the feed-forward layer."},
    {.section = "model", .key = "embed_dim", .member = MEMBER(model.embed_dim), .need = kOptional, .low = 1,
     .high = kMega, .example = "512", .unit = "columns",
     .doc = "Width of the token tables if it differs from d_model: the residual stream is projected in and out "
            "(OPT-350M). Absent: d_model, without projections."},

    // ---- vocab
    {.section = "vocab", .key = "size", .member = MEMBER(model.vocab_size), .need = kDerived,
     .rule = "the vocabulary of the dataset", .low = 1, .high = 64 * kMega, .example = "256", .unit = "ids",
     .doc = "Number of token ids."},
    {.section = "vocab", .key = "pad_to", .member = MEMBER(model.vocab_pad_to), .fallback = "1", .low = 1,
     .high = 65536, .unit = "ids",
     .doc = "The number of table rows is rounded up to a multiple of this. Padded ids are masked in the loss and never "
            "saved."},

    // ---- norm
    {.section = "norm", .key = "type", .member = MEMBER(model.norm.variant.type), .fallback = "rmsnorm",
     .doc = "rmsnorm: x / sqrt(mean(x^2) + eps) * g. layernorm: (x - mean) / sqrt(var + eps) * g + b."},
    {.section = "norm", .key = "affine", .member = MEMBER(model.norm.affine), .fallback = "scale",
     .doc = "Learned gain, gain and bias, or neither."},
    {.section = "norm", .key = "unit_offset", .member = MEMBER(model.norm.variant.unit_offset), .fallback = "false",
     .when = kHasGain, .doc = "Multiply by 1 + g with g starting at 0 (Gemma, Nemotron)."},
    {.section = "norm", .key = "eps", .member = MEMBER(model.norm.variant.eps), .fallback = "1e-5", .low = 0, .high = 1,
     .low_open = true, .doc = "Added to the variance or mean square."},
    {.section = "norm", .key = "placement", .member = MEMBER(model.norm.placement), .fallback = "pre",
     .doc = "Position of the norm of a branch. pre: before it. post: after the addition (GPT-1). sandwich: before it "
            "and on its output (Gemma 2). output: on its output only (OLMo 2). A parallel block supports pre only."},
    {.section = "norm", .key = "final", .member = MEMBER(model.norm.final), .need = kDerived,
     .rule = "true; false with norm.placement = \"post\"", .example = "true",
     .doc = "A norm between the last block and the head."},
    {.section = "norm", .key = "embed", .member = MEMBER(model.norm.embed), .fallback = "false",
     .doc = "A norm after the embedding and the learned positions (BLOOM)."},

    // ---- block
    {.section = "block", .key = "topology", .member = MEMBER(model.block.topology), .fallback = "serial",
     .doc = "serial: x += attn(n1(x)); x += ffn(n2(x)). parallel: x += attn(n1(x)) + ffn(n2(x)), where n2 "
            "is n1 if block.parallel_norms = 1."},
    {.section = "block", .key = "parallel_norms", .member = MEMBER(model.block.parallel_norms), .fallback = "1",
     .low = 1, .high = 2, .when = kParallel, .unit = "norms",
     .doc = "1: attention and FFN share a norm (GPT-J, Falcon 7B). 2: one each (GPT-NeoX)."},
    {.section = "block", .key = "residual_multiplier", .member = MEMBER(model.block.residual_multiplier),
     .fallback = "1", .low = 0, .high = 1e6, .low_open = true,
     .doc = "Factor on each branch output, after its norm and dropout, before it joins the residual stream (Granite)."},
    {.section = "block", .key = "out_scalar", .member = MEMBER(model.block.out_scalar), .fallback = "false",
     .doc = "A learned scalar per block that multiplies its output, initially 1 (Gemma 4)."},

    // ---- bias
    {.section = "bias", .key = "qkv", .member = MEMBER(model.bias.qkv), .fallback = "false",
     .doc = "Bias on the query, key and value projections."},
    {.section = "bias", .key = "attn_out", .member = MEMBER(model.bias.attn_out), .fallback = "false",
     .doc = "Bias on the attention output projection."},
    {.section = "bias", .key = "ffn", .member = MEMBER(model.bias.ffn), .fallback = "false",
     .doc = "Bias on every linear of the FFN."},
    {.section = "bias", .key = "lm_head", .member = MEMBER(model.bias.lm_head), .fallback = "false",
     .doc = "Bias on the logits."},

    // ---- ffn
    {.section = "ffn", .key = "act", .member = MEMBER(model.ffn.act), .fallback = "silu",
     .doc = "Activation. gelu_erf is exact GELU, gelu_tanh its tanh form, quick_gelu x*sigmoid(1.702x): they are not "
            "interchangeable. relu2 is relu squared; gated, identity is the bilinear layer and sigmoid GLU. xielu, "
            "ungated: p x^2 + x/2 above 0, n (exp(x) - 1 - x) + x/2 below, p and n each from a learned scalar per "
            "layer (Apertus)."},
    {.section = "ffn", .key = "gated", .member = MEMBER(model.ffn.gated), .fallback = "true",
     .doc = "Wdown(act(Wgate x) * Wup x) with three matrices, else Wdown act(Wup x) with two. silu gated is SwiGLU."},
    {.section = "ffn", .key = "multiple_of", .type = kInt, .fallback = "256", .low = 1, .high = 65536,
     .when = {"ffn.gated = true and model.d_ff is derived"}, .unit = "columns",
     .doc = "A derived d_ff of a gated FFN is rounded up to a multiple of this."},
    {.section = "ffn", .key = "clamp", .member = MEMBER(model.ffn.clamp), .fallback = "none", .low = 0, .high = 1e9,
     .low_open = true, .words = "none",
     .doc = "Clamp of a gated FFN: the gate, before its activation, from above; the up values on both sides "
            "(phi-3-small: 20)."},
    {.section = "ffn", .key = "linear_offset", .member = MEMBER(model.ffn.linear_offset), .fallback = "0", .low = -1e6,
     .high = 1e6, .doc = "Added to the up values of a gated FFN, after the clamp (phi-3-small: 1)."},

    // ---- moe
    {.section = "moe", .key = "experts", .member = MEMBER(model.moe.experts), .fallback = "0", .low = 0, .high = 4096,
     .unit = "experts",
     .doc = "Feed-forward networks of a layer, of which a router chooses moe.top_k for each token; 0: one network for "
            "all tokens. Experts have the activation, biases, clamp and offset of the sections ffn and bias. No token "
            "is dropped. Other names: num_experts, num_local_experts, n_routed_experts."},
    {.section = "moe", .key = "top_k", .member = MEMBER(model.moe.top_k), .fallback = "2", .low = 1, .high = 4096,
     .when = kMoe, .unit = "experts",
     .doc = "Experts that process a token. Other names: num_experts_per_tok, moe_router_topk."},
    {.section = "moe", .key = "d_ff", .member = MEMBER(model.moe.d_ff), .need = kDerived, .rule = "model.d_ff",
     .low = 1, .high = 16 * kMega, .when = kMoe, .example = "768", .unit = "columns",
     .doc = "Width of an expert. Other names: moe_intermediate_size, moe_ffn_hidden_size."},
    {.section = "moe", .key = "first_layer", .member = MEMBER(model.moe.first_layer), .fallback = "0", .low = 0,
     .high = 10000, .when = kMoe, .unit = "layer",
     .doc = "First layer with experts; the layers before it are dense (DeepSeek V3: 3)."},
    {.section = "moe", .key = "every", .member = MEMBER(model.moe.every), .fallback = "1", .low = 1, .high = 10000,
     .when = kMoe, .unit = "layers",
     .doc = "Layer i, counted from 0, has experts only if this divides i + 1 (Llama 4 Maverick: 2)."},
    {.section = "moe", .key = "dense_layers", .member = MEMBER(model.moe.dense_layers), .need = kOptional, .low = 0,
     .high = 10000, .when = kMoe, .example = "[0, 5]", .unit = "layers",
     .doc = "Further layers without experts, in ascending order."},
    {.section = "moe", .key = "shared_d_ff", .member = MEMBER(model.moe.shared_d_ff), .fallback = "0", .low = 0,
     .high = 16 * kMega, .when = kMoe, .unit = "columns",
     .doc = "Width of the shared expert, which processes every token; 0: none. n shared experts of width w are one of "
            "width n * w."},
    {.section = "moe", .key = "shared_gate", .member = MEMBER(model.moe.shared_gate), .fallback = "false",
     .when = kShared,
     .doc = "The output of the shared expert is multiplied by sigmoid(w x), w a learned row (Qwen 2)."},
    {.section = "moe", .key = "scale_input", .member = MEMBER(model.moe.scale_input), .fallback = "false",
     .when = kMoe, .doc = "The weight of an expert multiplies its input, not its output (Llama 4)."},
    {.section = "moe", .key = "score", .member = MEMBER(model.moe.rule.score), .fallback = "softmax", .when = kMoe,
     .doc = "Scores of the experts: the softmax of the router's logits over all experts, or the sigmoid of each logit "
            "(DeepSeek V3)."},
    {.section = "moe", .key = "renormalize", .member = MEMBER(model.moe.rule.renormalize), .fallback = "true",
     .when = kMoe,
     .doc = "The weights of the chosen experts are their scores divided by their sum; with score softmax this equals "
            "the softmax over the chosen logits (Mixtral). false: the scores themselves (OLMoE)."},
    {.section = "moe", .key = "sum_floor", .member = MEMBER(model.moe.rule.sum_floor), .fallback = "0", .low = 0, .high = 1,
     .when = kRenormalized, .doc = "Least value of the sum that divides the weights (ERNIE 4.5: 1e-12)."},
    {.section = "moe", .key = "sum_eps", .member = MEMBER(model.moe.rule.sum_eps), .fallback = "0", .low = 0, .high = 1,
     .when = kRenormalized, .doc = "Added to the sum that divides the weights (DeepSeek V3: 1e-20)."},
    {.section = "moe", .key = "scale", .member = MEMBER(model.moe.rule.scale), .fallback = "1", .low = 0, .high = 1e6,
     .low_open = true, .when = kMoe, .doc = "Factor on the weights of the chosen experts (DeepSeek V3: 2.5)."},
    {.section = "moe", .key = "groups", .member = MEMBER(model.moe.rule.groups), .fallback = "1", .low = 1, .high = 4096,
     .when = kMoe, .unit = "groups",
     .doc = "Groups of consecutive experts; a token chooses among the experts of its best moe.top_groups groups."},
    {.section = "moe", .key = "top_groups", .member = MEMBER(model.moe.rule.top_groups), .fallback = "1", .low = 1,
     .high = 4096, .when = kGroups, .unit = "groups", .doc = "Groups from which the experts of a token are chosen."},
    {.section = "moe", .key = "group_score", .member = MEMBER(model.moe.rule.group_score), .fallback = "top_two",
     .when = kGroups,
     .doc = "Score of a group: max, its largest score (DeepSeek V2), or top_two, the sum of its two largest (V3)."},
    {.section = "moe", .key = "router_bias", .member = MEMBER(model.moe.router_bias), .fallback = "false",
     .when = kMoe, .doc = "Bias on the router's logits (gpt-oss)."},
    {.section = "moe", .key = "tensor", .member = MEMBER(model.moe.tensor), .fallback = "slices", .when = kMoe,
     .doc = "How tensor ranks share the experts of a layer. slices: each has a slice of every expert, and moe.d_ff is "
            "divided. experts: each has whole experts of its own, which suits many narrow experts."},
    {.section = "moe", .key = "router_norm", .member = MEMBER(model.moe.router_norm), .fallback = "false",
     .when = kMoe,
     .doc = "The router reads the residual stream itself, by an RMS norm with a gain of its own and times "
            "d_model^-0.5 (Gemma 4), not the normalized rows that the experts read."},
    {.section = "moe", .key = "expert_scale", .member = MEMBER(model.moe.expert_scale), .fallback = "false",
     .when = kMoe, .doc = "A learned factor of each expert on its weights (Gemma 4)."},
    {.section = "moe", .key = "beside_ffn", .member = MEMBER(model.moe.beside_ffn), .fallback = "false", .when = kMoe,
     .doc = "A dense feed-forward network of model.d_ff beside the experts, in the same layers. A norm precedes the "
            "experts, and a norm follows each of the two before they are added (Gemma 4)."},
    {.section = "moe", .key = "selection_bias", .member = MEMBER(model.moe.selection_bias), .fallback = "false",
     .when = kMoe,
     .doc = "A number for each expert that is added to its score where experts and groups are chosen, and never to a "
            "weight. Gradients do not train it: after each step it moves by moe.bias_rate, up if the expert had fewer "
            "choices than the mean in the global batch, down if it had more (DeepSeek V3). Then balance \"none\" or a "
            "small balance_coef is usual."},
    {.section = "moe", .key = "bias_rate", .member = MEMBER(model.moe.bias_rate), .fallback = "1e-3", .low = 0,
     .high = 1, .when = kSelectionBias,
     .doc = "By how much the selection bias moves in a step; 0 keeps it as it is."},
    {.section = "moe", .key = "balance", .member = MEMBER(model.moe.balance), .fallback = "sequence", .when = kMoe,
     .doc = "Balance loss E * sum over experts of f * P: f is an expert's share of the choices, P the mean of its "
            "scores divided by their sum. It is 1 if all experts are chosen equally often. sequence: f is of each "
            "sequence. previous: f is of the global batch of the previous step, and 0 in the first. The mean over "
            "tokens and layers does not depend on the mesh or the micro-batch, unlike a loss per micro-batch."},
    {.section = "moe", .key = "balance_coef", .member = MEMBER(model.moe.balance_coef), .fallback = "0.01", .low = 0,
     .high = 1e3, .when = kMoe, .doc = "Factor of the balance loss, which is not part of the logged loss."},
    {.section = "moe", .key = "z_coef", .member = MEMBER(model.moe.z_coef), .fallback = "0", .low = 0, .high = 1,
     .when = kMoe,
     .doc = "Adds z_coef * mean(log(Z)^2) of the router's logits, the mean over tokens and layers (ST-MoE: 1e-3)."},

    // ---- pos
    {.section = "pos", .key = "type", .member = MEMBER(model.pos.type), .fallback = "rope", .unsupported = "xl_rel",
     .doc = "learned: a table added to the embedding. rope: rotary positions. sinusoidal: a fixed table of sines, then "
            "cosines, of position * 10000^(-m/(d_model/2 - 1)) (XGLM). alibi: a score falls by the slope of its head "
            "times the distance. t5_bias: a learned score for each head and bucket of distances (LaMDA)."},
    {.section = "pos", .key = "max_positions", .member = MEMBER(model.pos.max_positions), .need = kDerived,
     .rule = "train.sequence_length", .low = 1, .high = 16 * kMega, .when = kLearned, .example = "1024",
     .unit = "tokens", .doc = "Rows of the learned table: the longest sequence the model can read."},
    {.section = "pos", .key = "learned_offset", .member = MEMBER(model.pos.learned_offset), .fallback = "0", .low = 0,
     .high = 65536, .when = kHasTable, .unit = "rows",
     .doc = "Rows of the table before the row of position 0, learned or sinusoidal (OPT, XGLM: 2)."},
    {.section = "pos", .key = "t5_num_buckets", .member = MEMBER(model.pos.t5_num_buckets), .fallback = "32", .low = 2,
     .high = 1024, .when = kT5Bias, .unit = "buckets",
     .doc = "Buckets of T5's bias: the first half are single distances from 0, the others grow logarithmically."},
    {.section = "pos", .key = "t5_max_distance", .member = MEMBER(model.pos.t5_max_distance), .fallback = "128",
     .low = 2, .high = kMega, .when = kT5Bias, .unit = "tokens",
     .doc = "From this distance on all keys are in the last bucket; more than t5_num_buckets / 2."},
    {.section = "pos", .key = "t5_shared_across_layers", .member = MEMBER(model.pos.t5_shared), .fallback = "true",
     .when = kT5Bias, .doc = "One table of T5's bias for all layers, or one per layer."},
    {.section = "pos", .key = "alibi_scale", .member = MEMBER(model.pos.alibi_scale), .type = kNumberOrWord,
     .fallback = "1", .low = 0, .high = 1e6, .low_open = true, .words = "head_dim^-0.5", .when = kAlibi,
     .doc = "Factor on ALiBi's slopes 2^(-8k/n); Falcon divides them by sqrt(head_dim)."},

    // ---- rope
    {.section = "rope", .key = "base", .member = MEMBER(model.rope.base), .fallback = "10000", .low = 0, .high = 1e12,
     .low_open = true, .when = kRope, .doc = "Pair m rotates with the frequency base^(-2m/dims)."},
    {.section = "rope", .key = "fraction", .type = kNumber, .fallback = "1.0", .low = 0, .high = 1, .low_open = true,
     .when = {"pos.type = \"rope\" and rope.dims is not given"},
     .doc = "Share of head_dim that rotates; converted to rope.dims once."},
    {.section = "rope", .key = "dims", .member = MEMBER(model.rope.dims), .need = kDerived,
     .rule = "integer part of head_dim * rope.fraction", .low = 2, .high = 512, .when = kRope, .example = "32",
     .unit = "columns", .doc = "Columns of a head that rotate, from the first on; an even number."},
    {.section = "rope", .key = "style", .member = MEMBER(model.rope.style), .fallback = "half", .when = kRope,
     .doc = "Columns of a head that rotate as pair m. half: m and m + dims/2. interleaved: 2m and 2m + 1."},
    {.section = "rope", .key = "reversed", .member = MEMBER(model.rope.reversed), .fallback = "false", .when = kRope,
     .doc = "Rotate by the negative angle (NanoChat)."},
    {.section = "rope", .key = "base_cycle", .member = MEMBER(model.rope.base_cycle), .need = kOptional, .low = 0,
     .high = 1e12, .when = kRope, .example = "[10000.0, 10000.0, 10000.0, 0.0]",
     .doc = "Bases per layer, repeated, instead of rope.base; 0: no rotation in that layer (SmolLM3, Granite SWA)."},
    {.section = "rope", .key = "scaling", .member = MEMBER(model.rope.scaling), .fallback = "none", .when = kRope,
     .doc = "How frequencies change for long context. linear: all are divided by rope.factor. llama3: low ones are "
            "divided. yarn: low ones are divided, with a ramp to the unchanged ones, and cos and sin get a factor. "
            "longrope: each pair has its own divisor. proportional: pairs span the whole head, and the first "
            "rope.dims / 2 rotate (Gemma 4). dynamic: the base is multiplied by alpha^(dims/(dims-2)) (HunYuan)."},
    {.section = "rope", .key = "scaled_layers", .member = MEMBER(model.rope.scaled_layers), .fallback = "all",
     .when = kScaled, .doc = "full: only layers with full attention have scaled frequencies (Gemma 3, OLMo 3)."},
    {.section = "rope", .key = "factor", .member = MEMBER(model.rope.factor), .need = kDerived,
     .rule = "must be given with linear, llama3, yarn and longrope scaling", .low = 1, .high = 1e6, .when = kHasFactor,
     .example = "8.0",
     .doc = "Extended context / rope.original_positions, for linear, llama3, yarn and longrope scaling."},
    {.section = "rope", .key = "low_freq_factor", .member = MEMBER(model.rope.low_freq_factor), .fallback = "1",
     .low = 0, .high = 1e6, .low_open = true, .when = kLlama3,
     .doc = "Wavelengths above original_positions / low_freq_factor are scaled."},
    {.section = "rope", .key = "high_freq_factor", .member = MEMBER(model.rope.high_freq_factor), .fallback = "4",
     .low = 0, .high = 1e6, .low_open = true, .when = kLlama3,
     .doc = "Wavelengths below original_positions / high_freq_factor are unchanged."},
    {.section = "rope", .key = "original_positions", .member = MEMBER(model.rope.original_positions), .need = kDerived,
     .rule = "must be given with llama3, yarn and longrope scaling", .low = 2, .high = 16 * kMega, .when = kHasOriginal,
     .example = "8192", .unit = "tokens", .doc = "Context before scaling, for llama3, yarn and longrope scaling."},
    {.section = "rope", .key = "beta_fast", .member = MEMBER(model.rope.beta_fast), .fallback = "32", .low = 0,
     .high = 1e6, .low_open = true, .when = kYarn,
     .doc = "Pairs with more rotations than this within original_positions are unchanged."},
    {.section = "rope", .key = "beta_slow", .member = MEMBER(model.rope.beta_slow), .fallback = "1", .low = 0,
     .high = 1e6, .low_open = true, .when = kYarn, .doc = "Pairs with fewer rotations than this are scaled."},
    {.section = "rope", .key = "truncate", .member = MEMBER(model.rope.truncate), .fallback = "true", .when = kYarn,
     .doc = "The ramp of yarn is truncated to whole pairs at both ends."},
    {.section = "rope", .key = "attention_factor", .member = MEMBER(model.rope.attention_factor), .need = kDerived,
     .rule = "yarn: 0.1 ln factor + 1; longrope: sqrt(1 + ln factor / ln original_positions)", .low = 0, .high = 1e6,
     .low_open = true, .when = kTurnsLonger, .example = "1.0",
     .doc = "Factor on cos and sin, for yarn and longrope scaling."},
    {.section = "rope", .key = "short_factor", .member = MEMBER(model.rope.short_factor), .need = kOptional, .low = 0,
     .high = 1e6, .low_open = true, .when = kLongrope, .example = "[1.0, 1.0]",
     .doc = "Divisors of the frequencies, one per pair, when train.sequence_length is at most original_positions."},
    {.section = "rope", .key = "long_factor", .member = MEMBER(model.rope.long_factor), .need = kOptional, .low = 0,
     .high = 1e6, .low_open = true, .when = kLongrope, .example = "[1.0, 2.0]",
     .doc = "Divisors of the frequencies for longer sequences."},
    {.section = "rope", .key = "alpha", .member = MEMBER(model.rope.alpha), .fallback = "1", .low = 1, .high = 1e6,
     .when = kDynamic, .doc = "Factor of dynamic scaling, used at every length."},
    {.section = "rope", .key = "local_base", .member = MEMBER(model.rope.local_base), .fallback = "none", .low = 0,
     .high = 1e12, .low_open = true, .words = "none", .when = kRopeAndWindows,
     .doc = "Base of layers with a window, instead of rope.base (Gemma 3); not with rope.base_cycle."},
    {.section = "rope", .key = "global_enabled", .member = MEMBER(model.rope.global_enabled), .fallback = "true",
     .when = kRopeAndFullLayers,
     .doc = "false: layers with full attention do not rotate (Command A); not with rope.base_cycle."},
    {.section = "rope", .key = "global_dims", .member = MEMBER(model.rope.global_dims), .need = kOptional, .low = 2,
     .high = 512, .when = kRopeAndFullLayers, .example = "128", .unit = "columns",
     .doc = "Columns of a head that rotate in layers with full attention; an even number (Gemma 4). Absent: the same "
            "share of a head as rope.dims."},

    // ---- attn
    {.section = "attn", .key = "kind", .member = MEMBER(model.attn.kind), .fallback = "standard",
     .doc = "standard: queries, keys and values are computed with one matrix each. mla: they are computed from "
            "low-rank latents (DeepSeek); rope.dims columns of a head rotate, head_dim - rope.dims do not; the rotated "
            "columns of the keys are the same for all heads."},
    {.section = "attn", .key = "q_rank", .member = MEMBER(model.attn.q_rank), .fallback = "0", .low = 0, .high = kMega,
     .when = kMla, .unit = "columns", .doc = "Rank of the latent of queries; 0: one full matrix (DeepSeek V2 Lite)."},
    {.section = "attn", .key = "kv_rank", .member = MEMBER(model.attn.kv_rank), .fallback = "512", .low = 1,
     .high = kMega, .when = kMla, .unit = "columns", .doc = "Rank of the latent of keys and values."},
    {.section = "attn", .key = "latent_eps", .member = MEMBER(model.attn.latent_eps), .fallback = "1e-6", .low = 0,
     .high = 1, .low_open = true, .when = kMla,
     .doc = "Added to the mean square of the latents, independent of norm.eps."},
    {.section = "attn", .key = "v_head_dim", .member = MEMBER(model.attn.v_head_dim), .fallback = "0", .low = 0,
     .high = 512, .unit = "columns",
     .doc = "Width of the values of a head; 0: head_dim. On a GPU other widths use kernels without tensor cores."},
    {.section = "attn", .key = "scale", .member = MEMBER(model.attn.scale), .type = kNumberOrWord,
     .fallback = "head_dim^-0.5", .low = 0, .high = 1e6, .low_open = true,
     .words = "head_dim^-0.5|(d_model/n_heads)^-0.5|1/head_dim", .doc = "Factor on q.k before the softmax."},
    {.section = "attn", .key = "global_head_dim", .member = MEMBER(model.attn.global_head_dim), .need = kOptional,
     .low = 1, .high = 512, .when = kFullLayers, .example = "512", .unit = "columns",
     .doc = "Width of a head in layers with full attention, instead of model.head_dim (Gemma 4)."},
    {.section = "attn", .key = "global_n_kv_heads", .member = MEMBER(model.attn.global_n_kv_heads), .need = kOptional,
     .low = 1, .high = 16384, .when = kFullLayers, .example = "4", .unit = "heads",
     .doc = "Key and value heads of layers with full attention, instead of model.n_kv_heads (Gemma 4); divides "
            "n_heads."},
    {.section = "attn", .key = "k_eq_v", .member = MEMBER(model.attn.k_eq_v), .fallback = "false", .when = kFullLayers,
     .doc = "Layers with full attention have no value matrix: values are the keys before their norm and rotation "
            "(Gemma 4)."},
    {.section = "attn", .key = "v_norm", .member = MEMBER(model.attn.v_norm), .fallback = "false",
     .doc = "RMS norm of the values of each head, with norm.eps and without a gain (Gemma 4)."},
    {.section = "attn", .key = "qk_norm", .member = MEMBER(model.qk_norm.kind), .fallback = "none",
     .doc = "Norm on queries and keys. head: of each head, one gain for all (Qwen 3). head_per: of each head, with its "
            "own gain (Command R+). full: over all heads at once (OLMo 2). l2: of each head, without a gain (Llama "
            "4)."},
    {.section = "attn", .key = "qk_norm_type", .member = MEMBER(model.qk_norm.type), .fallback = "rmsnorm",
     .when = kQkNorm, .doc = "Kind of the norm on queries and keys."},
    {.section = "attn", .key = "qk_norm_bias", .member = MEMBER(model.qk_norm.bias), .fallback = "false",
     .when = kQkNorm, .doc = "A bias beside the gain of the norm on queries and keys (Chameleon)."},
    {.section = "attn", .key = "qk_norm_order", .member = MEMBER(model.qk_norm.order), .fallback = "before_rope",
     .when = kQkNorm, .doc = "Position of the norm on queries and keys: before the rotation, or after it (Llama 4)."},
    {.section = "attn", .key = "qk_norm_layers", .member = MEMBER(model.qk_norm.layers), .fallback = "all",
     .when = kQkNorm,
     .doc = "Layers with the norm on queries and keys: all, those that rotate (Llama 4), or those that do not."},
    {.section = "attn", .key = "qk_norm_eps", .member = MEMBER(model.qk_norm.eps), .need = kDerived, .rule = "norm.eps",
     .low = 0, .high = 1, .low_open = true, .when = kQkNorm, .example = "1e-6",
     .doc = "Added to the variance or mean square of queries and keys."},
    {.section = "attn", .key = "softcap", .member = MEMBER(model.attn.softcap), .fallback = "none", .low = 0,
     .high = 1e9, .low_open = true, .words = "none", .doc = "cap * tanh(score / cap) on attention scores (Gemma 2)."},
    {.section = "attn", .key = "clip_qkv", .member = MEMBER(model.attn.clip_qkv), .fallback = "none", .low = 0,
     .high = 1e9, .low_open = true, .words = "none",
     .doc = "Queries, keys and values are clamped to [-c, c] after their biases (and a norm before_rope) and before "
            "the rotation (OLMo)."},
    {.section = "attn", .key = "window_cycle", .member = MEMBER(model.attn.window_cycle), .fallback = "[-1]", .low = -1,
     .high = 16 * kMega, .unit = "tokens",
     .doc = "Attention windows, repeated over the layers: the number of keys that a query sees, itself included; -1 is "
            "full attention. [4096] in Mistral, [4096, -1] in Gemma 2."},
    {.section = "attn", .key = "window_kind", .member = MEMBER(model.attn.window_kind), .fallback = "sliding",
     .when = kWindows,
     .doc = "sliding: a window ends at its query. chunked: positions are split into chunks of this length, and a query "
            "sees its own chunk (Llama 4)."},
    {.section = "attn", .key = "last_layer_full", .member = MEMBER(model.attn.last_layer_full), .fallback = "false",
     .when = kWindows, .doc = "Full attention in the last layer regardless of the cycle."},
    {.section = "attn", .key = "sinks", .member = MEMBER(model.attn.sinks), .fallback = "false",
     .doc = "A learned score for each query head takes part in the softmax without a value (gpt-oss)."},
    {.section = "attn", .key = "temperature_beta", .member = MEMBER(model.attn.temperature_beta), .fallback = "0",
     .low = 0, .high = 1e6,
     .doc = "Queries at position t are multiplied by 1 + beta ln(1 + floor((t + temperature_offset) / "
            "temperature_positions)) (Ministral 3, Llama 4)."},
    {.section = "attn", .key = "temperature_positions", .member = MEMBER(model.attn.temperature_positions),
     .fallback = "0", .low = 0, .high = 16 * kMega, .unit = "tokens",
     .doc = "Positions per temperature step; 0 is off. Rotary positions over whole heads only."},
    {.section = "attn", .key = "temperature_offset", .member = MEMBER(model.attn.temperature_offset), .fallback = "0",
     .low = 0, .high = 16 * kMega, .when = kTemperature, .unit = "tokens",
     .doc = "Added to a position before it is divided by temperature_positions (Llama 4: 1)."},
    {.section = "attn", .key = "temperature_layers", .member = MEMBER(model.attn.temperature_layers), .fallback = "all",
     .when = kTemperature,
     .doc = "Layers with the temperature: all, those that rotate, or those that do not (Llama 4)."},

    // ---- dropout
    {.section = "dropout", .key = "embed", .member = MEMBER(model.dropout.embed), .fallback = "0", .low = 0, .high = 1,
     .high_open = true, .unit = "probability", .doc = "On the sum of token and position embedding."},
    {.section = "dropout", .key = "attn", .member = MEMBER(model.dropout.attn), .fallback = "0", .low = 0, .high = 1,
     .high_open = true, .unit = "probability", .doc = "On attention probabilities."},
    {.section = "dropout", .key = "resid", .member = MEMBER(model.dropout.resid), .fallback = "0", .low = 0, .high = 1,
     .high_open = true, .unit = "probability", .doc = "On the output of each branch before it is added."},

    // ---- embed, head, loss
    {.section = "embed", .key = "scale", .member = MEMBER(model.embed_scale), .type = kNumberOrWord, .fallback = "1",
     .low = 0, .high = 1e6, .low_open = true, .words = "sqrt(d_model)",
     .doc = "Factor on the token embedding, before learned positions are added (Gemma)."},
    {.section = "head", .key = "tie", .member = MEMBER(model.tied), .fallback = "false",
     .doc = "The head reads the embedding table."},
    {.section = "head", .key = "logit_scale", .member = MEMBER(model.logit_scale), .type = kNumberOrWord,
     .fallback = "1", .low = 0, .high = 1e6, .low_open = true, .words = "d_model^-0.5",
     .doc = "Factor on the logits (Cohere)."},
    {.section = "head", .key = "softcap", .member = MEMBER(model.softcap), .fallback = "none", .low = 0, .high = 1e9,
     .low_open = true, .words = "none",
     .doc = "cap * tanh(logit / cap) on the logits, after head.logit_scale (Gemma 2: 30)."},
    {.section = "head", .key = "norm_rows", .member = MEMBER(model.norm_rows), .fallback = "false",
     .doc = "Rows of the head's weight are normalized to length one (Baichuan 2)."},
    {.section = "head", .key = "masked_ids", .member = MEMBER(model.masked_ids), .need = kOptional, .low = 0,
     .high = 2147483647.0, .example = "[5, 6]", .unit = "ids",
     .doc = "Ids that the model never predicts (logits of -inf), in ascending order (Chameleon's image tokens)."},
    {.section = "loss", .key = "z_coef", .member = MEMBER(model.loss.z_coef), .fallback = "0", .low = 0, .high = 1,
     .doc = "Adds z_coef * mean(log(Z)^2) to the loss; PaLM used 1e-4. 0 is off."},
    {.section = "loss", .key = "z_kind", .member = MEMBER(model.loss.z_kind), .fallback = "lse",
     .doc = "What the z-loss squares. lse: log Z. max_logit: the largest logit (Baichuan 2)."},

    // ---- init
    {.section = "init", .key = "scheme", .member = MEMBER(model.init.scheme), .fallback = "gpt2",
     .doc = "Standard deviation of matrices. normal: std. gpt2: std, residual outputs scaled by depth. small_wang: "
            "sqrt(2/(5 d_model)), residual outputs 2/(n_layers sqrt(d_model)) (GPT-NeoX). fan_in: 1/sqrt(inputs) "
            "(PaLM). mitchell: 1/sqrt(inputs), residual outputs of layer l over sqrt(2(l+1)), l from 0 (OLMo 1, "
            "open_lm). t5: fan_in, queries over sqrt(head_dim). xavier: sqrt(2/(inputs + outputs)). kaiming: "
            "sqrt(2/inputs)."},
    {.section = "init", .key = "std", .member = MEMBER(model.init.std), .need = kDerived,
     .rule = "small_wang: sqrt(2/(5 d_model)); mitchell: 1/sqrt(d_model); fan_in, t5: 1; else 0.02", .low = 0,
     .high = 100, .low_open = true, .example = "0.02",
     .doc = "Standard deviation: of all matrices for normal and gpt2, of embeddings and positions for every scheme."},
    {.section = "init", .key = "trunc_sigma", .member = MEMBER(model.init.trunc_sigma), .need = kDerived,
     .rule = "mitchell: 3; else \"none\"", .low = 0.5, .high = 100, .words = "none", .example = "3.0",
     .doc = "Values beyond this many standard deviations are drawn again (OLMo 2: 3). The standard deviations are "
            "those before this truncation."},
    {.section = "init", .key = "residual_scale", .member = MEMBER(model.init.residual_scale), .type = kNumberOrWord,
     .need = kDerived, .rule = "gpt2: 1/sqrt(2*n_layers); else 1", .low = 0, .high = 100, .low_open = true,
     .words = "1/sqrt(2*n_layers)", .example = "1.0",
     .doc = "Factor on the standard deviation that the scheme gives to the attention output and FFN down projections."},
};
// clang-format on

}  // namespace

std::span<const KeySpec> model_keys() { return kModelKeys; }

}  // namespace ashlar::config
