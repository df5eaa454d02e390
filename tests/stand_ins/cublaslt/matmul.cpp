// Products of the stand-in: what NVIDIA's documents refuse is refused at the call, the rest is queued, and done on the
// host when the stream gets there. Algorithms with different bits: 0 adds in ascending k; 1 adds two halves of k
// in its workspace, wants addresses of 16 bytes, and is twice as fast where delays are on; 2 is the fastest, and does
// not repeat: every other call adds in descending k; 3 sees fp32 as TF32, 4 rounds two halves to bf16.
#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <thread>
#include <vector>

#include "tests/stand_ins/cublaslt/descriptors.h"
#include "tests/stand_ins/cudart/enqueue.h"

namespace ashlar::stand_in {
namespace {

constexpr uint64_t kMagic = 0x5354414e44494e31;
constexpr uint64_t kAlgorithms = 5, kTf32 = 3, kRoundedHalves = 4;
constexpr uint32_t kFastAlign = 16;

struct Library {
  std::mutex mutex;
  std::map<std::string, long> options, calls;
  std::string refusal;
  long products = 0;
};
/// One a process: functions of C have no other place to keep it.
Library& library() {
  static Library* const one = new Library;  // never destroyed: calls come until the very end
  return *one;
}
long option(const char* name, long otherwise) {
  const std::scoped_lock lock(library().mutex);
  const auto found = library().options.find(name);
  return found != library().options.end() ? found->second : otherwise;
}
void count(const char* name) {
  const std::scoped_lock lock(library().mutex);
  ++library().calls[name];
}
cublasStatus_t refuse(cublasStatus_t status, const char* why) {
  const std::scoped_lock lock(library().mutex);
  library().refusal = why;
  return status;
}

struct Problem {
  Desc desc;
  Layout a, b, c, d;
  uint64_t m = 0, n = 0, k = 0;

  bool transa() const { return desc.transa == CUBLAS_OP_T; }
  bool transb() const { return desc.transb == CUBLAS_OP_T; }
  bool wide() const { return desc.compute_type == CUBLAS_COMPUTE_64F; }
  bool has_bias() const { return (desc.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
  bool has_aux() const { return (desc.epilogue & 128U) != 0; }
};

size_t size_of(uint32_t type) { return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2; }
bool aligned(const void* p, size_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }

/// What can be said without addresses of the operands.
cublasStatus_t check(const Problem& p) {
  constexpr auto kInvalid = CUBLAS_STATUS_INVALID_VALUE;
  constexpr auto kUnsupported = CUBLAS_STATUS_NOT_SUPPORTED;
  for (const Layout* layout : {&p.a, &p.b, &p.c, &p.d}) {
    if (layout->rows == 0 || layout->cols == 0) return refuse(kInvalid, "an empty matrix");
    if (layout->rows > INT32_MAX || layout->cols > INT32_MAX) return refuse(kUnsupported, "an extent beyond 32 bits");
    if (layout->order != CUBLASLT_ORDER_COL || layout->batch_count != 1)
      return refuse(kUnsupported, "an order or a batch that the stand-in does not have");
    if (layout->ld < static_cast<int64_t>(layout->rows)) return refuse(kInvalid, "a leading dimension below the rows");
  }
  if (p.m != p.c.rows || p.n != p.c.cols || p.k != (p.transb() ? p.b.cols : p.b.rows) ||
      p.n != (p.transb() ? p.b.rows : p.b.cols))
    return refuse(kInvalid, "shapes that do not fit");
  if (std::memcmp(&p.c, &p.d, sizeof(Layout)) != 0) return refuse(kInvalid, "c and d of different layouts");
  if (p.desc.pointer_mode != CUBLASLT_POINTER_MODE_HOST || p.desc.transc != CUBLAS_OP_N)
    return refuse(kUnsupported, "a pointer mode or transc that the stand-in does not have");

  const uint32_t in = p.a.type, out = p.d.type;
  const bool fp64 = p.wide() && p.desc.scale_type == CUDA_R_64F && in == CUDA_R_64F && out == CUDA_R_64F;
  const bool fp32 =
      p.desc.compute_type == CUBLAS_COMPUTE_32F && p.desc.scale_type == CUDA_R_32F &&
      ((in == CUDA_R_32F && out == CUDA_R_32F) || (in == CUDA_R_16BF && (out == CUDA_R_16BF || out == CUDA_R_32F)));
  if (p.b.type != in || (!fp64 && !fp32)) return refuse(kUnsupported, "types that are not in the table");

  switch (p.desc.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT: return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_EPILOGUE_BIAS: break;
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
      if (option("no_gelu", 0) != 0) return refuse(kUnsupported, "this library has no gelu");
      break;
    default: return refuse(kUnsupported, "an epilogue that the stand-in does not have");
  }
  if (fp64) return refuse(kUnsupported, "an epilogue of fp64");
  if (p.has_bias()) {
    if (p.desc.bias == nullptr) return refuse(kInvalid, "no bias");
    if (p.desc.bias_type != -1 && p.desc.bias_type != static_cast<int32_t>(out))
      return refuse(kUnsupported, "a bias of another type than d");
    if (!aligned(p.desc.bias, size_of(out))) return refuse(kInvalid, "a misaligned bias");
  }
  if (p.has_aux()) {
    if (p.desc.aux == nullptr) return refuse(kInvalid, "no aux");
    if (p.desc.aux_ld % 8 != 0) return refuse(kInvalid, "an aux leading dimension not divisible by 8");
    if (p.desc.aux_ld < static_cast<int64_t>(p.m)) return refuse(kInvalid, "an aux leading dimension below the rows");
    if (!aligned(p.desc.aux, 16)) return refuse(kUnsupported, "an aux address not divisible by 16");
    if (p.desc.aux_type != -1 && p.desc.aux_type != static_cast<int32_t>(out))
      return refuse(kUnsupported, "an aux of another type than d");
  }
  return CUBLAS_STATUS_SUCCESS;
}

Problem problem_of(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                   cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  Problem p{.desc = of(desc), .a = of(a), .b = of(b), .c = of(c), .d = of(d)};
  p.m = p.transa() ? p.a.cols : p.a.rows;
  p.k = p.transa() ? p.a.rows : p.a.cols;
  p.n = p.d.cols;
  return p;
}

size_t workspace_of(const Problem& p, uint64_t id) { return id == 1 ? p.m * p.n * (p.wide() ? 8 : 4) : 0; }
bool wants_alignment(uint64_t id) { return id == 1; }
bool is_algo(const cublasLtMatmulAlgo_t& algo) { return algo.data[0] == kMagic && algo.data[1] < kAlgorithms; }
cublasLtMatmulAlgo_t algo_of(uint64_t id) {
  cublasLtMatmulAlgo_t algo{};
  algo.data[0] = kMagic;
  algo.data[1] = id;
  return algo;
}

double load(const void* data, uint32_t type, int64_t i) {
  if (type == CUDA_R_64F) return static_cast<const double*>(data)[i];
  if (type == CUDA_R_32F) return static_cast<const float*>(data)[i];
  const uint32_t bits = uint32_t{static_cast<const uint16_t*>(data)[i]} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
void store(void* data, uint32_t type, int64_t i, double value) {
  if (type == CUDA_R_64F) {
    static_cast<double*>(data)[i] = value;
    return;
  }
  const auto narrow = static_cast<float>(value);
  if (type == CUDA_R_32F) {
    static_cast<float*>(data)[i] = narrow;
    return;
  }
  uint32_t bits;
  std::memcpy(&bits, &narrow, sizeof(bits));
  const bool nan = narrow != narrow;
  static_cast<uint16_t*>(data)[i] = static_cast<uint16_t>(
      nan ? (bits >> 16) | 0x40U : (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);  // to nearest even
}

/// The ten bits of mantissa that a tensor core takes of fp32.
float tf32(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  bits &= ~0x1fffU;
  std::memcpy(&value, &bits, sizeof(bits));
  return value;
}

/// A product on its way.
struct Work {
  Problem p;
  const void *a, *b, *c;
  void *d, *workspace;
  double alpha, beta;
  uint64_t algorithm;
  bool descending;
  int refusals;  ///< how often it still says "not yet"
};

template <typename A>
void multiply(const Work& w) {
  const Problem& p = w.p;
  const auto m = static_cast<int64_t>(p.m), n = static_cast<int64_t>(p.n), k = static_cast<int64_t>(p.k);
  std::vector<A> left(static_cast<size_t>(m * k)), sums(static_cast<size_t>(m)), half(static_cast<size_t>(m));
  for (int64_t q = 0; q < k; ++q)
    for (int64_t i = 0; i < m; ++i)
      left[static_cast<size_t>(q * m + i)] =
          static_cast<A>(load(w.a, p.a.type, p.transa() ? q + i * p.a.ld : i + q * p.a.ld));
  const auto seen = [&](A value) {
    return w.algorithm == kTf32 ? static_cast<A>(tf32(static_cast<float>(value))) : value;
  };
  for (A& value : left) value = seen(value);
  const auto add = [&](std::vector<A>& into, int64_t j, int64_t q) {
    const auto right = seen(static_cast<A>(load(w.b, p.b.type, p.transb() ? j + q * p.b.ld : q + j * p.b.ld)));
    const A* const column = left.data() + q * m;
    for (int64_t i = 0; i < m; ++i) into[static_cast<size_t>(i)] += column[i] * right;
  };
  for (int64_t j = 0; j < n; ++j) {
    std::fill(sums.begin(), sums.end(), A{0});
    if (w.algorithm == 1) {
      std::fill(half.begin(), half.end(), A{0});
      for (int64_t q = 0; q < k / 2; ++q) add(half, j, w.descending ? k / 2 - 1 - q : q);
      for (int64_t q = k / 2; q < k; ++q) add(sums, j, q);
      A* const partial = static_cast<A*>(w.workspace) + j * m;
      std::copy(half.begin(), half.end(), partial);
      for (int64_t i = 0; i < m; ++i) sums[static_cast<size_t>(i)] += partial[i];
    } else if (w.algorithm == kRoundedHalves) {
      std::fill(half.begin(), half.end(), A{0});
      for (int64_t q = 0; q < k / 2; ++q) add(half, j, q);
      for (int64_t q = k / 2; q < k; ++q) add(sums, j, q);
      for (int64_t i = 0; i < m; ++i) {
        uint16_t rounded[2];
        store(rounded, CUDA_R_16BF, 0, half[static_cast<size_t>(i)]);
        store(rounded, CUDA_R_16BF, 1, sums[static_cast<size_t>(i)]);
        sums[static_cast<size_t>(i)] = static_cast<A>(load(rounded, CUDA_R_16BF, 0) + load(rounded, CUDA_R_16BF, 1));
      }
    } else {
      for (int64_t q = 0; q < k; ++q) add(sums, j, w.descending ? k - 1 - q : q);
    }
    for (int64_t i = 0; i < m; ++i) {
      A value = static_cast<A>(w.alpha) * sums[static_cast<size_t>(i)];
      if (w.beta != 0) value += static_cast<A>(w.beta) * static_cast<A>(load(w.c, p.c.type, i + j * p.c.ld));
      if (p.has_bias()) value += static_cast<A>(load(p.desc.bias, p.d.type, i));
      if (p.has_aux()) {
        store(p.desc.aux, p.d.type, i + j * p.desc.aux_ld, value);
        constexpr auto kScale = static_cast<A>(0.7978845608028654);
        value = value / 2 * (1 + std::tanh(kScale * (value + static_cast<A>(0.044715) * value * value * value)));
      }
      store(w.d, p.d.type, i + j * p.d.ld, value);
    }
  }
}

bool step(void* data) {
  auto* const work = static_cast<Work*>(data);
  if (work->refusals > 0) {
    --work->refusals;
    return false;
  }
  const std::unique_ptr<Work> owner(work);
  if (option("delay", 0) != 0)
    std::this_thread::sleep_for(
        std::chrono::milliseconds(work->algorithm < 2 ? 120 - 100 * static_cast<int>(work->algorithm) : 0));
  work->p.wide() ? multiply<double>(*work) : multiply<float>(*work);
  return true;
}

size_t bytes_of(const Layout& layout) {
  return (static_cast<size_t>(layout.ld) * (layout.cols - 1) + layout.rows) * size_of(layout.type);
}

cublasStatus_t check_addresses(const Work& w) {
  constexpr auto kInvalid = CUBLAS_STATUS_INVALID_VALUE;
  const struct {
    const void* at;
    uint32_t type;
  } operands[] = {{w.a, w.p.a.type}, {w.b, w.p.b.type}, {w.d, w.p.d.type}, {w.beta != 0 ? w.c : w.d, w.p.c.type}};
  for (const auto& operand : operands) {
    if (operand.at == nullptr) return refuse(kInvalid, "no operand");
    if (!aligned(operand.at, size_of(operand.type))) return refuse(kInvalid, "a misaligned operand");
    if (wants_alignment(w.algorithm) && !aligned(operand.at, kFastAlign))
      return refuse(kInvalid, "an operand less aligned than the algorithm wants");
    cudaPointerAttributes where{};
    if (cudaPointerGetAttributes(&where, operand.at) != cudaSuccess || where.type != cudaMemoryTypeDevice)
      return refuse(CUBLAS_STATUS_EXECUTION_FAILED, "an operand that is no device memory");
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace
}  // namespace ashlar::stand_in

using namespace ashlar::stand_in;  // NOLINT: the vendor's functions are outside of any namespace

struct cublasLtContext {
  uint64_t magic;
};

extern "C" {

void ashlar_stand_in_cublaslt_reset(const char* options) {
  const std::scoped_lock lock(library().mutex);
  library().options.clear();
  library().calls.clear();
  library().refusal.clear();
  library().products = 0;
  std::istringstream words(options != nullptr ? options : "");
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    library().options[word.substr(0, equals)] = std::strtol(word.c_str() + equals + 1, nullptr, 10);
  }
}
long ashlar_stand_in_cublaslt_calls(const char* name) {
  const std::scoped_lock lock(library().mutex);
  return library().calls[name];
}
const char* ashlar_stand_in_cublaslt_refusal() { return library().refusal.c_str(); }

size_t cublasLtGetVersion() { return static_cast<size_t>(option("version", CUBLAS_VERSION)); }
size_t cublasLtGetCudartVersion() { return CUDART_VERSION; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  count("create");
  int device = 0;
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (cudaGetDevice(&device) != cudaSuccess) return refuse(CUBLAS_STATUS_NOT_INITIALIZED, "no device");
  *handle = new cublasLtContext{kMagic};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  if (handle == nullptr || handle->magic != kMagic) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->magic = 0;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* returned) {
  count("heuristic");
  if (handle == nullptr || handle->magic != kMagic) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (requested <= 0 || results == nullptr || returned == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *returned = 0;
  const Problem p = problem_of(desc, a, b, c, d);
  if (const cublasStatus_t status = check(p); status != CUBLAS_STATUS_SUCCESS) return status;
  const Preference& wish = of(preference);
  const uint64_t input = p.a.type == CUDA_R_16BF  ? CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16BF
                         : p.a.type == CUDA_R_32F ? CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_32F
                                                  : CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_64F;
  if ((wish.implementations & input) == 0) return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "no implementation is allowed");
  const uint32_t least = std::min(std::min(wish.align_a, wish.align_b), std::min(wish.align_c, wish.align_d));
  // Less exact ones first, where the caller does not forbid them.
  for (const uint64_t id : {kTf32, kRoundedHalves, uint64_t{0}, uint64_t{1}, uint64_t{2}}) {
    if (*returned == requested) break;
    if (workspace_of(p, id) > wish.workspace_bytes) continue;
    if (wants_alignment(id) && least < kFastAlign) continue;
    if (id == 1 && (wish.reductions & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) == 0) continue;
    if (id == kTf32 &&
        (p.a.type != CUDA_R_32F || (wish.implementations & CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32) == 0))
      continue;
    if (id == kRoundedHalves &&
        (p.d.type != CUDA_R_16BF || (wish.reductions & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE) == 0))
      continue;
    cublasLtMatmulHeuristicResult_t& result = results[(*returned)++];
    result = {};
    result.algo = algo_of(id);
    result.workspaceSize = workspace_of(p, id);
    result.state = CUBLAS_STATUS_SUCCESS;
    result.wavesCount = 1;
  }
  return *returned > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algo, cublasLtMatmulHeuristicResult_t* result) {
  if (handle == nullptr || handle->magic != kMagic) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (algo == nullptr || result == nullptr || !is_algo(*algo)) return CUBLAS_STATUS_INVALID_VALUE;
  const Problem p = problem_of(desc, a, b, c, d);
  if (const cublasStatus_t status = check(p); status != CUBLAS_STATUS_SUCCESS) return status;
  result->workspaceSize = workspace_of(p, algo->data[1]);
  result->wavesCount = 1;
  result->state = CUBLAS_STATUS_SUCCESS;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_desc, const void* b, cublasLtMatrixLayout_t b_desc,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_desc, void* d,
                              cublasLtMatrixLayout_t d_desc, const cublasLtMatmulAlgo_t* algo, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  count("matmul");
  if (handle == nullptr || handle->magic != kMagic) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (alpha == nullptr || beta == nullptr) return refuse(CUBLAS_STATUS_INVALID_VALUE, "no alpha or beta");
  auto work = std::make_unique<Work>();
  Work& w = *work;
  w.p = problem_of(desc, a_desc, b_desc, c_desc, d_desc);
  if (const cublasStatus_t status = check(w.p); status != CUBLAS_STATUS_SUCCESS) return status;
  if (algo != nullptr && !is_algo(*algo)) return refuse(CUBLAS_STATUS_INVALID_VALUE, "an algorithm of another library");
  w.algorithm = algo != nullptr ? algo->data[1] : 0;
  w.a = a, w.b = b, w.c = c, w.d = d, w.workspace = workspace;
  w.alpha = load(alpha, w.p.wide() ? CUDA_R_64F : CUDA_R_32F, 0);
  w.beta = load(beta, w.p.wide() ? CUDA_R_64F : CUDA_R_32F, 0);
  if (const cublasStatus_t status = check_addresses(w); status != CUBLAS_STATUS_SUCCESS) return status;
  const size_t needed = workspace_of(w.p, w.algorithm);
  if (needed > workspace_bytes || (needed > 0 && (workspace == nullptr || !aligned(workspace, 256))))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "a workspace that is missing, too small or misaligned");
  {
    const std::scoped_lock lock(library().mutex);
    const long number = library().products++;
    w.descending = number % 2 == 1 && (w.algorithm == 2 || library().options["none_repeats"] != 0);
    w.refusals = static_cast<int>((number * 7 + library().options["seed"]) % 3);
  }
  const Problem p = w.p;
  const bool reads_c = w.beta != 0;
  ashlar_stand_in_enqueue(stream, step, work.release(), "cublasLtMatmul");
  ashlar_stand_in_touch(a, bytes_of(p.a), false);
  ashlar_stand_in_touch(b, bytes_of(p.b), false);
  if (reads_c) ashlar_stand_in_touch(c, bytes_of(p.c), false);
  if (p.has_bias()) ashlar_stand_in_touch(p.desc.bias, p.m * size_of(p.d.type), false);
  if (p.has_aux())
    ashlar_stand_in_touch(p.desc.aux, (static_cast<size_t>(p.desc.aux_ld) * (p.n - 1) + p.m) * size_of(p.d.type), true);
  if (needed > 0) ashlar_stand_in_touch(workspace, needed, true);
  ashlar_stand_in_touch(d, bytes_of(p.d), true);
  return CUBLAS_STATUS_SUCCESS;
}
}
