#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/backend/checks.h"
#include "core/device/allocator.h"
#include "core/device/stream.h"

namespace ashlar {

/// Interface to a device: its kernels, memory and streams. ASHLAR_KERNELS (kernel_list.h) lists the kernel methods.
/// Each of them does nothing if the `mode` in its arguments is kSkip; otherwise it checks the arguments against their
/// contract (checks.h) and calls the backend's `launch`. If a backend does not support the value of a field, its
/// `launch` throws an input_error that names the field. All kernels are deterministic: equal inputs and an equal thread
/// count give equal bits. Views point to device memory, which must stay valid until the stream has executed the call.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string description() const = 0;  ///< one line for the log: device, threads, instruction set, GEMM method
  /// Returns the rate in FLOP/s that this backend can reach in matrix products of `dtype`, measured for about
  /// `seconds`. Every reported "percent of peak" is relative to this rate.
  virtual double measure_peak(DType dtype, double seconds) = 0;
  virtual int64_t num_gemms() const = 0;  ///< number of matrix products so far, for reports
  virtual Allocator& allocator(MemoryKind kind) = 0;
  virtual std::unique_ptr<Stream> make_stream() = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
  /// Queue a copy of contiguous memory between device and host. The host memory must not be used until the stream has
  /// executed the copy.
  virtual void copy_to_host(ConstView device, void* host, Stream& stream) = 0;
  virtual void copy_from_host(const void* host, MutView device, Stream& stream) = 0;
  /// Copy and wait until the copy is complete.
  void read(ConstView device, void* host, Stream& stream) {
    copy_to_host(device, host, stream);
    stream.synchronize();
  }
  void write(const void* host, MutView device, Stream& stream) {
    copy_from_host(host, device, stream);
    stream.synchronize();
  }

  /// Returns the dtype in which the fused linear cross-entropy stores its logits, for a model with this storage dtype:
  /// either `storage` or the accumulate dtype.
  virtual DType logits_dtype(DType storage) const = 0;
  /// Returns how many of N rows the fused linear cross-entropy processes at a time. V is the number of logits per row.
  virtual int64_t loss_chunk_rows(int64_t N, int64_t V, DType storage) const = 0;

#define ASHLAR_CALL(name, Args)                            \
  void name(const Args& args, Stream& stream) {            \
    if (wanted(args)) launch_checked(#name, args, stream); \
  }
  ASHLAR_KERNELS(ASHLAR_CALL)
#undef ASHLAR_CALL

 protected:
#define ASHLAR_LAUNCH(name, Args) virtual void launch(const Args& args, Stream& stream) = 0;
  ASHLAR_KERNELS(ASHLAR_LAUNCH)
#undef ASHLAR_LAUNCH

 private:
  template <typename Args>
  void launch_checked(std::string_view name, const Args& args, Stream& stream) {
    check(name, args);
    launch(args, stream);
  }
  template <typename Args>
  static bool wanted(const Args& args) {
    if constexpr (requires { args.mode; }) {
      return args.mode != GradMode::kSkip;
    } else {
      return true;
    }
  }
};

}  // namespace ashlar
