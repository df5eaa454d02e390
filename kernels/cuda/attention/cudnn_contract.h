#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/backend/attention.h"
#include "core/base/enum_names.h"

/// cuDNN's attention beside our own kernels: which calls of the contract (core/backend/attention.h) it can serve. Pure
/// functions of data: neither cuDNN nor a GPU is needed to ask.
namespace ashlar::cudnn {

using ashlar::name_of;

/// What of a call decides whether cuDNN may serve it. Filled from a call (facts_of), or from a configuration.
struct AttentionFacts {
  DType storage = DType::kBFloat16;
  int64_t B = 1, T_q = 0, T_kv = 0, H = 0, G = 0, D = 0;
  bool cached = false;         ///< queries begin behind the first key (a KV cache, or context parallel)
  bool document_mask = false;  ///< attention ends at document starts
  bool dropout = false;
  bool softcap = false, window = false, chunks = false, alibi = false, sinks = false, t5_bias = false;
  int64_t D_v = 0;           ///< width of values; 0 = D
  bool accumulates = false;  ///< gradients are added to what is there
  bool partial = false;      ///< not all of dq, dk and dv are wanted, or delta is given
  bool aligned = true;       ///< rows and samples begin at multiples of 16 bytes
};

AttentionFacts facts_of(const AttentionForward& args);
AttentionFacts facts_of(const AttentionBackward& args);

/// A cuDNN on a device.
struct Library {
  int64_t version = 0;  ///< as cudnnGetVersion() says it: 91900 is 9.19.0
  int sm = 0;           ///< the device's compute capability: 90 is 9.0
  bool operator==(const Library&) const = default;
};
/// "9.19.0"
std::string version_text(int64_t version);

/// Versions whose attention is known to be wrong for calls that Ashlar makes.
struct KnownBad {
  int64_t first, last;   ///< versions, both included
  int64_t good_lengths;  ///< lengths of samples that are multiples of this are right; 0 = none is
  const char* what;
  const char* source;
};
std::span<const KnownBad> known_bad_versions();
/// The oldest version that is used.
inline constexpr int64_t kOldestVersion = 90800;

/// Why cuDNN may not serve such calls, as "expected ..., got ..."; empty where it may. It may where its answer is the
/// contract's: forward and backward, deterministic, lse as our own kernels write and read it.
/// Limits of head_dim and of architectures: cuDNN 9 developer guide, "Scaled Dot Product Attention", and the checks of
/// cudnn-frontend 1.32 (node/scaled_dot_product_flash_attention.h).
std::string refusal(const AttentionFacts& facts, const Library& library);
/// Why no call at all may be cuDNN's with such a library on such a device.
std::string refusal(const Library& library);
/// Why such calls may be cuDNN's with no library and on no device.
std::string refusal(const AttentionFacts& facts);

}  // namespace ashlar::cudnn
