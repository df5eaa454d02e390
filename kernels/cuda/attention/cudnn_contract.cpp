#include "kernels/cuda/attention/cudnn_contract.h"

#include <array>
#include <initializer_list>

#include "core/base/dtype.h"
#include "core/base/strings.h"

namespace ashlar::cudnn {

namespace {

/// Of views whose rows and samples must begin at multiples of 16 bytes: cuDNN's kernels load 16 bytes at a time, and
/// wrong distances give wrong results instead of errors (cudnn-frontend, node/sdpa_support_surface.h).
template <typename View>
bool aligned(const View& view, int64_t batch_stride, int64_t samples) {
  const int64_t bytes = size_of(view.dtype);
  return reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && view.stride * bytes % 16 == 0 &&
         (samples < 2 || batch_stride * bytes % 16 == 0);
}

AttentionFacts facts_of_shape(const AttentionShape& s, DType storage) {
  return {.storage = storage,
          .B = s.B,
          .T_q = s.T_q,
          .T_kv = s.T_kv,
          .H = s.H,
          .G = s.G,
          .D = s.D,
          .cached = s.q_start != s.kv_start,
          .document_mask = static_cast<bool>(s.doc_start),
          .dropout = s.dropout.active(),
          .softcap = s.variant.softcap != 0,
          .window = s.variant.window >= 0,
          .chunks = s.variant.chunk > 0,
          .alibi = static_cast<bool>(s.alibi_slopes),
          .sinks = static_cast<bool>(s.sinks),
          .t5_bias = static_cast<bool>(s.t5_bias),
          .D_v = s.v_dim()};
}

// Bugs of windows, of fp8, of ragged batches and of masks that are tensors are not here: no call of ours has them.
constexpr std::array kKnownBad = {
    KnownBad{91000, 91001, 0, "its backward of bf16 is wrong",
             "cudnn-frontend 1.32, node/scaled_dot_product_flash_attention.h; also excluded by "
             "NVIDIA/TransformerEngine, common/fused_attn/fused_attn.cpp"},
    KnownBad{0, 91500, 128, "its backward leaves its arrays where the length is no multiple of 128",
             "github.com/NVIDIA/TransformerEngine/pull/2344, github.com/pytorch/pytorch/pull/171627"},
};

bool is_of(const KnownBad& bad, const Library& library) {
  return library.version >= bad.first && library.version <= bad.last;
}

std::string known_error(const KnownBad& bad, const Library& library) {
  return str_cat("expected a cuDNN without known errors, got ", version_text(library.version), ": ", bad.what, " (",
                 bad.source, ")");
}

constexpr int kOldestSm = 80, kNewestSm = 90;
constexpr int64_t kNewestVersion = 100000;  ///< too new

struct Unserved {
  bool present;
  const char* name;
};

}  // namespace

AttentionFacts facts_of(const AttentionForward& a) {
  AttentionFacts facts = facts_of_shape(a.shape, a.q.dtype);
  const AttentionShape& s = a.shape;
  facts.aligned = aligned(a.q, s.q_batch_stride, s.B) && aligned(a.k, s.kv_batch_stride, s.B) &&
                  aligned(a.v, s.v_stride(), s.B) && aligned(a.out, s.T_q * a.out.stride, s.B);
  return facts;
}

AttentionFacts facts_of(const AttentionBackward& a) {
  AttentionFacts facts = facts_of_shape(a.shape, a.q.dtype);
  const AttentionShape& s = a.shape;
  facts.accumulates = a.mode == GradMode::kAccumulate;
  facts.partial = !a.dq || !a.dk || !a.dv || static_cast<bool>(a.delta);
  facts.aligned = aligned(a.q, s.q_batch_stride, s.B) && aligned(a.k, s.kv_batch_stride, s.B) &&
                  aligned(a.v, s.v_stride(), s.B) && aligned(a.out, s.T_q * a.out.stride, s.B) &&
                  aligned(a.dout, s.T_q * a.dout.stride, s.B);
  if (!facts.partial) {
    facts.aligned = facts.aligned && aligned(a.dq, s.q_batch_stride, s.B) && aligned(a.dk, s.kv_batch_stride, s.B) &&
                    aligned(a.dv, s.v_stride(), s.B);
  }
  return facts;
}

std::string version_text(int64_t version) {
  return str_cat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

std::span<const KnownBad> known_bad_versions() { return kKnownBad; }

std::string refusal(const Library& library) {
  if (library.version < kOldestVersion || library.version >= kNewestVersion)
    return str_cat("expected cuDNN ", version_text(kOldestVersion), " or a later 9, got ",
                   version_text(library.version));
  for (const KnownBad& bad : kKnownBad) {
    if (bad.good_lengths == 0 && is_of(bad, library)) return known_error(bad, library);
  }
  if (library.sm < kOldestSm || library.sm > kNewestSm)
    return str_cat("expected a device of compute capability 8.0 to 9.0, got ", library.sm / 10, ".", library.sm % 10);
  return "";
}

std::string refusal(const AttentionFacts& facts) {
  return refusal(facts, {.version = kNewestVersion - 1, .sm = kNewestSm});
}

std::string refusal(const AttentionFacts& f, const Library& library) {
  // 1. the library and the device
  std::string unusable = refusal(library);
  if (!unusable.empty()) return unusable;
  for (const KnownBad& bad : kKnownBad) {
    if (bad.good_lengths > 0 && f.T_kv % bad.good_lengths != 0 && is_of(bad, library)) return known_error(bad, library);
  }
  // 2. what the contract has and cuDNN has not, or not to the bit
  if (f.storage != DType::kBFloat16) return str_cat("expected bf16, got ", name_of(f.storage));
  for (const Unserved& feature : std::initializer_list<Unserved>{{f.document_mask, "a document mask"},
                                                                 {f.dropout, "dropout"},
                                                                 {f.softcap, "a soft cap"},
                                                                 {f.window, "a window"},
                                                                 {f.chunks, "chunks"},
                                                                 {f.alibi, "ALiBi slopes"},
                                                                 {f.sinks, "sinks"},
                                                                 {f.t5_bias, "T5's bias"}}) {
    if (feature.present) return str_cat("expected plain causal attention, got ", feature.name);
  }
  if (f.cached || f.T_q != f.T_kv)
    return str_cat("expected as many queries as keys from the same position, got ", f.T_q, " queries and ", f.T_kv,
                   f.cached ? " keys, which begin elsewhere" : " keys");
  if (f.T_q < 2) return str_cat("expected at least 2 tokens a sample, got ", f.T_q);
  // 3. shapes
  const int64_t widest = library.sm == kNewestSm ? 256 : 128;
  if (f.D > widest || f.D % 8 != 0 || f.D <= 0)
    return str_cat("expected head_dim to be a multiple of 8 up to ", widest, " on compute capability ", library.sm / 10,
                   ".", library.sm % 10, ", got ", f.D);
  if (f.D_v != 0 && f.D_v != f.D)
    return str_cat("expected values as wide as keys, got head_dim ", f.D, " and values of ", f.D_v);
  if (!f.aligned) return "expected rows that begin at multiples of 16 bytes, got others";
  // 4. gradients
  if (f.accumulates) return "expected gradients that are written, got gradients that are added to";
  if (f.partial) return "expected dq, dk and dv to be wanted and delta not to be given, got a part of them";
  return "";
}

}  // namespace ashlar::cudnn
