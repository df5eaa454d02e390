#pragma once

#include <cuda_runtime_api.h>

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/tuning/joined_tuners.h"
#include "kernels/cuda/gemm/cublaslt.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/gemm_key.h"

namespace ashlar::cuda {

/// Runs the matrix products of a device with cublasLt. Caches a plan for each GemmKey: the library's descriptors and
/// the selected algorithm. A product with a cached plan needs no query to the library and no allocation.
class CublasLtPlans final : public PreparingTuner {
 public:
  /// `device` is the current CUDA device of the calling thread. Loads the library.
  explicit CublasLtPlans(Device& device);
  ~CublasLtPlans() override;
  CublasLtPlans(const CublasLtPlans&) = delete;
  CublasLtPlans& operator=(const CublasLtPlans&) = delete;

  void run(const Gemm& gemm, Stream& stream);
  /// True if the library supports the product and its epilogue in one call.
  bool fuses(const Gemm& gemm);
  const CublasLt& library() const { return lt_; }

  /// Returns the products that have plans. Section "gemm" maps GemmKey::text of a product to the chosen algorithm as
  /// 128 hexadecimal digits, or to an empty text if none is chosen.
  TunedChoices met() const override;
  /// Times the library's suggestions, at most 16 algorithms per product, on random numbers, and selects the fastest one
  /// that gives the same bits ten times. If the operands do not fit into memory, selects the library's first
  /// suggestion. Throws if none is repeatable.
  TunedChoices measure(const TunedChoices& questions) override;
  void use(const TunedChoices& choices) override;
  TunedChoices prepare() override { return {}; }  ///< a plan is made when its product first runs
  std::vector<std::string> report() override { return {}; }
  /// Returns a line for each product measured since the last call: how many algorithms the library suggests, how many
  /// of them are usable, and which one was taken.
  std::vector<std::string> details() override;

 private:
  struct Plan {
    cublasLtMatmulDescOpaque_t desc{};
    cublasLtMatrixLayoutOpaque_t a{}, b{}, c{};  ///< named as in the library: its a is b of Gemm, and its b is a
    cublasLtMatmulAlgo_t algo{};
    size_t workspace_bytes = 0;
    bool supported = false;
  };
  class Trial;
  static constexpr int kSuggestions = 16;

  /// Returns a plan without an algorithm.
  Plan describe(const GemmKey& key) const;
  struct Suggestions {
    std::vector<cublasLtMatmulHeuristicResult_t> usable;
    int suggested = 0;  ///< by the library, with those that need too much workspace
  };
  Suggestions suggestions(Plan& plan, const GemmKey& key, int most);
  /// Returns a plan with the library's first suggestion. `supported` is false if the library has no suggestion.
  Plan suggested(const GemmKey& key);
  /// Returns a plan with the given algorithm. Throws a damaged-data error if the library refuses the algorithm.
  Plan chosen(const GemmKey& key, const std::string& algorithm) const;
  Plan& plan_of(const GemmKey& key);
  /// Runs the product, but writes to `result` instead of gemm.c. `workspace` has plan.workspace_bytes bytes.
  void multiply(Plan& plan, const Gemm& gemm, const MutView& result, void* workspace, Stream& stream);
  void run_and_finish(const Gemm& gemm, Stream& stream);
  std::string measure(const GemmKey& key, Stream& stream);
  static std::string text_of(const cublasLtMatmulAlgo_t& algo);

  Device& device_;
  CublasLt lt_;
  cublasLtHandle_t handle_ = nullptr;
  std::string device_name_;
  std::unordered_map<GemmKey, Plan, GemmKeyHash> plans_;
  std::map<std::string, std::string> choices_;  ///< active choices, also for products without a plan yet
  std::vector<std::string> measured_;           ///< lines of the next `details`
};

}  // namespace ashlar::cuda
