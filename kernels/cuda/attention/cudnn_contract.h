#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/backend/attention.h"
#include "core/base/enum_names.h"

/// Decides which attention calls (core/backend/attention.h) cuDNN can compute instead of our own kernels. Pure
/// functions of their arguments: they need neither cuDNN nor a GPU.
namespace ashlar::cudnn {

using ashlar::name_of;

/// cuDNN version and compute capability of the GPU that it runs on.
struct Library {
  int64_t version = 0;  ///< as returned by cudnnGetVersion(): 91900 is 9.19.0
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

/// Returns why cuDNN may not compute such calls, as "expected ..., got ...". Empty if it may: its forward and backward
/// then follow the contract, are deterministic, and use lse in the same form as our own kernels. Limits of head_dim and
/// of architectures: cuDNN 9 developer guide, "Scaled Dot Product Attention", and the checks of cudnn-frontend 1.32
/// (node/scaled_dot_product_flash_attention.h).
std::string refusal(const AttentionForward& args, const Library& library);
std::string refusal(const AttentionBackward& args, const Library& library);
/// The reason that applies to all calls of such a shape in a storage dtype. The shape may come from a configuration,
/// whose views have no memory.
std::string refusal(const AttentionShape& shape, DType storage, const Library& library);
/// Returns why cuDNN may not compute any call with this library version on this device.
std::string refusal(const Library& library);
/// Returns why cuDNN may not compute such calls with any library version or device.
std::string refusal(const AttentionShape& shape, DType storage);

}  // namespace ashlar::cudnn
