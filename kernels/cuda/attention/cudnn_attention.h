#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/backend/attention.h"
#include "core/device/stream.h"
#include "kernels/cuda/attention/cudnn_contract.h"

/// Interface to cuDNN's attention, implemented in cudnn_graphs.cpp with cuDNN's C++ frontend.
namespace ashlar::cudnn {

/// Strides of a tensor in elements: row t of sample b begins at element b * batch + t * row.
struct Rows {
  int64_t batch = 0, row = 0;
  bool operator==(const Rows&) const = default;
};

/// The properties of a call that determine its cuDNN plan; calls with equal cases share a plan. Attention is causal,
/// with T queries and T keys in each of B samples. It has H query heads and G KV heads of D columns; the heads of a row
/// are adjacent, and query head h reads KV head floor(h*G/H).
struct AttentionCase {
  int64_t B = 0, T = 0, H = 0, G = 0, D = 0;
  double scale = 1;
  Rows q, k, v, out;
  bool backward = false;
  Rows dout, dq, dk, dv;  ///< used by backward only
  bool operator==(const AttentionCase&) const = default;
};

AttentionCase case_of(const AttentionForward& args);
AttentionCase case_of(const AttentionBackward& args);
/// Converts a case to text, such as "forward B=8 T=1024 H=12 G=12 D=64 scale=0.125 q=2359296/2304 ...". Equal cases
/// have equal texts.
std::string text_of(const AttentionCase& c);
/// Converts a result of text_of back to a case. Throws a damaged-data error for any other text.
AttentionCase case_of(std::string_view text);

/// The device addresses of one call; lse is [B, H, T] fp32. A forward call reads q, k, v and writes out, lse. A
/// backward call reads q, k, v, out, lse and dout, and writes dq, dk, dv.
struct AttentionArrays {
  void *q, *k, *v, *out, *lse;
  void *dout = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;
};

AttentionArrays arrays_of(const AttentionForward& args);
AttentionArrays arrays_of(const AttentionBackward& args);

/// A kernel of cuDNN for one case. It gives the same bits each time it runs.
class AttentionPlan {
 public:
  virtual ~AttentionPlan() = default;
  virtual int64_t workspace_bytes() const = 0;
  /// Queues the kernel. `workspace` is device memory of workspace_bytes() bytes, aligned to 256 bytes. Throws a
  /// resource_error if cuDNN reports an error.
  virtual void run(const AttentionArrays& arrays, void* workspace, Stream& stream) = 0;
};

/// Makes plans with cuDNN for one device.
class AttentionPlanner {
 public:
  virtual ~AttentionPlanner() = default;
  virtual Library library() const = 0;
  /// Throws an input_error with cuDNN's message if cuDNN has no deterministic kernel for the case, and a resource_error
  /// if memory is exhausted or the device failed.
  virtual std::unique_ptr<AttentionPlan> make(const AttentionCase& wanted) = 0;
};

/// Returns a planner for the thread's current CUDA device, of compute capability `sm` (90 is 9.0). If cuDNN is missing,
/// or the program was built without cuDNN's frontend, throws an input_error that says how to get what is missing.
std::unique_ptr<AttentionPlanner> make_planner(int sm);
/// Returns a planner for a device that need not exist: the plans give their workspace sizes but cannot run.
/// `properties` is cuDNN's own description of a device in JSON (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION).
std::unique_ptr<AttentionPlanner> make_planner(std::string_view properties, int sm);

}  // namespace ashlar::cudnn
