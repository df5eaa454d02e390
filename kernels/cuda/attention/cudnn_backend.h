#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/cuda/attention/cudnn_choice.h"
#include "kernels/cuda/attention/cudnn_self_test.h"
#include "kernels/cuda/cuda_backend.h"

namespace ashlar::ASHLAR_DEV {

/// Options of cuDNN's attention in a backend.
struct CudnnOptions {
  AttentionKernels wanted = AttentionKernels::kOwn;
  std::function<std::unique_ptr<cudnn::AttentionPlanner>()> make_planner;
  std::function<int64_t()> free_bytes;  ///< free memory of the device according to its driver
};

/// A CudaBackend that can compute attention with cuDNN. cudnn::AttentionChoice, a part of the backend's tuner, chooses
/// cuDNN or our own kernels for each call. cuDNN's workspace is scratch memory of the call's stream.
class CudnnBackend : public CudaBackend {
 public:
  /// Throws an input_error if cudnn.wanted is kCudnn and cuDNN cannot be used.
  CudnnBackend(const DeviceOptions& options, CudnnOptions cudnn) : CudaBackend(options) {
    if (cudnn.wanted == AttentionKernels::kOwn) return;
    choice_.emplace(cudnn::ChoiceOptions{
        .wanted = cudnn.wanted,
        .device = CudaBackend::description(),
        .make_planner = std::move(cudnn.make_planner),
        .free_bytes = [this, of_driver = std::move(cudnn.free_bytes)] { return of_driver() + free_in_arena(); },
        .test = [this](cudnn::AttentionPlan& plan, const cudnn::AttentionCase& asked) { return test(plan, asked); },
        .reserve = [this](Stream& stream, int64_t bytes) { device().scratch(stream, bytes); }});
  }

  Tuner* tuner() override {
    if (!choice_) return CudaBackend::tuner();
    if (!tuners_) {
      std::vector<Tuner*> parts{&*choice_};
      if (Tuner* const products = CudaBackend::tuner()) parts.insert(parts.begin(), products);
      tuners_.emplace(std::move(parts));
    }
    return &*tuners_;
  }

  /// Size of cuDNN's attention workspace in bytes. The workspace is a part of the memory of kind kWorkspace.
  int64_t attention_workspace_bytes() const { return choice_ ? choice_->workspace_bytes() : 0; }

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
    cudnn::AttentionPlan* const plan = choice_ && !testing_ ? choice_->serve(args, stream) : nullptr;
    if (plan == nullptr) return false;
    plan->run(cudnn::arrays_of(args), device().scratch(stream, plan->workspace_bytes()), stream);
    return true;
  }

  /// Number of bytes that the workspace allocator has taken from the device but that no block uses.
  int64_t free_in_arena() {
    const Allocator& memory = allocator(MemoryKind::kWorkspace);
    return memory.high_water_bytes() - memory.used_bytes();
  }

  std::string test(cudnn::AttentionPlan& plan, const cudnn::AttentionCase& asked) {
    struct Testing {  // during a test all attention calls of the backend use our own kernels
      bool& flag;
      explicit Testing(bool& f) : flag(f) { flag = true; }
      ~Testing() { flag = false; }
      Testing(const Testing&) = delete;
      Testing& operator=(const Testing&) = delete;
    } const testing(testing_);
    const std::unique_ptr<Stream> stream = make_stream();
    return cudnn::self_test(*this, plan, asked, *stream);
  }

  std::optional<cudnn::AttentionChoice> choice_;
  std::optional<JoinedTuners> tuners_;
  bool testing_ = false;
};

}  // namespace ashlar::ASHLAR_DEV
