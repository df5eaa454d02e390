#pragma once

#include <cuda_runtime_api.h>

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/tuning/tuner.h"
#include "kernels/cuda/gemm/cublaslt.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/gemm_key.h"

namespace ashlar::cuda {

/// The matrix products of a device by cublasLt. It keeps the library's descriptors and the selected algorithm for each
/// kind of product, so that a known kind needs no query to the library and no allocation.
class CublasLtPlans final : public Tuner {
 public:
  /// For the current device of the calling thread. Loads the library.
  explicit CublasLtPlans(Device& device);
  ~CublasLtPlans() override;
  CublasLtPlans(const CublasLtPlans&) = delete;
  CublasLtPlans& operator=(const CublasLtPlans&) = delete;

  void run(const Gemm& gemm, Stream& stream);
  /// True if the library supports product and epilogue in one call.
  bool fuses(const Gemm& gemm);
  const CublasLt& library() const { return lt_; }

  /// Section "gemm": a product by GemmKey::text, an algorithm as 128 hexadecimal digits.
  TunedChoices met() const override;
  /// Times the library's suggestions, at most 16 algorithms per product, on random numbers, and selects the fastest one
  /// that gives the same bits ten times. If the operands do not fit into memory, selects the library's first
  /// suggestion. Throws if none is repeatable.
  TunedChoices measure(const TunedChoices& questions) override;
  void use(const TunedChoices& choices) override;

 private:
  struct Plan {
    cublasLtMatmulDescOpaque_t desc{};
    cublasLtMatrixLayoutOpaque_t a{}, b{}, c{};  ///< in the library's naming: its a is our b
    cublasLtMatmulAlgo_t algo{};
    size_t workspace_bytes = 0;
    bool supported = false;
  };
  class Trial;
  static constexpr int kSuggestions = 16;

  /// Everything except the algorithm.
  Plan describe(const GemmKey& key) const;
  std::vector<cublasLtMatmulHeuristicResult_t> suggestions(Plan& plan, const GemmKey& key, int most);
  Plan suggested(const GemmKey& key);  ///< with the library's first suggestion, if any
  /// Throws a damaged-data error if the library refuses the algorithm.
  Plan chosen(const GemmKey& key, const std::string& algorithm) const;
  Plan& plan_of(const GemmKey& key);
  /// Uses `result` instead of the product's c, and `workspace` of the plan's size.
  void multiply(Plan& plan, const Gemm& gemm, const MutView& result, void* workspace, Stream& stream);
  void run_and_finish(const Gemm& gemm, Stream& stream);
  std::string measure(const GemmKey& key, Stream& stream);
  static std::string text_of(const cublasLtMatmulAlgo_t& algo);

  Device& device_;
  CublasLt lt_;
  cublasLtHandle_t handle_ = nullptr;
  std::string device_name_;
  std::unordered_map<GemmKey, Plan, GemmKeyHash> plans_;
  std::map<std::string, std::string> choices_;  ///< active, including those for products not used yet
};

}  // namespace ashlar::cuda
