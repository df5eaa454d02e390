#include "kernels/cuda/gemm/gemm_key.h"

#include <algorithm>
#include <array>

#include "core/base/error.h"
#include "core/base/strings.h"
#include "kernels/cuda/gemm/gemm.h"

namespace ashlar::cuda {

namespace {

struct Field {
  std::string_view name;
  int64_t GemmKey::*member;
};
constexpr std::array kFields = {
    Field{"n", &GemmKey::n},
    Field{"m", &GemmKey::m},
    Field{"k", &GemmKey::k},
    Field{"ta", &GemmKey::transpose_a},
    Field{"tb", &GemmKey::transpose_b},
    Field{"accumulate", &GemmKey::accumulate},
    Field{"sa", &GemmKey::stride_a},
    Field{"sb", &GemmKey::stride_b},
    Field{"sc", &GemmKey::stride_c},
    Field{"spre", &GemmKey::stride_pre},
    Field{"aa", &GemmKey::align_a},
    Field{"ab", &GemmKey::align_b},
    Field{"ac", &GemmKey::align_c},
    Field{"abias", &GemmKey::align_bias},
    Field{"apre", &GemmKey::align_pre},
};
constexpr std::array kDTypes = {DType::kFloat32, DType::kBFloat16, DType::kFloat64};
constexpr uintptr_t kMostAlignment = 256;

int64_t alignment_of(const void* p) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  return address == 0 ? 0 : static_cast<int64_t>(std::min(address & (~address + 1), kMostAlignment));
}

/// Returns the leading dimension for cublasLt. It must be at least the number of columns, but the stride of a matrix of
/// one row may be smaller.
int64_t stride_of(const ConstView& v) { return v ? std::max(v.stride, v.cols) : 0; }

/// Removes and returns the next word of `text`.
std::string_view next_word(std::string_view& text) {
  const size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

}  // namespace

GemmKey GemmKey::of(const Gemm& g) {
  return {.storage = g.a.dtype,
          .result = g.c.dtype,
          .n = g.c.rows,
          .m = g.c.cols,
          .k = g.transpose_a ? g.a.rows : g.a.cols,
          .transpose_a = g.transpose_a,
          .transpose_b = g.transpose_b,
          .accumulate = g.accumulate,
          .stride_a = stride_of(g.a),
          .stride_b = stride_of(g.b),
          .stride_c = stride_of(g.c),
          .stride_pre = stride_of(g.pre),
          .align_a = alignment_of(g.a.data),
          .align_b = alignment_of(g.b.data),
          .align_c = alignment_of(g.c.data),
          .align_bias = alignment_of(g.bias.data),
          .align_pre = alignment_of(g.pre.data)};
}

std::string GemmKey::text() const {
  std::string out = str_cat(name_of(storage), " ", name_of(result));
  for (const Field& field : kFields) out += str_cat(" ", field.name, "=", this->*field.member);
  return out;
}

GemmKey GemmKey::parse(std::string_view text) {
  const auto problem = [&, all = std::string(text)](std::string_view word) {
    return damaged_error("gemm", "expected a matrix product in the form \"", GemmKey{}.text(), "\", got \"", all,
                         "\", where \"", word, "\" is invalid; remove choices.json from the run directory to measure ",
                         "again, or resume from another checkpoint");
  };
  std::string_view rest = text;
  GemmKey key;
  for (DType* dtype : {&key.storage, &key.result}) {
    const std::string_view word = next_word(rest);
    const auto* const found = std::find_if(kDTypes.begin(), kDTypes.end(), [&](DType d) { return name_of(d) == word; });
    if (found == kDTypes.end()) throw problem(word);
    *dtype = *found;
  }
  for (const Field& field : kFields) {
    const std::string_view word = next_word(rest);
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos || word.substr(0, equals) != field.name) throw problem(word);
    const auto value = parse_number<int64_t>(word.substr(equals + 1));
    if (!value || *value < 0) throw problem(word);
    key.*field.member = *value;
  }
  if (!rest.empty()) throw problem(rest);
  return key;
}

size_t GemmKeyHash::operator()(const GemmKey& key) const {
  size_t hash = static_cast<size_t>(key.storage) * 31 + static_cast<size_t>(key.result);
  for (const Field& field : kFields)
    hash = (hash ^ static_cast<size_t>(key.*field.member)) * 0x9e3779b97f4a7c15U + (hash >> 29);
  return hash;
}

}  // namespace ashlar::cuda
