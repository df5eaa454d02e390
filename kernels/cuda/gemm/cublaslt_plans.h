#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/tuning/tuner.h"
#include "kernels/cuda/gemm/cublaslt.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/gemm_key.h"

namespace ashlar::cuda {

/// A device's products by cublasLt: what the library was told of each kind of product, and which algorithm is used. A
/// kind that was met before costs no question to the library and no allocation.
class CublasLtPlans final : public Tuner {
 public:
  /// Of the current device of the calling thread. Loads the library.
  explicit CublasLtPlans(Device& device);
  ~CublasLtPlans() override;
  CublasLtPlans(const CublasLtPlans&) = delete;
  CublasLtPlans& operator=(const CublasLtPlans&) = delete;

  void run(const Gemm& gemm, Stream& stream);
  /// Whether the library multiplies and applies the epilogue in one.
  bool fuses(const Gemm& gemm);
  const CublasLt& library() const { return lt_; }

  /// Section "gemm": a product by GemmKey::text, an algorithm as 128 hexadecimal digits.
  TunedChoices met() const override;
  /// Times what the library suggests, at most 16 algorithms a product, on random numbers, and takes the fastest one
  /// whose result repeats to the bit ten times. Where the operands do not fit into memory: the library's first
  /// suggestion. Throws where none repeats.
  TunedChoices measure(const TunedChoices& questions) override;
  void use(const TunedChoices& choices) override;

 private:
  struct Plan {
    cublasLtMatmulDescOpaque_t desc{};
    cublasLtMatrixLayoutOpaque_t a{}, b{}, c{};  ///< by the library's names: its a is our b
    cublasLtMatmulAlgo_t algo{};
    size_t workspace_bytes = 0;
    bool supported = false;
  };
  class Trial;
  static constexpr int kSuggestions = 16;

  /// All but the algorithm.
  Plan describe(const GemmKey& key) const;
  std::vector<cublasLtMatmulHeuristicResult_t> suggestions(Plan& plan, const GemmKey& key, int most);
  Plan suggested(const GemmKey& key);  ///< with the library's first algorithm, if it has any
  /// Throws a damaged-data error where the library refuses the algorithm.
  Plan chosen(const GemmKey& key, const std::string& algorithm) const;
  Plan& plan_of(const GemmKey& key);
  /// `result` in the place of the product's c, `workspace` of the plan's size.
  void multiply(Plan& plan, const Gemm& gemm, const MutView& result, void* workspace, Stream& stream);
  void run_and_finish(const Gemm& gemm, Stream& stream);
  std::string measure(const GemmKey& key, Stream& stream);
  static std::string text_of(const cublasLtMatmulAlgo_t& algo);

  Device& device_;
  CublasLt lt_;
  cublasLtHandle_t handle_ = nullptr;
  std::string device_name_;
  std::unordered_map<GemmKey, Plan, GemmKeyHash> plans_;
  std::map<std::string, std::string> choices_;  ///< in use, also of products not met yet
};

}  // namespace ashlar::cuda
