// Descriptors of the stand-in: attributes with the sizes and defaults of the vendor's library (held against it by
// tests/cublaslt), stored without a question, as there: what does not fit together is refused by the product.
#include "tests/stand_ins/cublaslt/descriptors.h"

#include <cstddef>
#include <cstring>
#include <new>

namespace ashlar::stand_in {
namespace {

/// Where an attribute lies in its struct.
struct Field {
  int attribute;
  size_t offset, size;
};
#define ASHLAR_FIELD(attribute, Struct, member) \
  Field { attribute, offsetof(Struct, member), sizeof(Struct::member) }

constexpr Field kLayout[] = {
    ASHLAR_FIELD(CUBLASLT_MATRIX_LAYOUT_TYPE, Layout, type),
    ASHLAR_FIELD(CUBLASLT_MATRIX_LAYOUT_ORDER, Layout, order),
    ASHLAR_FIELD(CUBLASLT_MATRIX_LAYOUT_ROWS, Layout, rows),
    ASHLAR_FIELD(CUBLASLT_MATRIX_LAYOUT_COLS, Layout, cols),
    ASHLAR_FIELD(CUBLASLT_MATRIX_LAYOUT_LD, Layout, ld),
    ASHLAR_FIELD(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, Layout, batch_count),
    ASHLAR_FIELD(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, Layout, batch_stride),
    ASHLAR_FIELD(CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET, Layout, plane_offset),
};
constexpr Field kDesc[] = {
    ASHLAR_FIELD(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, Desc, compute_type),
    ASHLAR_FIELD(CUBLASLT_MATMUL_DESC_SCALE_TYPE, Desc, scale_type),
    ASHLAR_FIELD(CUBLASLT_MATMUL_DESC_POINTER_MODE, Desc, pointer_mode),
    ASHLAR_FIELD(CUBLASLT_MATMUL_DESC_TRANSA, Desc, transa),
    ASHLAR_FIELD(CUBLASLT_MATMUL_DESC_TRANSB, Desc, transb),
    ASHLAR_FIELD(CUBLASLT_MATMUL_DESC_TRANSC, Desc, transc),
    ASHLAR_FIELD(CUBLASLT_MATMUL_DESC_FILL_MODE, Desc, fill_mode),
    ASHLAR_FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE, Desc, epilogue),
    ASHLAR_FIELD(CUBLASLT_MATMUL_DESC_BIAS_POINTER, Desc, bias),
    ASHLAR_FIELD(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, Desc, bias_batch_stride),
    ASHLAR_FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, Desc, aux),
    ASHLAR_FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, Desc, aux_ld),
    ASHLAR_FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, Desc, aux_batch_stride),
    ASHLAR_FIELD(CUBLASLT_MATMUL_DESC_ALPHA_VECTOR_BATCH_STRIDE, Desc, alpha_batch_stride),
    ASHLAR_FIELD(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, Desc, sm_count_target),
    ASHLAR_FIELD(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, Desc, bias_type),
    ASHLAR_FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, Desc, aux_type),
    ASHLAR_FIELD(CUBLASLT_MATMUL_DESC_FAST_ACCUM, Desc, fast_accumulation),
};
constexpr Field kPreference[] = {
    ASHLAR_FIELD(CUBLASLT_MATMUL_PREF_SEARCH_MODE, Preference, search_mode),
    ASHLAR_FIELD(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, Preference, workspace_bytes),
    ASHLAR_FIELD(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, Preference, reductions),
    ASHLAR_FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, Preference, align_a),
    ASHLAR_FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, Preference, align_b),
    ASHLAR_FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, Preference, align_c),
    ASHLAR_FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, Preference, align_d),
    ASHLAR_FIELD(CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT, Preference, waves),
    ASHLAR_FIELD(CUBLASLT_MATMUL_PREF_IMPL_MASK, Preference, implementations),
};

template <size_t N>
const Field* find(const Field (&fields)[N], int attribute) {
  for (const Field& field : fields)
    if (field.attribute == attribute) return &field;
  return nullptr;
}

template <size_t N>
cublasStatus_t set(const Field (&fields)[N], void* object, int attribute, const void* value, size_t size) {
  const Field* const field = find(fields, attribute);
  if (field == nullptr || value == nullptr || size != field->size) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(static_cast<char*>(object) + field->offset, value, size);
  return CUBLAS_STATUS_SUCCESS;
}

template <size_t N>
cublasStatus_t get(const Field (&fields)[N], const void* object, int attribute, void* value, size_t size,
                   size_t* written) {
  const Field* const field = find(fields, attribute);
  if (field == nullptr || (size == 0 && written == nullptr)) return CUBLAS_STATUS_INVALID_VALUE;
  if (size != 0 && (value == nullptr || size != field->size)) return CUBLAS_STATUS_INVALID_VALUE;
  if (size != 0) std::memcpy(value, static_cast<const char*>(object) + field->offset, size);
  if (written != nullptr) *written = field->size;
  return CUBLAS_STATUS_SUCCESS;
}

/// Puts a fresh T where the caller has room.
template <typename T>
cublasStatus_t init(void* at, size_t room, size_t wanted, const T& value) {
  if (at == nullptr || room < wanted) return CUBLAS_STATUS_INVALID_VALUE;
  std::memset(at, 0, wanted);
  new (at) T(value);
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Opaque, typename T>
cublasStatus_t create(Opaque** at, const T& value) {
  if (at == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *at = new Opaque{};
  return init(*at, sizeof(Opaque), sizeof(Opaque), value);
}

}  // namespace
}  // namespace ashlar::stand_in

using namespace ashlar::stand_in;  // NOLINT: the vendor's functions are outside of any namespace

extern "C" {

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size, cudaDataType type,
                                                 uint64_t rows, uint64_t cols, int64_t ld) {
  return init(layout, size, sizeof(*layout),
              Layout{.type = static_cast<uint32_t>(type), .rows = rows, .cols = cols, .ld = ld});
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
  return create(layout, Layout{.type = static_cast<uint32_t>(type), .rows = rows, .cols = cols, .ld = ld});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                size_t size) {
  return set(kLayout, layout, attribute, value, size);
}
cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, void* value, size_t size,
                                                size_t* written) {
  return get(kLayout, layout, attribute, value, size, written);
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc, size_t size, cublasComputeType_t compute,
                                               cudaDataType_t scale) {
  return init(desc, size, sizeof(*desc), Desc{.compute_type = compute, .scale_type = scale});
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute, cudaDataType_t scale) {
  return create(desc, Desc{.compute_type = compute, .scale_type = scale});
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t size) {
  return set(kDesc, desc, attribute, value, size);
}
cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              void* value, size_t size, size_t* written) {
  return get(kDesc, desc, attribute, value, size, written);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, size_t size) {
  return init(preference, size, sizeof(*preference), Preference{});
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return create(preference, Preference{});
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t size) {
  return set(kPreference, preference, attribute, value, size);
}
cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, void* value,
                                                    size_t size, size_t* written) {
  return get(kPreference, preference, attribute, value, size, written);
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR: return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_LICENSE_ERROR: return "CUBLAS_STATUS_LICENSE_ERROR";
    default: return "unrecognized status";
  }
}
}
