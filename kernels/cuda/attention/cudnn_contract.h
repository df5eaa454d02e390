#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/backend/attention.h"
#include "core/base/enum_names.h"

/// Decides which attention calls (core/backend/attention.h) cuDNN can compute instead of our own kernels. The functions
/// depend on their arguments alone: they need neither cuDNN nor a GPU.
namespace ashlar::cudnn {

using ashlar::name_of;

/// cuDNN version and compute capability of the GPU that it runs on.
struct Library {
  int64_t version = 0;  ///< as returned by cudnnGetVersion(): 91900 is 9.19.0
  int sm = 0;           ///< the device's compute capability: 90 is 9.0
  bool operator==(const Library&) const = default;
};
/// Returns the version as text, such as "9.19.0".
std::string version_text(int64_t version);

/// Versions whose attention is known to be wrong for calls that Ashlar makes.
struct KnownBad {
  int64_t first, last;   ///< the first and the last bad version
  int64_t good_lengths;  ///< results are right for sequence lengths that are multiples of this; 0 = for no length
  const char* what;
  const char* source;
};
std::span<const KnownBad> known_bad_versions();
/// The oldest version of cuDNN that is used.
inline constexpr int64_t kOldestVersion = 90800;

/// Returns why cuDNN may not compute this call, as "expected ..., got ...", or an empty text if it may. If it may,
/// cuDNN's forward and backward follow the contract, are deterministic, and use lse in the same form as our own
/// kernels. The limits of head_dim and of architectures are from the cuDNN 9 developer guide, "Scaled Dot Product
/// Attention", and the checks of cudnn-frontend 1.32 (node/scaled_dot_product_flash_attention.h).
std::string refusal(const AttentionForward& args, const Library& library);
std::string refusal(const AttentionBackward& args, const Library& library);
/// Returns why cuDNN may not compute any call of this shape and storage dtype. Addresses are not checked, so the shape
/// may come from a configuration.
std::string refusal(const AttentionShape& shape, DType storage, const Library& library);
/// Returns why cuDNN may not compute any call with this library version on this device.
std::string refusal(const Library& library);
/// Returns why no supported library version and device may compute calls of this shape and storage dtype.
std::string refusal(const AttentionShape& shape, DType storage);

}  // namespace ashlar::cudnn
