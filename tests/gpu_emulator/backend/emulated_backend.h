#pragma once

#include "kernels/cuda/cuda_backend.h"
#include "tests/gpu_emulator/backend/emulated_state.h"
#include "tests/gpu_emulator/views.h"

namespace ashlar::ASHLAR_DEV {

/// A backend of an emulated device, which is told what each call reads and writes, so that calls of two streams which
/// nothing orders are found whatever the chance: a Bug that names both. The views of an args struct say it all.
template <typename Base>
class Announcing final : public Base {
 public:
  using Base::Base;

 protected:
#define ASHLAR_LAUNCH(name, Args)                                                                                  \
  void launch(const Args& args, Stream& stream) override {                                                         \
    Base::launch(args, stream);                                                                                    \
    internal::announce(this->device(), #name, stream, [&](const auto& touch) {                                     \
      for_each_view(args, [&](const auto& view) { touch(view, std::is_same_v<decltype(view), const MutView&>); }); \
    });                                                                                                            \
  }
  ASHLAR_KERNELS(ASHLAR_LAUNCH)
#undef ASHLAR_LAUNCH
};

using EmulatedBackend = Announcing<CudaBackend>;

}  // namespace ashlar::ASHLAR_DEV
