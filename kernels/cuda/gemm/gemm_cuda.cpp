// Products by cublasLt, which reads a row-major matrix as the column-major transpose of this matrix. So c = op(a)
// op(b) becomes c^T = op(b)^T op(a)^T: the operands are exchanged, and strides are leading dimensions. A bias for the
// columns of c is a bias for the rows of c^T, which the library's epilogue supports.

#include <algorithm>
#include <charconv>

#include "core/base/error.h"
#include "core/base/hex.h"
#include "kernels/cuda/gemm/cublaslt_plans.h"
#include "kernels/cuda/gemm/gemm_epilogue.h"
#include "kernels/cuda/host/sizes.h"

namespace ashlar::cuda {

namespace {

constexpr size_t kWorkspaceBytes = kGemmWorkspaceBytes;
// The row stride of a pre-activation must be a multiple of kAuxStride elements, its address one of kAuxAlign bytes.
constexpr int64_t kAuxStride = 8, kAuxAlign = 16;

struct Types {
  cudaDataType_t data;
  cudaDataType_t scale;
  cublasComputeType_t compute;
  uint64_t inputs;  ///< mask of allowed input types, without TF32 and without emulation by narrower types
};

Types types_of(DType storage) {
  switch (storage) {
    case DType::kFloat64: return {CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_64F};
    case DType::kFloat32: return {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_32F};
    default: return {CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16BF};
  }
}

uint32_t epilogue_of(const GemmKey& key) {
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  if (key.align_pre != 0) {
    epilogue = key.align_bias != 0 ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  } else if (key.align_bias != 0) {
    epilogue = CUBLASLT_EPILOGUE_BIAS;
  }
  return epilogue;
}

/// True if the product has no epilogue, or one that the library supports. An epilogue requires fp32 arithmetic, a bias
/// of the result's dtype, and aligned rows of the pre-activation.
bool may_fuse(const Gemm& g) {
  if (!g.bias && !g.pre) return true;
  if (g.a.dtype == DType::kFloat64) return false;
  if (g.bias && g.bias.dtype != g.c.dtype) return false;
  if (!g.pre) return true;
  const GemmKey key = GemmKey::of(g);
  return key.stride_pre % kAuxStride == 0 && key.align_pre >= kAuxAlign;
}

/// Converts 128 hexadecimal digits to an algorithm. Returns false for any other text.
bool read_algo(std::string_view text, cublasLtMatmulAlgo_t& algo) {
  constexpr size_t kDigits = 16;
  if (text.size() != std::size(algo.data) * kDigits) return false;
  for (size_t i = 0; i < std::size(algo.data); ++i) {
    const char* const begin = text.data() + i * kDigits;
    const auto [end, error] = std::from_chars(begin, begin + kDigits, algo.data[i], 16);
    if (error != std::errc() || end != begin + kDigits) return false;
  }
  return true;
}

int64_t round_up(int64_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

CublasLtPlans::CublasLtPlans(Device& device) : device_(device) {
  int ordinal = 0;
  cudaDeviceProp properties{};
  if (cudaGetDevice(&ordinal) != cudaSuccess || cudaGetDeviceProperties(&properties, ordinal) != cudaSuccess)
    throw Bug("[cuda] expected a current CUDA device for matrix products");
  device_name_ = str_cat(properties.name, ", sm_", properties.major, properties.minor, ", ",
                         properties.multiProcessorCount, " multiprocessors");
  lt_.check(lt_.create(&handle_), "cublasLtCreate");
}

CublasLtPlans::~CublasLtPlans() { lt_.destroy(handle_); }

std::string CublasLtPlans::text_of(const cublasLtMatmulAlgo_t& algo) {
  std::string text;
  for (const uint64_t word : algo.data) text += hex64(word);
  return text;
}

CublasLtPlans::Plan CublasLtPlans::describe(const GemmKey& key) const {
  Plan plan;
  const Types types = types_of(key.storage);
  const cudaDataType_t result = types_of(key.result).data;
  // The library's a is our b, and its b is our a. A matrix that we store as [rows, cols] is [cols, rows] for the
  // library.
  const auto layout = [&](cublasLtMatrixLayoutOpaque_t& out, cudaDataType_t type, bool transposed, int64_t rows,
                          int64_t cols, int64_t stride) {
    if (transposed) std::swap(rows, cols);
    lt_.check(
        lt_.layout_init(&out, sizeof(out), type, static_cast<uint64_t>(cols), static_cast<uint64_t>(rows), stride),
        "cublasLtMatrixLayoutInit");
  };
  layout(plan.a, types.data, key.transpose_b != 0, key.k, key.m, key.stride_b);
  layout(plan.b, types.data, key.transpose_a != 0, key.n, key.k, key.stride_a);
  layout(plan.c, result, false, key.n, key.m, key.stride_c);

  lt_.check(lt_.desc_init(&plan.desc, sizeof(plan.desc), types.compute, types.scale), "cublasLtMatmulDescInit");
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    lt_.check(lt_.desc_set(&plan.desc, attribute, &value, sizeof(value)), "cublasLtMatmulDescSetAttribute");
  };
  const int32_t plain = CUBLAS_OP_N, transposed = CUBLAS_OP_T;
  set(CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_b != 0 ? transposed : plain);
  set(CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_a != 0 ? transposed : plain);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(key));
  // The pointers set here are not real addresses: they have only the right alignment, since the heuristics use nothing
  // else. `multiply` sets the real pointers.
  if (key.align_bias != 0) {
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(result));
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<const void*>(key.align_bias));
  }
  if (key.align_pre != 0) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.stride_pre);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, reinterpret_cast<void*>(key.align_pre));
  }
  return plan;
}

CublasLtPlans::Suggestions CublasLtPlans::suggestions(Plan& plan, const GemmKey& key, int most) {
  cublasLtMatmulPreferenceOpaque_t preference{};
  lt_.check(lt_.preference_init(&preference, sizeof(preference)), "cublasLtMatmulPreferenceInit");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    lt_.check(lt_.preference_set(&preference, attribute, &value, sizeof(value)),
              "cublasLtMatmulPreferenceSetAttribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspaceBytes});
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(key.align_b));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(key.align_a));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(key.align_c));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(key.align_c));
  // Partial sums stay in the accumulate type, so that there is one rounding, at the store.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  constexpr uint64_t kInputs = CUBLASLT_NUMERICAL_IMPL_FLAGS_OP_INPUT_TYPE_MASK;
  set(CUBLASLT_MATMUL_PREF_IMPL_MASK, uint64_t{~kInputs | types_of(key.storage).inputs});

  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
  int found = 0;
  const cublasStatus_t status =
      lt_.heuristic(handle_, &plan.desc, &plan.a, &plan.b, &plan.c, &plan.c, &preference, most, results.data(), &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return {};
  lt_.check(status, str_cat("algorithms for ", key.text()));
  results.resize(static_cast<size_t>(found));
  std::erase_if(results, [](const auto& result) {
    return result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > kWorkspaceBytes;
  });
  return {.usable = std::move(results), .suggested = found};
}

CublasLtPlans::Plan CublasLtPlans::suggested(const GemmKey& key) {
  Plan plan = describe(key);
  const auto found = suggestions(plan, key, kSuggestions).usable;
  plan.supported = !found.empty();
  if (plan.supported) {
    plan.algo = found.front().algo;
    plan.workspace_bytes = found.front().workspaceSize;
  }
  return plan;
}

CublasLtPlans::Plan CublasLtPlans::chosen(const GemmKey& key, const std::string& algorithm) const {
  Plan plan = describe(key);
  cublasLtMatmulHeuristicResult_t result{};
  const bool read = read_algo(algorithm, plan.algo);
  const cublasStatus_t status =
      read ? lt_.algo_check(handle_, &plan.desc, &plan.a, &plan.b, &plan.c, &plan.c, &plan.algo, &result)
           : CUBLAS_STATUS_INVALID_VALUE;
  const bool refused = status != CUBLAS_STATUS_SUCCESS;
  if (refused || result.workspaceSize > kWorkspaceBytes)
    throw damaged_error("choices", "the algorithm \"", algorithm, "\" chosen for ", key.text(), " is refused by ",
                        lt_.version(), " (",
                        !read     ? "it is not 128 hexadecimal digits"
                        : refused ? lt_.status_name(status)
                                  : "its workspace is too large",
                        "); remove choices.json from the run directory to measure again");
  plan.workspace_bytes = result.workspaceSize;
  plan.supported = true;
  return plan;
}

CublasLtPlans::Plan& CublasLtPlans::plan_of(const GemmKey& key) {
  const auto met = plans_.find(key);
  if (met != plans_.end()) return met->second;
  const auto choice = choices_.find(key.text());
  const bool answered = choice != choices_.end() && !choice->second.empty();
  return plans_.emplace(key, answered ? chosen(key, choice->second) : suggested(key)).first->second;
}

bool CublasLtPlans::fuses(const Gemm& g) { return may_fuse(g) && plan_of(GemmKey::of(g)).supported; }

void CublasLtPlans::multiply(Plan& plan, const Gemm& g, const MutView& result, void* workspace, Stream& stream) {
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const void* address) {
    lt_.check(lt_.desc_set(&plan.desc, attribute, &address, sizeof(address)), "cublasLtMatmulDescSetAttribute");
  };
  if (g.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias.data);
  if (g.pre) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, g.pre.data);
  const double one = 1, zero = 0;
  const float one32 = 1, zero32 = 0;
  const bool wide = g.a.dtype == DType::kFloat64;
  const void* const alpha = wide ? static_cast<const void*>(&one) : &one32;
  const void* const none = wide ? static_cast<const void*>(&zero) : &zero32;
  const cublasStatus_t status =
      lt_.matmul(handle_, &plan.desc, alpha, g.b.data, &plan.a, g.a.data, &plan.b, g.accumulate ? alpha : none,
                 result.data, &plan.c, result.data, &plan.c, &plan.algo, workspace, plan.workspace_bytes,
                 static_cast<cudaStream_t>(stream.native()));
  if (status != CUBLAS_STATUS_SUCCESS) lt_.check(status, str_cat("cublasLtMatmul of ", GemmKey::of(g).text()));
}

void CublasLtPlans::run(const Gemm& g, Stream& stream) {
  if ((g.a.size() == 0 || g.b.size() == 0) || !fuses(g)) return run_and_finish(g, stream);
  Plan& plan = plan_of(GemmKey::of(g));
  const auto bytes = static_cast<int64_t>(plan.workspace_bytes);
  multiply(plan, g, g.c, bytes > 0 ? device_.scratch(stream, bytes) : nullptr, stream);
}

// Computes the product in the accumulate dtype; our own kernel then adds the bias and rounds.
void CublasLtPlans::run_and_finish(const Gemm& g, Stream& stream) {
  ASHLAR_CHECK(!g.pre, "[gemm] expected a pre-activation only where fuses_gelu returns true, got ",
               GemmKey::of(g).text());
  const GemmEpilogue finish{.sums = {}, .bias = g.bias, .c = g.c, .accumulate = g.accumulate};
  if (g.a.size() == 0 || g.b.size() == 0) return gemm_epilogue(finish, stream);
  const DType wide = accumulate_dtype(g.a.dtype);
  Gemm product{.a = g.a,
               .b = g.b,
               .bias = {},
               .c = {nullptr, wide, g.c.rows, g.c.cols, g.c.cols},
               .pre = {},
               .transpose_a = g.transpose_a,
               .transpose_b = g.transpose_b};
  GemmKey key = GemmKey::of(product);
  key.stride_c = g.c.cols;  // the product is written to scratch memory
  key.align_c = 256;
  Plan& plan = plan_of(key);
  if (!plan.supported)
    throw Error(ExitCode::kInput, "cuda",
                str_cat(lt_.version(), " has no algorithm for the product ", key.text(),
                        "; install a newer version of cublasLt"));
  const int64_t sums_bytes = round_up(product.c.size() * size_of(wide));
  auto* const memory =
      static_cast<char*>(device_.scratch(stream, sums_bytes + static_cast<int64_t>(plan.workspace_bytes)));
  product.c.data = memory;
  multiply(plan, product, product.c, plan.workspace_bytes > 0 ? memory + sums_bytes : nullptr, stream);
  GemmEpilogue last = finish;
  last.sums = product.c;
  gemm_epilogue(last, stream);
}

TunedChoices CublasLtPlans::met() const {
  TunedChoices met{.device = device_name_, .sections = {}};
  TunedChoices::Section& section = met.sections["gemm"];
  section.library = lt_.version();
  for (const auto& [key, plan] : plans_) {
    if (!plan.supported) continue;
    const std::string question = key.text();
    const auto chosen = choices_.find(question);
    section.choices[question] = chosen != choices_.end() ? chosen->second : "";
  }
  return met;
}

void CublasLtPlans::use(const TunedChoices& choices) {
  const std::string reason = why_not(met(), choices);
  if (!reason.empty())
    throw input_error("choices",
                      "expected choices of algorithms for this device and its libraries, got other choices: ", reason,
                      "; remove choices.json from the run directory to measure again");
  const auto section = choices.sections.find("gemm");
  if (section == choices.sections.end()) return;
  // All choices are validated before any of them is activated.
  std::unordered_map<GemmKey, Plan, GemmKeyHash> plans;
  for (const auto& [question, answer] : section->second.choices) {
    if (answer.empty()) continue;
    const GemmKey key = GemmKey::parse(question);
    const Plan plan = chosen(key, answer);
    if (plans_.contains(key)) plans.emplace(key, plan);
  }
  for (const auto& [key, plan] : plans_)
    if (!plans.contains(key)) plans.emplace(key, suggested(key));
  plans_ = std::move(plans);
  choices_ = section->second.choices;
}

// --- The functions of gemm.h ---

namespace {

CublasLtPlans& plans_of(Device& device) {
  std::shared_ptr<CublasLtPlans>& plans = device.cublaslt_plans();
  if (!plans) plans = std::make_shared<CublasLtPlans>(device);
  return *plans;
}

}  // namespace

void gemm(Device& device, const Gemm& g, Stream& stream) {
  check_gemm(g);
  device.count_gemm();
  if (g.c.size() > 0) plans_of(device).run(g, stream);
}

bool fuses_gelu(Device& device, const Gemm& g) {
  check_gemm(g);
  return g.c.size() == 0 || (g.a.size() > 0 && plans_of(device).fuses(g));
}

Tuner* gemm_tuner(Device& device) { return &plans_of(device); }

}  // namespace ashlar::cuda
