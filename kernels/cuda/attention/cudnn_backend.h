#pragma once

#include <memory>
#include <utility>

#include "kernels/cuda/attention/cudnn_choice.h"
#include "kernels/cuda/cuda_backend.h"

namespace ashlar::ASHLAR_DEV {

/// The backend, with cuDNN's attention for calls of one shape once it is told so; all other calls are the backend's.
class CudnnBackend : public CudaBackend {
 public:
  using CudaBackend::CudaBackend;

  /// Calls of the prepared shape are cuDNN's from now on. Its workspace is the stream's scratch memory, taken now for
  /// `stream`, so that no step allocates.
  void serve_attention(std::unique_ptr<cudnn::PreparedAttention> prepared, Stream& stream) {
    device().scratch(stream, prepared->workspace_bytes());
    prepared_ = std::move(prepared);
  }

 protected:
  using CudaBackend::launch;
  void launch(const AttentionForward& args, Stream& stream) override {
    if (!served(args, stream)) CudaBackend::launch(args, stream);
  }
  void launch(const AttentionBackward& args, Stream& stream) override {
    if (!served(args, stream)) CudaBackend::launch(args, stream);
  }

 private:
  template <typename Args>
  bool served(const Args& args, Stream& stream) {
    cudnn::AttentionPlan* const plan = prepared_ != nullptr ? prepared_->plan_for(args) : nullptr;
    if (plan == nullptr) return false;
    plan->run(cudnn::arrays_of(args), device().scratch(stream, plan->workspace_bytes()), stream);
    return true;
  }

  std::unique_ptr<cudnn::PreparedAttention> prepared_;
};

}  // namespace ashlar::ASHLAR_DEV
