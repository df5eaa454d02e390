#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <string>

/// What the opaque structs of cublasLt hold here, and what tests may ask of the stand-in.
namespace ashlar::stand_in {

struct Layout {
  uint32_t type = CUDA_R_32F;
  int32_t order = CUBLASLT_ORDER_COL;
  uint64_t rows = 0, cols = 0;
  int64_t ld = 0;
  int32_t batch_count = 1;
  int32_t batch_mode = 0;
  int64_t batch_stride = 0, plane_offset = 0;
};
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));

struct Desc {
  int32_t compute_type = 0, scale_type = 0, pointer_mode = 0, transa = 0, transb = 0, transc = 0, fill_mode = 2;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  int64_t bias_batch_stride = 0;
  void* aux = nullptr;
  int64_t aux_ld = 0, aux_batch_stride = 0, alpha_batch_stride = 0;
  int32_t sm_count_target = 0;
  int32_t bias_type = -1;
  int32_t aux_type = -1;
  int8_t fast_accumulation = 0;
};
static_assert(sizeof(Desc) <= sizeof(cublasLtMatmulDescOpaque_t));

struct Preference {
  uint64_t workspace_bytes = 0, implementations = ~uint64_t{0};
  uint32_t search_mode = 0, reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t align_a = 256, align_b = 256, align_c = 256, align_d = 256;
  float waves = 0;
};
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t));

inline Layout& of(cublasLtMatrixLayout_t layout) { return *reinterpret_cast<Layout*>(layout); }
inline Desc& of(cublasLtMatmulDesc_t desc) { return *reinterpret_cast<Desc*>(desc); }
inline Preference& of(cublasLtMatmulPreference_t preference) { return *reinterpret_cast<Preference*>(preference); }

}  // namespace ashlar::stand_in

extern "C" {
/// Starts over. Words key=value: `version` (as 130100), `no_gelu=1` (the library has no such epilogue), `delay=1`
/// (algorithm 0 takes 120 ms more, 1 takes 20 ms, 2 takes none), `none_repeats=1`, `seed`.
void ashlar_stand_in_cublaslt_reset(const char* options);
/// How often a function was called since then: "matmul", "heuristic", "create".
long ashlar_stand_in_cublaslt_calls(const char* name);
/// What the last refusal was about; empty: none.
const char* ashlar_stand_in_cublaslt_refusal(void);
}
