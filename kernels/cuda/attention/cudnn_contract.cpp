#include "kernels/cuda/attention/cudnn_contract.h"

#include <array>
#include <initializer_list>

#include "core/base/dtype.h"
#include "core/base/strings.h"

namespace ashlar::cudnn {

namespace {

/// True if rows and samples begin at multiples of 16 bytes. This must be checked, since cuDNN's kernels load 16 bytes
/// at a time, and wrong strides give wrong results instead of errors (cudnn-frontend, node/sdpa_support_surface.h).
template <typename View>
bool aligned(const View& view, int64_t batch_stride, int64_t samples) {
  const int64_t bytes = size_of(view.dtype);
  return reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && view.stride * bytes % 16 == 0 &&
         (samples < 2 || batch_stride * bytes % 16 == 0);
}

// Bugs with windows, fp8, ragged batches and mask tensors are not listed: Ashlar never calls cuDNN with them.
constexpr std::array kKnownBad = {
    KnownBad{91000, 91001, 0, "its backward of bf16 is wrong",
             "cudnn-frontend 1.32, node/scaled_dot_product_flash_attention.h; also excluded by "
             "NVIDIA/TransformerEngine, common/fused_attn/fused_attn.cpp"},
    KnownBad{0, 91500, 128,
             "its backward accesses memory outside its arrays if the sequence length is no multiple of 128",
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
constexpr int64_t kNewestVersion = 100000;  ///< 10.0.0, the first version that is not used

struct Unserved {
  bool present;
  const char* name;
};

/// Returns the name of a mask or score option that cuDNN does not support or does not compute as our contract requires;
/// empty if there is none.
std::string unserved(const AttentionShape& s) {
  const Mask& m = s.mask;
  const ScoreChange& c = s.scores;
  for (const Unserved& feature : std::initializer_list<Unserved>{{!m.causal, "attention to later keys"},
                                                                 {m.doc_start.size() > 0, "a document mask"},
                                                                 {s.dropout.active(), "dropout"},
                                                                 {c.softcap != 0, "a soft cap"},
                                                                 {m.window >= 0, "a window"},
                                                                 {m.chunk > 0, "chunks"},
                                                                 {c.alibi_slopes.size() > 0, "ALiBi slopes"},
                                                                 {c.sinks.size() > 0, "sinks"},
                                                                 {c.t5_bias.size() > 0, "T5's bias"}}) {
    if (feature.present) return feature.name;
  }
  // An option that is not in this list is not supported either.
  return c == ScoreChange{.scale = c.scale} && m == Mask{.q_start = m.q_start, .kv_start = m.kv_start}
             ? ""
             : "another option";
}

/// True if q, k, v and out are aligned.
template <typename Args>
bool aligned_inputs(const Args& a) {
  const AttentionShape& s = a.shape;
  return aligned(a.q, s.q_batch_stride, s.B) && aligned(a.k, s.kv_batch_stride, s.B) &&
         aligned(a.v, s.v_stride(), s.B) && aligned(a.out, s.T_q * a.out.stride, s.B);
}

constexpr const char* kUnaligned = "expected rows that begin at multiples of 16 bytes, got unaligned rows";

}  // namespace

std::string version_text(int64_t version) {
  return str_cat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

std::span<const KnownBad> known_bad_versions() { return kKnownBad; }

std::string refusal(const Library& library) {
  if (library.version < kOldestVersion || library.version >= kNewestVersion)
    return str_cat("expected cuDNN ", version_text(kOldestVersion), " or a later 9.x, got ",
                   version_text(library.version));
  for (const KnownBad& bad : kKnownBad) {
    if (bad.good_lengths == 0 && is_of(bad, library)) return known_error(bad, library);
  }
  if (library.sm < kOldestSm || library.sm > kNewestSm)
    return str_cat("expected a device of compute capability 8.0 to 9.0, got ", library.sm / 10, ".", library.sm % 10);
  return "";
}

std::string refusal(const AttentionShape& shape, DType storage) {
  return refusal(shape, storage, {.version = kNewestVersion - 1, .sm = kNewestSm});
}

std::string refusal(const AttentionShape& s, DType storage, const Library& library) {
  // 1. the library and the device
  std::string unusable = refusal(library);
  if (!unusable.empty()) return unusable;
  for (const KnownBad& bad : kKnownBad) {
    if (bad.good_lengths > 0 && s.T_kv % bad.good_lengths != 0 && is_of(bad, library)) return known_error(bad, library);
  }
  // 2. features of the contract that cuDNN does not have
  if (storage != DType::kBFloat16) return str_cat("expected bf16, got ", name_of(storage));
  const std::string feature = unserved(s);
  if (!feature.empty()) return str_cat("expected plain causal attention, got ", feature);
  const bool apart = s.mask.q_start != s.mask.kv_start;
  if (apart || s.T_q != s.T_kv)
    return str_cat("expected as many queries as keys from the same position, got ", s.T_q, " queries and ", s.T_kv,
                   apart ? " keys from another position" : " keys");
  if (s.T_q < 2) return str_cat("expected at least 2 tokens a sample, got ", s.T_q);
  // 3. heads
  const int64_t widest = library.sm == kNewestSm ? 256 : 128;
  if (s.D > widest || s.D % 8 != 0 || s.D <= 0)
    return str_cat("expected head_dim to be a multiple of 8 up to ", widest, " on compute capability ", library.sm / 10,
                   ".", library.sm % 10, ", got ", s.D);
  if (s.v_dim() != s.D)
    return str_cat("expected values as wide as keys, got head_dim ", s.D, " and values of ", s.v_dim());
  return "";
}

std::string refusal(const AttentionForward& a, const Library& library) {
  std::string of_shape = refusal(a.shape, a.q.dtype, library);
  return !of_shape.empty() || aligned_inputs(a) ? of_shape : kUnaligned;
}

std::string refusal(const AttentionBackward& a, const Library& library) {
  std::string of_shape = refusal(a.shape, a.q.dtype, library);
  if (!of_shape.empty()) return of_shape;
  const AttentionShape& s = a.shape;
  const bool partial = !a.dq || !a.dk || !a.dv || a.delta;
  const bool gradients = partial || (aligned(a.dq, s.q_batch_stride, s.B) && aligned(a.dk, s.kv_batch_stride, s.B) &&
                                     aligned(a.dv, s.v_stride(), s.B));
  if (!aligned_inputs(a) || !aligned(a.dout, s.T_q * a.dout.stride, s.B) || !gradients) return kUnaligned;
  if (a.mode == GradMode::kAccumulate)
    return "expected gradients that are overwritten, got gradients that are added to";
  if (partial) return "expected a call for dq, dk and dv without delta, got a call without one of them or with delta";
  return "";
}

}  // namespace ashlar::cudnn
