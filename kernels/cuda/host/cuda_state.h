#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/device/memory_source.h"
#include "kernels/cuda/host/device.h"

/// The state of a GPU, for the host files of the `cuda` namespace.
namespace ashlar::ASHLAR_DEV {

/// Checks the CUDA calls of one device, and throws the errors of failed calls.
class DeviceCalls {
 public:
  /// Sets the name of the device in error messages.
  void name_device(std::string name) { device_ = std::move(name); }
  void set_ordinal(int ordinal) { ordinal_ = ordinal; }
  /// Makes the device that of the calling thread. On a thread without one, the runtime takes device 0, where it makes a
  /// context that costs some hundred MiB. An error is left to the call for which this is done, whose name says more.
  void use_device() const { static_cast<void>(cudaSetDevice(ordinal_)); }
  /// Records the name of work that was just queued, for error messages. `name` must be a string literal.
  void queued(const char* name) { last_[static_cast<size_t>(count_++) % last_.size()] = name; }
  /// Throws if the call failed: resource_error when out of memory or the hardware failed, else a Bug. Errors of queued
  /// work are returned by later calls, so the error text names the last queued work.
  void check(cudaError_t status, const char* call) const {
    if (status != cudaSuccess) [[unlikely]]
      fail(status, call);
  }

 private:
  [[noreturn]] void fail(cudaError_t status, const char* call) const;
  std::string last_work() const;

  std::string device_ = "no device yet";
  int ordinal_ = 0;
  std::array<const char*, 8> last_{};
  int64_t count_ = 0;
};

/// A first-fit allocator in slabs of device (or pinned) memory. Slabs are freed only by the destructor and by
/// give_back_since, so a step that allocates the same sizes as the step before gets the same addresses without driver
/// calls. A released block may be reused while queued work still uses it; the new user must be ordered after that work,
/// by stream or event.
class SlabAllocator final : public Allocator {
 public:
  /// `max_bytes` limits the device memory of all allocators of a device together; 0 = no limit. `taken` counts the
  /// bytes of device memory that these allocators have taken.
  SlabAllocator(const DeviceCalls& calls, bool pinned, int64_t max_bytes, int64_t& taken);
  ~SlabAllocator() override;
  /// Later slabs come from `source`, or from the driver if the source has no memory.
  void set_memory_source(std::shared_ptr<MemorySource> source) { source_ = std::move(source); }
  SlabAllocator(const SlabAllocator&) = delete;
  SlabAllocator& operator=(const SlabAllocator&) = delete;

  void* allocate(int64_t bytes) override;
  void release(void* block) override;
  int64_t used_bytes() const override { return used_; }
  int64_t high_water_bytes() const override { return most_taken_; }
  int64_t num_system_calls() const override { return static_cast<int64_t>(slabs_.size()); }
  /// Frees the slabs that are empty, of those taken since num_system_calls() was `calls`. No queued work may use them.
  void give_back_since(int64_t calls);

 private:
  struct Slab {
    char* base = nullptr;  ///< null: given back
    int64_t bytes = 0;
    std::map<int64_t, int64_t> free;       ///< free ranges, offset -> bytes; adjacent ones are merged
    std::shared_ptr<MemorySource> source;  ///< null if the slab is from the driver
  };
  struct Live {
    size_t slab;
    int64_t size;
  };
  void grow(int64_t size);
  void free_memory(const Slab& slab) const;

  const DeviceCalls& calls_;
  const bool pinned_;
  const int64_t max_bytes_;
  int64_t& taken_of_device_;
  std::shared_ptr<MemorySource> source_;
  std::vector<Slab> slabs_;
  std::unordered_map<char*, Live> live_;
  int64_t used_ = 0, taken_ = 0, most_taken_ = 0;
};

struct Device::State {
  DeviceCalls calls;
  cudaDeviceProp properties{};
  int ordinal = 0;
  int64_t taken_bytes = 0;  ///< device memory used by all allocators
  /// Bytes of dynamic shared memory that each kernel was allowed on this device.
  std::unordered_map<const void*, int64_t> shared_bytes_of_kernels;
  std::array<std::optional<SlabAllocator>, kNumMemoryKinds> allocators;
};

/// Returns "device 1 (NVIDIA H100 80GB HBM3, GPU-...)", with the name and the UUID as nvidia-smi writes them.
std::string name_of_device(const cudaDeviceProp& properties, int ordinal);
std::string uuid_text(const cudaUUID_t& uuid);

/// Returns the number of visible devices, at least one. Throws a one-line input_error if there is no driver, the driver
/// is too old for this program, there is no device, or the CUDA runtime does not start.
int count_devices();

/// Makes the device current, creates its context, and returns its properties. Throws for the same reasons as
/// count_devices, and if this device is missing or too old.
cudaDeviceProp open_device(int ordinal);

}  // namespace ashlar::ASHLAR_DEV
