#include "core/device/allocator.h"

#include "core/base/error.h"

namespace ashlar {

std::string_view name_of(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kParameters: return "parameters";
    case MemoryKind::kGradients: return "gradients";
    case MemoryKind::kOptimizer: return "optimizer";
    case MemoryKind::kActivations: return "activations";
    case MemoryKind::kWorkspace: return "workspace";
    case MemoryKind::kPinned: return "pinned";
  }
  throw Bug("[allocator] unknown memory kind");
}

}  // namespace ashlar
