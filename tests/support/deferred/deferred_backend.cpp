#include "tests/support/deferred/deferred_backend.h"

#include <utility>

namespace ashlar::testing {

DeferredBackend::DeferredBackend(std::unique_ptr<Backend> inner, uint64_t seed)
    : inner_(std::move(inner)),
      inner_stream_(inner_->make_stream()),
      // What copies use is the host's, and any of its memory may be.
      gpu_({.name = "deferred device", .seed = seed, .all_host_memory_is_pinned = true}) {
  for (auto& kind : memory_) kind.emplace(gpu_.memory());
}

DeferredBackend::~DeferredBackend() = default;

std::string DeferredBackend::description() const { return str_cat("deferred ", inner_->description()); }

Allocator& DeferredBackend::allocator(MemoryKind kind) {
  if (kind == MemoryKind::kPinned) return inner_->allocator(kind);
  return *memory_[static_cast<size_t>(kind)];
}

std::unique_ptr<Event> DeferredBackend::make_event() { return gpu_.make_event(); }

void DeferredBackend::observe(std::function<void(const std::string& name)> observer) {
  if (!observer) return gpu_.queues().observe({});
  gpu_.queues().observe([observer = std::move(observer)](int stream, std::string_view name) {
    if (stream == 0) observer(std::string(name));
  });
}

void DeferredBackend::copy_to_host(ConstView device, void* host, Stream& stream) {
  gpu_.copy({.name = "copy_to_host", .to = host, .from = device.data, .bytes = device.size() * size_of(device.dtype)},
            stream);
}

void DeferredBackend::copy_from_host(const void* host, MutView device, Stream& stream) {
  gpu_.copy({.name = "copy_from_host", .to = device.data, .from = host, .bytes = device.size() * size_of(device.dtype)},
            stream);
}

}  // namespace ashlar::testing
