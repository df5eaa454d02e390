#include "launch/config/schema.h"

namespace ashlar::config {
namespace {

constexpr double kMega = 1 << 20;
constexpr double kBig = 1e12;  // of counts that only the patience of the user limits
constexpr auto kInt = KeyType::kInt;
constexpr auto kNumber = KeyType::kNumber;
constexpr auto kBool = KeyType::kBool;
constexpr auto kString = KeyType::kString;
constexpr auto kWord = KeyType::kWord;
constexpr auto kNumberOrWord = KeyType::kNumberOrWord;
constexpr auto kDerived = Need::kDerived;
constexpr auto kOptional = Need::kOptional;
constexpr auto kOnly = Supported::kDefaultOnly;
constexpr auto kNo = Supported::kNo;

// What makes a key applicable: the text, the test of it, the keys it reads.
constexpr Condition kFromWeights = {"run.init_from is given",
                                    [](const RunConfig& c) { return c.run.init_from.has_value(); }, "run.init_from"};
constexpr Condition kParallel = {
    "block.topology = \"parallel\"",
    [](const RunConfig& c) { return c.model.block.topology == model::Topology::kParallel; }, "block.topology"};
constexpr Condition kLearned = {"pos.type = \"learned\"",
                                [](const RunConfig& c) { return c.model.pos.type == model::PosType::kLearned; },
                                "pos.type"};
constexpr Condition kRope = {"pos.type = \"rope\"",
                             [](const RunConfig& c) { return c.model.pos.type == model::PosType::kRope; }, "pos.type"};
constexpr Condition kQkNorm = {"attn.qk_norm is not none",
                               [](const RunConfig& c) { return c.model.qk_norm.kind != model::QkNorm::kNone; },
                               "attn.qk_norm"};
constexpr Condition kAlibi = {
    "pos.type = \"alibi\"", [](const RunConfig& c) { return c.model.pos.type == model::PosType::kAlibi; }, "pos.type"};
constexpr Condition kInterleaved = {
    "mesh.schedule = \"interleaved\"",
    [](const RunConfig& c) { return c.mesh.schedule == pipeline::ScheduleKind::kInterleaved; }, "mesh.schedule"};
constexpr Condition kVaries = {"schedule.kind is not constant",
                               [](const RunConfig& c) { return c.schedule.kind != LrKind::kConstant; },
                               "schedule.kind"};
constexpr Condition kDecays = {
    "schedule.kind is linear, cosine or wsd",
    [](const RunConfig& c) { return c.schedule.kind != LrKind::kConstant && c.schedule.kind != LrKind::kInvSqrt; },
    "schedule.kind"};
constexpr Condition kHasEps = {
    "optimizer.kind = \"adamw\"",
    [](const RunConfig& c) { return optim::rule_of(c.optimizer.rule.kind).defaults.eps > 0; }, "optimizer.kind"};
// false may always stand in the last two; true asks for a gain, for the mask and for positions.
constexpr Condition kHasGain = {"norm.affine is scale or scale_bias",
                                [](const RunConfig& c) {
                                  return !c.model.norm.variant.unit_offset ||
                                         c.model.norm.affine != model::NormAffine::kNone;
                                },
                                "norm.affine"};
constexpr Condition kRestarts = {"data.document_mask = true and pos.type is learned or rope",
                                 [](const RunConfig& c) {
                                   return !c.data.restart_positions ||
                                          (c.data.document_mask && c.model.pos.type != model::PosType::kNone);
                                 },
                                 "data.document_mask|pos.type"};

/// The member of RunConfig that a key stands for.
#define MEMBER(path)                               \
  member < [](auto& c) -> auto& { return c.path; } \
  > ()

constexpr SectionDoc kSections[] = {
    {"run", "where and how the program runs"},
    {"model", "sizes of the transformer", Scope::kWeights},
    {"vocab", "the vocabulary", Scope::kWeights},
    {"norm", "normalisation", Scope::kWeights},
    {"block", "how attention and FFN are joined", Scope::kWeights},
    {"bias", "which linears have a bias", Scope::kWeights},
    {"ffn", "the feed-forward layer", Scope::kWeights},
    {"pos", "how positions enter", Scope::kWeights},
    {"rope", "rotary positions", Scope::kWeights},
    {"attn", "attention", Scope::kWeights},
    {"dropout", "dropout", Scope::kModel},
    {"embed", "the embedding", Scope::kWeights},
    {"head", "the output layer", Scope::kWeights},
    {"loss", "the loss beside cross-entropy", Scope::kModel},
    {"init", "initial weights", Scope::kModel},
    {"mesh", "how the ranks divide the work"},
    {"train", "steps, batches, evaluation"},
    {"optimizer", "the update of the weights"},
    {"schedule", "the learning rate over the steps"},
    {"data", "what is read"},
    {"checkpoint", "when the run is saved"},
    {"log", "what is printed"},
};

// clang-format off
constexpr KeySpec kSchema[] = {
    // ---- run
    {.section = "run", .key = "dir", .member = MEMBER(run.dir),
     .type = kString, .need = kDerived,
     .rule = "runs/ and the name of the config file", .example = "\"runs/first\"",
     .doc = "Directory that the run owns: config.toml, metrics.jsonl, checkpoints. A run found there is continued."},
    {.section = "run", .key = "seed", .member = MEMBER(run.seed),
     .type = kInt, .fallback = "1", .low = 0, .high = 4294967295.0, .fixed = true,
     .doc = "Seed of initial weights, dropout and data order; each random number is a pure function of it."},
    {.section = "run", .key = "init_from", .member = MEMBER(run.init_from),
     .type = kString, .need = kOptional,
     .example = "\"runs/first/checkpoints/step-1000\"", .fixed = true,
     .doc = "Checkpoint, run directory or import whose weights the run starts from, with a fresh optimizer. Model keys "
            "that are not given are taken from it; one that differs is an error. Absent: random weights."},
    {.section = "run", .key = "init_change", .member = MEMBER(run.init_change),
     .type = KeyType::kKeyList, .need = kOptional,
     .when = kFromWeights, .example = "[\"rope.base\"]",
     .doc = "Model keys that may differ from those of run.init_from. Shapes of weights must still agree."},
    {.section = "run", .key = "device", .member = MEMBER(run.device),
     .type = kWord, .fallback = "cpu",
     .doc = "What computes: the processor, an NVIDIA GPU (each rank of a machine takes one of those it sees, in order), "
            "or the GPU kernels emulated on the processor (to test them: hundreds of times slower)."},
    {.section = "run", .key = "dtype", .member = MEMBER(run.dtype),
     .type = kWord, .fallback = "bf16", .words = "bf16|fp32|fp64", .fixed = true,
     .doc = "Storage of weights and activations. Sums, moments and main gradients are fp32 (fp64 in fp64 runs)."},
    {.section = "run", .key = "threads", .member = MEMBER(run.threads),
     .type = kInt, .need = kDerived,
     .rule = "cores of the machine / ranks on it", .low = 1, .high = 4096, .example = "2",
     .unit = "threads of a rank", .doc = "Threads a rank computes with. The same number gives the same bits."},
    {.section = "run", .key = "deterministic", .member = MEMBER(run.deterministic),
     .type = kBool, .fallback = "true", .supported = kOnly, .fixed = true,
     .doc = "Same inputs, same bits. false would allow kernels that are faster without this promise."},

    {.section = "run", .key = "hang_after", .member = MEMBER(run.hang_after),
     .type = kNumber, .fallback = "60", .low = 0, .high = kMega,
     .unit = "seconds",
     .doc = "When no rank has got anything done for so long beyond the longest step so far, each rank's step, action and "
            "last operation and who may be the reason are reported. At least 60 s before the first step. 0 = never."},
    {.section = "run", .key = "stall_after", .member = MEMBER(run.stall_after),
     .type = kNumber, .fallback = "600", .low = 0, .high = kMega,
     .unit = "seconds",
     .doc = "The same while a rank waits for a file system, if this is longer: one that stalls is told after 10 s and is "
            "no hang, since it mostly ends. 0 = as run.hang_after."},
    {.section = "run", .key = "hang_action", .member = MEMBER(run.hang_action),
     .type = kWord, .fallback = "stop",
     .doc = "After that report: stop ends the job with exit code 5, report keeps waiting."},

    // ---- model
    {.section = "model", .key = "d_model", .member = MEMBER(model.d_model),
     .type = kInt, .need = Need::kModel, .low = 1, .high = kMega,
     .example = "512", .unit = "columns", .fixed = true, .doc = "Width of the residual stream."},
    {.section = "model", .key = "n_layers", .member = MEMBER(model.n_layers),
     .type = kInt, .need = Need::kModel, .low = 1, .high = 10000,
     .example = "8", .unit = "blocks", .fixed = true, .doc = "Number of transformer blocks."},
    {.section = "model", .key = "n_heads", .member = MEMBER(model.n_heads),
     .type = kInt, .need = Need::kModel, .low = 1, .high = 16384,
     .example = "8", .unit = "heads", .fixed = true,
     .doc = "Query heads of a layer. n_heads * head_dim need not equal d_model."},
    {.section = "model", .key = "n_kv_heads", .member = MEMBER(model.n_kv_heads),
     .type = kInt, .need = kDerived, .rule = "model.n_heads", .low = 1,
     .high = 16384, .example = "2", .unit = "heads", .fixed = true,
     .doc = "Key and value heads; divides n_heads. Query head h reads KV head h * n_kv_heads / n_heads. 1 is "
     "multi-query."},
    {.section = "model", .key = "head_dim", .member = MEMBER(model.head_dim),
     .type = kInt, .need = kDerived, .rule = "d_model / n_heads", .low = 1,
     .high = 512, .example = "64", .unit = "columns", .fixed = true,
     .doc = "Width of a head. Multiples of 8 are the fastest on a GPU, others are padded inside its kernels."},
    {.section = "model", .key = "d_ff", .member = MEMBER(model.d_ff),
     .type = kInt, .need = kDerived,
     .rule = "gated: 8/3 d_model rounded up to ffn.multiple_of; else 4 d_model", .low = 1, .high = 16 * kMega,
     .example = "2048", .unit = "columns", .fixed = true, .doc = "Width of the feed-forward layer."},
    {.section = "model", .key = "embed_dim", .type = kInt, .need = kDerived, .rule = "model.d_model", .low = 1,
     .high = kMega, .supported = kOnly, .example = "512", .unit = "columns", .fixed = true,
     .doc = "Width of the embedding table when it differs from d_model (projections in and out)."},
    {.section = "model", .key = "parametrization", .type = kWord, .fallback = "sp", .words = "sp", .unsupported = "mup",
     .fixed = true, .doc = "Standard parametrization, or maximal update (muP)."},
    {.section = "model", .key = "mup_base_width", .type = kInt, .need = kOptional, .low = 1, .high = kMega,
     .supported = kNo, .example = "256", .unit = "columns", .fixed = true,
     .doc = "Width at which the learning rate was tuned, for muP."},
    {.section = "model", .key = "mup_output_mult", .type = kNumber, .need = kOptional, .low = 0, .high = 1e6,
     .low_open = true, .supported = kNo, .example = "1.0", .fixed = true, .doc = "Factor on the logits, for muP."},

    // ---- vocab
    {.section = "vocab", .key = "size", .member = MEMBER(model.vocab_size),
     .type = kInt, .need = kDerived, .rule = "the vocabulary of the dataset",
     .low = 1, .high = 64 * kMega, .example = "256", .unit = "ids", .fixed = true, .doc = "Number of token ids."},
    {.section = "vocab", .key = "pad_to", .member = MEMBER(model.vocab_pad_to),
     .type = kInt, .fallback = "1", .low = 1, .high = 65536, .unit = "ids",
     .doc = "The tables have rows up to the next multiple of this. Padded ids are masked in the loss, never saved."},

    // ---- norm
    {.section = "norm", .key = "type", .member = MEMBER(model.norm.variant.type),
     .type = kWord, .fallback = "rmsnorm",
     .fixed = true,
     .doc = "rmsnorm: x / sqrt(mean(x^2) + eps) * g. layernorm: (x - mean) / sqrt(var + eps) * g + b."},
    {.section = "norm", .key = "affine", .member = MEMBER(model.norm.affine),
     .type = kWord, .fallback = "scale",
     .fixed = true, .doc = "Learned gain, gain and bias, or neither."},
    {.section = "norm", .key = "unit_offset", .member = MEMBER(model.norm.variant.unit_offset),
     .type = kBool, .fallback = "false", .when = kHasGain, .fixed = true,
     .doc = "Multiply by 1 + g with g starting at 0 (Gemma, Nemotron)."},
    {.section = "norm", .key = "eps", .member = MEMBER(model.norm.variant.eps),
     .type = kNumber, .fallback = "1e-5", .low = 0, .high = 1, .low_open = true,
     .fixed = true, .doc = "Added to the variance or mean square."},
    {.section = "norm", .key = "placement", .member = MEMBER(model.norm.placement),
     .type = kWord, .fallback = "pre", .fixed = true,
     .doc = "Where the norm of a branch stands: pre: before it. post: after the addition (GPT-1). sandwich: before it and "
            "on its output (Gemma 2). output: on its output alone (OLMo 2). A parallel block has pre only."},
    {.section = "norm", .key = "final", .member = MEMBER(model.norm.final),
     .type = kBool, .need = kDerived, .rule = "true; false with norm.placement = \"post\"", .example = "true",
     .fixed = true, .doc = "A norm between the last block and the head."},
    {.section = "norm", .key = "embed", .member = MEMBER(model.norm.embed),
     .type = kBool, .fallback = "false", .fixed = true,
     .doc = "A norm right after the embedding, learned positions included (BLOOM)."},

    // ---- block
    {.section = "block", .key = "topology", .member = MEMBER(model.block.topology),
     .type = kWord, .fallback = "serial",
     .fixed = true,
     .doc = "serial: x += attn(n1(x)); x += ffn(n2(x)). parallel: x += attn(n1(x)) + ffn(n(x)) of the same x."},
    {.section = "block", .key = "parallel_norms", .member = MEMBER(model.block.parallel_norms),
     .type = kInt, .fallback = "1", .low = 1, .high = 2,
     .when = kParallel, .unit = "norms", .fixed = true,
     .doc = "1: attention and FFN share a norm (GPT-J, Falcon 7B). 2: one each (GPT-NeoX)."},
    {.section = "block", .key = "residual_multiplier", .member = MEMBER(model.block.residual_multiplier),
     .type = kNumber, .fallback = "1", .low = 0, .high = 1e6, .low_open = true, .fixed = true,
     .doc = "Factor on each branch output, after its norm and dropout, before it joins the residual stream (Granite)."},

    // ---- bias
    {.section = "bias", .key = "qkv", .member = MEMBER(model.bias.qkv),
     .type = kBool, .fallback = "false", .fixed = true,
     .doc = "Bias on the query, key and value projections."},
    {.section = "bias", .key = "attn_out", .member = MEMBER(model.bias.attn_out),
     .type = kBool, .fallback = "false", .fixed = true,
     .doc = "Bias on the attention output projection."},
    {.section = "bias", .key = "ffn", .member = MEMBER(model.bias.ffn),
     .type = kBool, .fallback = "false", .fixed = true,
     .doc = "Bias on every linear of the FFN."},
    {.section = "bias", .key = "lm_head", .member = MEMBER(model.bias.lm_head),
     .type = kBool, .fallback = "false", .fixed = true,
     .doc = "Bias on the logits."},

    // ---- ffn
    {.section = "ffn", .key = "act", .member = MEMBER(model.ffn.act),
     .type = kWord, .fallback = "silu",
     .unsupported = "relu2|quick_gelu", .fixed = true,
     .doc = "Activation. gelu_erf is exact GELU, gelu_tanh its tanh form; they are not interchangeable."},
    {.section = "ffn", .key = "gated", .member = MEMBER(model.ffn.gated),
     .type = kBool, .fallback = "true", .fixed = true,
     .doc = "Wdown(act(Wgate x) * Wup x) with three matrices, else Wdown act(Wup x) with two. silu gated is SwiGLU."},
    {.section = "ffn", .key = "multiple_of", .type = kInt, .fallback = "256", .low = 1, .high = 65536,
     .when = {"ffn.gated = true and model.d_ff is derived"}, .unit = "columns", .fixed = true,
     .doc = "A derived gated d_ff is rounded up to a multiple of this."},
    {.section = "ffn", .key = "clamp", .type = kNumberOrWord, .fallback = "none", .low = 0, .high = 1e9,
     .low_open = true, .words = "none", .supported = kOnly, .fixed = true,
     .doc = "Clamp on the gate and up values (phi-3-small)."},
    {.section = "ffn", .key = "linear_offset", .type = kNumber, .fallback = "0", .low = -1e6, .high = 1e6,
     .supported = kOnly, .fixed = true, .doc = "Added to the up values of a gated FFN (phi-3-small)."},

    // ---- pos
    {.section = "pos", .key = "type", .member = MEMBER(model.pos.type),
     .type = kWord, .fallback = "rope",
     .unsupported = "sinusoidal|t5_bias|xl_rel", .fixed = true,
     .doc = "none, a learned table added to the embedding, rotary positions, or ALiBi: a score falls by a slope of its "
            "head times the distance."},
    {.section = "pos", .key = "max_positions", .member = MEMBER(model.pos.max_positions),
     .type = kInt, .need = kDerived, .rule = "train.sequence_length",
     .low = 1, .high = 16 * kMega, .when = kLearned, .example = "1024", .unit = "tokens",
     .fixed = true, .doc = "Rows of the learned table: the longest sequence the model can read."},
    {.section = "pos", .key = "learned_offset", .type = kInt, .fallback = "0", .low = 0, .high = 65536,
     .supported = kOnly, .unit = "rows", .fixed = true, .doc = "Extra rows before position 0 (OPT: 2)."},
    {.section = "pos", .key = "t5_num_buckets", .type = kInt, .need = kOptional, .low = 1, .high = 65536,
     .supported = kNo, .example = "32", .unit = "buckets", .fixed = true, .doc = "Buckets of the T5 relative bias."},
    {.section = "pos", .key = "t5_max_distance", .type = kInt, .need = kOptional, .low = 1, .high = kMega,
     .supported = kNo, .example = "128", .unit = "tokens", .fixed = true,
     .doc = "Distance at which the last T5 bucket begins."},
    {.section = "pos", .key = "t5_shared_across_layers", .type = kBool, .need = kOptional, .supported = kNo,
     .example = "true", .fixed = true, .doc = "One T5 bias table for all layers."},
    {.section = "pos", .key = "alibi_slopes", .type = kWord, .fallback = "geometric", .words = "geometric",
     .when = kAlibi, .fixed = true, .doc = "Slopes of ALiBi: 2^(-8k/n), with its rule for n_heads that are no power of two."},
    {.section = "pos", .key = "alibi_scale", .member = MEMBER(model.pos.alibi_scale),
     .type = kNumberOrWord, .fallback = "1", .low = 0, .high = 1e6, .low_open = true, .words = "head_dim^-0.5",
     .when = kAlibi, .fixed = true, .doc = "Factor on the slopes; Falcon divides them by sqrt(head_dim)."},

    // ---- rope
    {.section = "rope", .key = "base", .member = MEMBER(model.rope.base),
     .type = kNumber, .fallback = "10000", .low = 0, .high = 1e12,
     .low_open = true, .when = kRope, .fixed = true, .doc = "Frequencies are base^(-2m/dims)."},
    {.section = "rope", .key = "fraction", .type = kNumber, .fallback = "1.0", .low = 0, .high = 1, .low_open = true,
     .when = {"pos.type = \"rope\" and rope.dims is not given"}, .fixed = true,
     .doc = "Share of head_dim that rotates; turned once into rope.dims."},
    {.section = "rope", .key = "dims", .member = MEMBER(model.rope.dims),
     .type = kInt, .need = kDerived,
     .rule = "integer part of head_dim * rope.fraction", .low = 2, .high = 512, .when = kRope,
     .example = "32", .unit = "columns", .fixed = true, .doc = "The first dims of a head rotate; an even number."},
    {.section = "rope", .key = "style", .member = MEMBER(model.rope.style),
     .type = kWord, .fallback = "half",
     .when = kRope, .fixed = true, .doc = "Pairs (m, m + dims/2) or (2m, 2m + 1)."},
    {.section = "rope", .key = "scaling", .type = kWord, .fallback = "none", .words = "none",
     .unsupported = "linear|llama3|yarn", .when = kRope, .fixed = true,
     .doc = "Scaling of the frequencies for long context."},
    {.section = "rope", .key = "factor", .type = kNumber, .need = kOptional, .low = 0, .high = 1e6, .low_open = true,
     .supported = kNo, .example = "8.0", .fixed = true, .doc = "Factor of linear, llama3 and yarn scaling."},
    {.section = "rope", .key = "low_freq_factor", .type = kNumber, .need = kOptional, .low = 0, .high = 1e6,
     .low_open = true, .supported = kNo, .example = "1.0", .fixed = true, .doc = "Of llama3 scaling."},
    {.section = "rope", .key = "high_freq_factor", .type = kNumber, .need = kOptional, .low = 0, .high = 1e6,
     .low_open = true, .supported = kNo, .example = "4.0", .fixed = true, .doc = "Of llama3 scaling."},
    {.section = "rope", .key = "original_positions", .type = kInt, .need = kOptional, .low = 1, .high = 16 * kMega,
     .supported = kNo, .example = "8192", .unit = "tokens", .fixed = true,
     .doc = "Context before scaling, of llama3 and yarn scaling."},
    {.section = "rope", .key = "beta_fast", .type = kNumber, .need = kOptional, .low = 0, .high = 1e6,
     .low_open = true, .supported = kNo, .example = "32.0", .fixed = true, .doc = "Of yarn scaling."},
    {.section = "rope", .key = "beta_slow", .type = kNumber, .need = kOptional, .low = 0, .high = 1e6,
     .low_open = true, .supported = kNo, .example = "1.0", .fixed = true, .doc = "Of yarn scaling."},
    {.section = "rope", .key = "attention_factor", .type = kNumber, .need = kOptional, .low = 0, .high = 1e6,
     .low_open = true, .supported = kNo, .example = "1.0", .fixed = true,
     .doc = "Factor on cos and sin, of yarn scaling."},
    {.section = "rope", .key = "local_base", .type = kNumberOrWord, .fallback = "none", .low = 0, .high = 1e12,
     .low_open = true, .words = "none", .supported = kOnly, .when = kRope, .fixed = true,
     .doc = "Another base for layers with a window (Gemma 3)."},
    {.section = "rope", .key = "global_enabled", .type = kBool, .fallback = "true", .supported = kOnly,
     .when = kRope, .fixed = true,
     .doc = "false: layers with full attention do not rotate (Command A)."},

    // ---- attn
    {.section = "attn", .key = "scale", .member = MEMBER(model.attn.scale),
     .type = kNumberOrWord, .fallback = "head_dim^-0.5", .low = 0, .high = 1e6,
     .low_open = true, .words = "head_dim^-0.5|(d_model/n_heads)^-0.5|1/head_dim", .fixed = true,
     .doc = "Factor on q.k before the softmax."},
    {.section = "attn", .key = "qk_norm", .member = MEMBER(model.qk_norm.kind),
     .type = kWord, .fallback = "none", .fixed = true,
     .doc = "Norm on queries and keys. head: of each head, one gain for all (Qwen 3). head_per: of each head, with its own "
            "gain (Command R+). full: over all heads at once (OLMo 2). l2: of each head, without a gain (Llama 4)."},
    {.section = "attn", .key = "qk_norm_type", .member = MEMBER(model.qk_norm.type),
     .type = kWord, .fallback = "rmsnorm", .when = kQkNorm, .fixed = true,
     .doc = "Kind of the norm on queries and keys."},
    {.section = "attn", .key = "qk_norm_bias", .member = MEMBER(model.qk_norm.bias),
     .type = kBool, .fallback = "false", .when = kQkNorm, .fixed = true,
     .doc = "A bias beside the gain of the norm on queries and keys (Chameleon)."},
    {.section = "attn", .key = "qk_norm_order", .member = MEMBER(model.qk_norm.order),
     .type = kWord, .fallback = "before_rope", .when = kQkNorm, .fixed = true,
     .doc = "Where the norm on queries and keys stands: before they are rotated, or after (Llama 4)."},
    {.section = "attn", .key = "qk_norm_eps", .member = MEMBER(model.qk_norm.eps),
     .type = kNumber, .need = kDerived, .rule = "norm.eps", .low = 0, .high = 1, .low_open = true, .when = kQkNorm,
     .example = "1e-6", .fixed = true, .doc = "Added to the variance or mean square of queries and keys."},
    {.section = "attn", .key = "softcap", .member = MEMBER(model.attn.softcap),
     .type = kNumberOrWord, .fallback = "none", .low = 0, .high = 1e9, .low_open = true, .words = "none", .fixed = true,
     .doc = "cap * tanh(score / cap) on attention scores (Gemma 2)."},
    {.section = "attn", .key = "clip_qkv", .member = MEMBER(model.attn.clip_qkv),
     .type = kNumberOrWord, .fallback = "none", .low = 0, .high = 1e9, .low_open = true, .words = "none", .fixed = true,
     .doc = "Queries, keys and values are held between -c and c, behind their biases and before they rotate (OLMo)."},
    {.section = "attn", .key = "window_cycle", .member = MEMBER(model.attn.window_cycle),
     .type = KeyType::kIntList, .fallback = "[-1]", .low = -1, .high = 16 * kMega, .unit = "tokens", .fixed = true,
     .doc = "Attention windows, repeated over the layers: a query sees so many keys, itself counted; -1 is full "
            "attention. [4096] in Mistral, [4096, -1] in Gemma 2."},
    {.section = "attn", .key = "window_kind", .member = MEMBER(model.attn.window_kind),
     .type = kWord, .fallback = "sliding", .fixed = true,
     .doc = "sliding: a window ends at its query. chunked: positions are cut into chunks of so many, and a query sees "
            "its own (Llama 4)."},
    {.section = "attn", .key = "last_layer_full", .member = MEMBER(model.attn.last_layer_full),
     .type = kBool, .fallback = "false", .fixed = true,
     .doc = "Full attention in the last layer whatever the cycle says."},
    {.section = "attn", .key = "sinks", .member = MEMBER(model.attn.sinks),
     .type = kBool, .fallback = "false", .fixed = true,
     .doc = "A learned score for each query head joins the softmax without a value (gpt-oss)."},
    {.section = "attn", .key = "temperature_beta", .member = MEMBER(model.attn.temperature_beta),
     .type = kNumber, .fallback = "0", .low = 0, .high = 1e6, .fixed = true,
     .doc = "Queries at position t are multiplied by 1 + beta ln(1 + floor(t / temperature_positions)) (Ministral 3)."},
    {.section = "attn", .key = "temperature_positions", .member = MEMBER(model.attn.temperature_positions),
     .type = kInt, .fallback = "0", .low = 0, .high = 16 * kMega, .unit = "tokens", .fixed = true,
     .doc = "Positions from one temperature to the next; 0 is none. Rotary positions over whole heads only."},

    // ---- dropout
    {.section = "dropout", .key = "embed", .member = MEMBER(model.dropout.embed),
     .type = kNumber, .fallback = "0", .low = 0, .high = 1, .high_open = true,
     .unit = "probability", .fixed = true, .doc = "On the embedding with its positions."},
    {.section = "dropout", .key = "attn", .member = MEMBER(model.dropout.attn),
     .type = kNumber, .fallback = "0", .low = 0, .high = 1, .high_open = true,
     .unit = "probability", .fixed = true, .doc = "On attention probabilities."},
    {.section = "dropout", .key = "resid", .member = MEMBER(model.dropout.resid),
     .type = kNumber, .fallback = "0", .low = 0, .high = 1, .high_open = true,
     .unit = "probability", .fixed = true, .doc = "On the output of each branch before it is added."},

    // ---- embed, head, loss
    {.section = "embed", .key = "scale", .member = MEMBER(model.embed_scale),
     .type = kNumberOrWord, .fallback = "1", .low = 0, .high = 1e6,
     .low_open = true, .words = "sqrt(d_model)", .fixed = true,
     .doc = "Factor on the token embedding, before learned positions are added (Gemma)."},
    {.section = "head", .key = "tie", .member = MEMBER(model.tied),
     .type = kBool, .fallback = "false", .fixed = true,
     .doc = "The head reads the embedding table."},
    {.section = "head", .key = "logit_scale", .member = MEMBER(model.logit_scale),
     .type = kNumberOrWord, .fallback = "1", .low = 0, .high = 1e6,
     .low_open = true, .words = "d_model^-0.5", .fixed = true,
     .doc = "Factor on the logits (Cohere)."},
    {.section = "head", .key = "softcap", .type = kNumberOrWord, .fallback = "none", .low = 0, .high = 1e9,
     .low_open = true, .words = "none", .supported = kOnly, .fixed = true,
     .doc = "cap * tanh(logit / cap) on the logits (Gemma 2)."},
    {.section = "head", .key = "norm_rows", .type = kBool, .fallback = "false", .supported = kOnly, .fixed = true,
     .doc = "L2-normalise the rows of the head (Baichuan 2)."},
    {.section = "loss", .key = "z_coef", .member = MEMBER(model.loss.z_coef),
     .type = kNumber, .fallback = "0", .low = 0, .high = 1, .fixed = true,
     .doc = "Adds z_coef * mean(log(Z)^2) to the loss; PaLM used 1e-4. 0 is off."},
    {.section = "loss", .key = "z_kind", .member = MEMBER(model.loss.z_kind),
     .type = kWord, .fallback = "lse", .unsupported = "max_logit",
     .fixed = true, .doc = "What the z-loss squares: log Z, or the largest logit (Baichuan 2)."},

    // ---- init
    {.section = "init", .key = "scheme", .member = MEMBER(model.init.scheme),
     .type = kWord, .fallback = "gpt2",
     .unsupported = "small_wang|fan_in|mitchell|t5", .fixed = true,
     .doc = "normal: N(0, std) everywhere. gpt2: the same, residual outputs scaled by depth. xavier, kaiming: by fan."},
    {.section = "init", .key = "std", .member = MEMBER(model.init.std),
     .type = kNumber, .fallback = "0.02", .low = 0, .high = 100, .low_open = true,
     .fixed = true,
     .doc = "Standard deviation: all matrices for normal and gpt2, embeddings and positions for every scheme."},
    {.section = "init", .key = "trunc_sigma", .type = kNumberOrWord, .fallback = "none", .low = 0, .high = 100,
     .low_open = true, .words = "none", .supported = kOnly, .fixed = true,
     .doc = "Cut the normal distribution at so many deviations."},
    {.section = "init", .key = "residual_scale", .member = MEMBER(model.init.residual_scale),
     .type = kNumberOrWord, .need = kDerived,
     .rule = "gpt2: 1/sqrt(2*n_layers); else 1", .low = 0, .high = 100, .low_open = true,
     .words = "1/sqrt(2*n_layers)", .example = "1.0", .fixed = true,
     .doc = "Factor on the deviation of the two linears that write to the residual stream."},

    // ---- mesh
    {.section = "mesh", .key = "tensor", .member = MEMBER(mesh.tensor),
     .type = kInt, .fallback = "1", .low = 1, .high = 65536, .unit = "ranks",
     .doc = "Ranks that share each layer."},
    {.section = "mesh", .key = "pipeline", .member = MEMBER(mesh.pipeline),
     .type = kInt, .fallback = "1", .low = 1, .high = 65536, .unit = "ranks",
     .doc = "Stages of layers."},
    {.section = "mesh", .key = "data", .member = MEMBER(mesh.data),
     .type = kInt, .need = kDerived,
     .rule = "ranks / (mesh.tensor * mesh.pipeline)", .low = 1, .high = 65536, .example = "1", .unit = "ranks",
     .doc = "Replicas that share the batch."},
    {.section = "mesh", .key = "sequence_parallel", .member = MEMBER(mesh.sequence_parallel),
     .type = kBool, .fallback = "false",
     .doc = "Tensor ranks also share the rows between the layers. With one tensor rank it holds all rows."},
    {.section = "mesh", .key = "schedule", .member = MEMBER(mesh.schedule),
     .type = kWord, .fallback = "1f1b",
     .words = "gpipe|1f1b|interleaved|zb-h1",
     .doc = "Order of micro-batches in the pipeline. With one stage all orders give the same numbers."},
    {.section = "mesh", .key = "virtual_stages", .member = MEMBER(mesh.virtual_stages),
     .type = kInt, .fallback = "1", .low = 1, .high = 1024,
     .when = kInterleaved, .unit = "chunks of a rank",
     .doc = "Chunks of layers each pipeline rank holds."},

    // ---- train
    {.section = "train", .key = "steps", .member = MEMBER(train.steps),
     .type = kInt, .need = Need::kTrain, .low = 1, .high = kBig,
     .example = "1000", .unit = "steps", .doc = "Optimizer steps of the whole run."},
    {.section = "train", .key = "sequence_length", .member = MEMBER(train.sequence_length),
     .type = kInt, .need = Need::kTrain, .low = 1, .high = 16 * kMega,
     .example = "256", .unit = "tokens", .fixed = true, .doc = "Tokens of a training sequence."},
    {.section = "train", .key = "global_batch", .member = MEMBER(train.global_batch),
     .type = kInt, .need = Need::kTrain, .low = 1, .high = 16 * kMega,
     .example = "16", .unit = "sequences", .fixed = true,
     .doc = "Sequences of a step, over all ranks and micro-batches."},
    {.section = "train", .key = "micro_batch", .member = MEMBER(train.micro_batch),
     .type = kInt, .need = kDerived,
     .rule = "train.global_batch / mesh.data", .low = 1, .high = 16 * kMega, .example = "4", .unit = "sequences",
     .doc = "Sequences a rank computes at once; the rest of its share is accumulated."},
    {.section = "train", .key = "batch_ramp", .type = kInt, .need = kOptional, .low = 1, .high = 16 * kMega,
     .supported = kNo, .example = "4", .unit = "sequences", .fixed = true,
     .doc = "Batch at the first step, growing to global_batch."},
    {.section = "train", .key = "recompute", .member = MEMBER(train.recompute),
     .type = kWord, .fallback = "none",
     .doc = "What backward computes again instead of keeping: nothing, norms and activations, or whole blocks."},
    {.section = "train", .key = "attention", .member = MEMBER(train.attention),
     .type = kWord, .fallback = "auto",
     .doc = "Whose kernels compute attention. cudnn: cuDNN's, on a GPU, in bf16 without document mask and dropout; an "
            "error where it cannot. own: Ashlar's. auto: cuDNN's where it can and its results agree with Ashlar's, "
            "measured before the first step and kept with the run. Elsewhere than on a GPU auto is own."},
    {.section = "train", .key = "eval_every", .member = MEMBER(train.eval_every),
     .type = kInt, .fallback = "250", .low = 0, .high = kBig,
     .unit = "steps",
     .doc = "Steps from one evaluation to the next. 0: only after the last step, which is always evaluated."},
    {.section = "train", .key = "eval_batches", .member = MEMBER(train.eval_batches),
     .type = kInt, .fallback = "50", .low = 0, .high = kBig,
     .unit = "micro-batches", .doc = "Validation micro-batches of one evaluation, of each dataset. 0: the whole validation part."},

    // ---- optimizer
    {.section = "optimizer", .key = "kind", .member = MEMBER(optimizer.rule.kind),
     .type = kWord, .fallback = "adamw",
     .unsupported = "adam|adafactor", .fixed = true,
     .doc = "The update rule, its decay decoupled from the gradient. lion moves each weight by lr whatever the gradient's "
            "size, and wants a third to a tenth of adamw's lr."},
    {.section = "optimizer", .key = "lr", .member = MEMBER(optimizer.lr),
     .type = kNumber, .need = Need::kTrain, .low = 0, .high = 100,
     .low_open = true, .example = "3e-4", .doc = "Peak learning rate."},
    {.section = "optimizer", .key = "beta1", .member = MEMBER(optimizer.rule.beta1),
     .type = kNumber, .need = kDerived, .rule = kRuleOfOptimizer, .low = 0, .high = 1,
     .high_open = true, .example = "0.9", .fixed = true, .doc = "adamw: decay of the mean of gradients; lion: the mean's share in the direction of a step."},
    {.section = "optimizer", .key = "beta2", .member = MEMBER(optimizer.rule.beta2),
     .type = kNumberOrWord, .need = kDerived, .rule = kRuleOfOptimizer, .low = 0, .high = 1,
     .high_open = true, .unsupported = "1-k^-0.8", .example = "0.95", .fixed = true, .doc = "Decay of the mean of squared gradients; lion: of the mean of gradients."},
    {.section = "optimizer", .key = "eps", .member = MEMBER(optimizer.rule.eps),
     .type = kNumber, .need = kDerived, .rule = kRuleOfOptimizer, .low = 0, .high = 1,
     .low_open = true, .when = kHasEps, .example = "1e-8", .fixed = true, .doc = "Added to the root of the bias-corrected second moment."},
    {.section = "optimizer", .key = "weight_decay", .member = MEMBER(optimizer.rule.weight_decay),
     .type = kNumber, .need = kDerived, .rule = kRuleOfOptimizer, .low = 0, .high = 10,
     .example = "0.1", .doc = "Decoupled decay of matrices: a step takes lr * weight_decay * w off each weight."},
    {.section = "optimizer", .key = "dynamic_decay", .type = kBool, .fallback = "false", .supported = kOnly,
     .fixed = true, .doc = "Decay of lr^2 (PaLM)."},
    {.section = "optimizer", .key = "decay_embeddings", .member = MEMBER(optimizer.rule.decay_embeddings),
     .type = kBool, .fallback = "true",
     .doc = "Decay token and position tables too."},
    {.section = "optimizer", .key = "decay_norms", .type = kBool, .fallback = "false", .supported = kOnly,
     .doc = "Decay norm gains and biases."},
    {.section = "optimizer", .key = "decay_biases", .type = kBool, .fallback = "false", .supported = kOnly,
     .doc = "Decay biases of linears."},
    {.section = "optimizer", .key = "clip", .member = MEMBER(optimizer.clip),
     .type = kNumber, .fallback = "1.0", .low = 0, .high = 1e9,
     .doc = "Gradients are scaled down to this global norm. 0 is off."},
    {.section = "optimizer", .key = "clip_warmup_steps", .type = kInt, .fallback = "0", .low = 0, .high = kBig,
     .supported = kOnly, .unit = "steps", .doc = "Steps with a wider clip at the start (OLMo)."},

    // ---- schedule
    {.section = "schedule", .key = "kind", .member = MEMBER(schedule.kind),
     .type = kWord, .fallback = "cosine",
     .unsupported = "multistep",
     .doc = "Shape after the warm-up. wsd stays at the peak and falls linearly over the last decay_steps."},
    {.section = "schedule", .key = "warmup_steps", .member = MEMBER(schedule.warmup_steps),
     .type = kInt, .need = kDerived,
     .rule = "steps / 20, at most 2000", .low = 0, .high = kBig, .example = "100", .unit = "steps",
     .doc = "Step s below this has rate lr * (s + 1) / warmup_steps."},
    {.section = "schedule", .key = "warmup_tokens", .type = kInt, .need = kOptional, .low = 1, .high = 1e15,
     .supported = kNo, .example = "1000000", .unit = "tokens", .doc = "The warm-up counted in tokens."},
    {.section = "schedule", .key = "min_ratio", .member = MEMBER(schedule.min_ratio),
     .type = kNumber, .fallback = "0.1", .low = 0, .high = 1,
     .when = kVaries, .doc = "Lowest rate, as a share of lr."},
    {.section = "schedule", .key = "decay_steps", .member = MEMBER(schedule.decay_steps),
     .type = kInt, .need = kDerived,
     .rule = "linear, cosine: steps - warmup_steps; wsd: steps / 5", .low = 1, .high = kBig,
     .when = kDecays, .example = "1000", .unit = "steps",
     .doc = "Steps from the peak to the lowest rate: right after the warm-up, for wsd the last of the run."},

    // ---- data
    {.section = "data", .key = "path", .member = MEMBER(data.sources),
     .type = KeyType::kSources, .need = Need::kTrain, .example = "\"data/text\"",
     .doc = "Dataset directory made by `ashlar data build`, or a mixture: a list of {path = \"...\", weight = 1.0}. A run "
            "that is continued needs the same tokens, tokenizers and weights, wherever they lie."},
    {.section = "data", .key = "allow_change", .member = MEMBER(data.allow_change),
     .type = kBool, .fallback = "false",
     .doc = "Continue with other data, or from weights of another tokenizer, than a checkpoint says: it is reported, not refused."},
    {.section = "data", .key = "document_mask", .member = MEMBER(data.document_mask),
     .type = kBool, .fallback = "false", .fixed = true, .doc =
     "No attention across documents packed in one sequence; the target after an end of document is not counted."},
    {.section = "data", .key = "restart_positions", .member = MEMBER(data.restart_positions),
     .type = kBool, .fallback = "false",
     .when = kRestarts, .fixed = true,
     .doc = "Positions count from the start of the document instead of the sequence."},

    // ---- checkpoint, log
    {.section = "checkpoint", .key = "every", .member = MEMBER(checkpoint.every),
     .type = kInt, .fallback = "500", .low = 0, .high = kBig,
     .unit = "steps",
     .doc = "Steps from one checkpoint to the next. 0: only after the last step, which is always saved."},
    {.section = "checkpoint", .key = "keep", .member = MEMBER(checkpoint.keep),
     .type = kInt, .fallback = "3", .low = 1, .high = 1e6,
     .unit = "checkpoints", .doc = "The newest so many are kept."},
    {.section = "log", .key = "every", .member = MEMBER(log.every),
     .type = kInt, .fallback = "1", .low = 1, .high = kBig, .unit = "steps",
     .doc = "Steps from one line on the terminal to the next. metrics.jsonl has every step."},
    {.section = "log", .key = "stats_every", .member = MEMBER(log.stats_every),
     .type = kInt, .fallback = "0", .low = 0, .high = kBig, .unit = "steps",
     .doc = "Steps from one row of statistics in metrics.jsonl to the next: RMS of every weight and its gradient "
            "before clipping, and of the residual stream after the embedding and each block. 0 is off."},
};
// clang-format on
#undef MEMBER

}  // namespace

std::span<const KeySpec> schema() { return kSchema; }
std::span<const SectionDoc> sections() { return kSections; }

}  // namespace ashlar::config
