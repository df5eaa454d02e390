#include "core/io/convert.h"

#include <cstring>
#include <type_traits>

#include "core/base/bf16.h"
#include "core/base/error.h"
#include "core/base/fp16.h"

namespace ashlar::io {
namespace {

/// f(T()) with the type of the elements.
template <typename F>
void with_type(FileDType dtype, const F& f) {
  switch (dtype) {
    case FileDType::kF64: return f(double());
    case FileDType::kF32: return f(float());
    case FileDType::kF16: return f(FP16());
    case FileDType::kBF16: return f(BF16());
    default: throw Bug(str_cat("[safetensors] no conversion from or to ", name_of(dtype)));
  }
}

template <typename From, typename To>
void convert_all(std::span<const std::byte> in, std::span<std::byte> out) {
  const size_t n = in.size() / sizeof(From);
  ASHLAR_CHECK(in.size() == n * sizeof(From) && out.size() == n * sizeof(To), in.size(), " bytes into ", out.size());
  if constexpr (std::is_same_v<From, To>) {
    if (n > 0) std::memcpy(out.data(), in.data(), in.size());
  } else {
    for (size_t i = 0; i < n; ++i) {
      From x;
      std::memcpy(&x, in.data() + i * sizeof(From), sizeof(From));
      const To y = static_cast<To>(static_cast<float>(x));
      std::memcpy(out.data() + i * sizeof(To), &y, sizeof(To));
    }
  }
}

}  // namespace

bool is_convertible(FileDType dtype) {
  return dtype == FileDType::kF64 || dtype == FileDType::kF32 || dtype == FileDType::kF16 || dtype == FileDType::kBF16;
}

void convert(FileDType from, std::span<const std::byte> in, FileDType to, std::span<std::byte> out) {
  with_type(from, [&](auto f) { with_type(to, [&](auto t) { convert_all<decltype(f), decltype(t)>(in, out); }); });
}

}  // namespace ashlar::io
