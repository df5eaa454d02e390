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
std::string refusal(const AttentionForward& args, const Library& library);
std::string refusal(const AttentionBackward& args, const Library& library);
/// The same of all calls of such a shape in a storage dtype; it may be a configuration's, whose views are described.
std::string refusal(const AttentionShape& shape, DType storage, const Library& library);
/// Why no call at all may be cuDNN's with such a library on such a device.
std::string refusal(const Library& library);
/// Why such calls may be cuDNN's with no library and on no device.
std::string refusal(const AttentionShape& shape, DType storage);

}  // namespace ashlar::cudnn
