#pragma once

#include <memory>
#include <string>

#include "core/backend/checks.h"
#include "core/device/allocator.h"
#include "core/device/stream.h"

namespace ashlar {

/// A device's kernels, memory and streams. Callers use the methods listed in ASHLAR_KERNELS; each checks its arguments
/// against the contract (checks.h), does nothing when its `mode` is kSkip, and passes the rest to the backend's
/// `launch`. `launch` refuses only what this backend does not support, with an input_error that names the field. All
/// kernels are deterministic: equal inputs and thread count give equal bits. The memory of the views is device memory,
/// and must stay valid until the stream has executed the call.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string description() const = 0;  ///< one line for the log: device, threads, instruction set, GEMM path
  /// Measures, for about `seconds`, the rate in FLOP/s that this backend can reach in matrix products of `dtype`. Every
  /// "percent of peak" is relative to it.
  virtual double measure_peak(DType dtype, double seconds) = 0;
  virtual int64_t num_gemms() const = 0;  ///< matrix products so far, for reports
  virtual Allocator& allocator(MemoryKind kind) = 0;
  virtual std::unique_ptr<Stream> make_stream() = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
  /// Queue copies of contiguous memory between device and host. The host memory must not be used until the stream has
  /// executed the copy.
  virtual void copy_to_host(ConstView device, void* host, Stream& stream) = 0;
  virtual void copy_from_host(const void* host, MutView device, Stream& stream) = 0;
  /// Blocking copies: complete on return.
  void read(ConstView device, void* host, Stream& stream) {
    copy_to_host(device, host, stream);
    stream.synchronize();
  }
  void write(const void* host, MutView device, Stream& stream) {
    copy_from_host(host, device, stream);
    stream.synchronize();
  }

  /// The dtype in which the fused linear cross-entropy holds the logits of a model stored in `storage`: either
  /// `storage` or the accumulate dtype.
  virtual DType logits_dtype(DType storage) const = 0;
  /// The number of rows, at most N, whose logits the fused linear cross-entropy holds at a time.
  virtual int64_t loss_chunk_rows(int64_t N, int64_t V, DType storage) const = 0;

#define ASHLAR_CALL(name, Args)                     \
  void name(const Args& args, Stream& stream) {     \
    if (wanted(args)) launch_checked(args, stream); \
  }
  ASHLAR_KERNELS(ASHLAR_CALL)
#undef ASHLAR_CALL

 protected:
#define ASHLAR_LAUNCH(name, Args) virtual void launch(const Args& args, Stream& stream) = 0;
  ASHLAR_KERNELS(ASHLAR_LAUNCH)
#undef ASHLAR_LAUNCH

 private:
  template <typename Args>
  void launch_checked(const Args& args, Stream& stream) {
    check(args);
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
