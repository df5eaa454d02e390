#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/backend/attention.h"
#include "core/device/stream.h"
#include "kernels/cuda/attention/cudnn_contract.h"

/// Interface to cuDNN's attention, implemented in cudnn_graphs.cpp with cuDNN's C++ frontend.
namespace ashlar::cudnn {

/// Strides of the rows of a tensor: row t of sample b begins b * batch + t * row elements from its first.
struct Rows {
  int64_t batch = 0, row = 0;
  bool operator==(const Rows&) const = default;
};

/// The arguments of a plan; equal cases use one plan. Attention is causal, with T queries and T keys. The heads of a
/// row are adjacent, and query head h reads KV head floor(h*G/H).
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
/// Converts a case to text, "forward B=8 T=1024 H=12 G=12 D=64 scale=0.125 q=2359296/2304 ...", and back. Equal cases
/// have equal texts.
std::string text_of(const AttentionCase& c);
AttentionCase case_of(std::string_view text);  ///< damaged-data error for any other text

/// The memory of one call; lse is [B, H, T] fp32. A forward reads q, k, v and writes out, lse; a backward reads all of
/// them and dout, and writes dq, dk, dv.
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
  /// Queues the kernel. `workspace` is device memory of workspace_bytes(), aligned to 256. Throws a resource_error if
  /// it fails.
  virtual void run(const AttentionArrays& arrays, void* workspace, Stream& stream) = 0;
};

/// Makes plans with cuDNN for one device.
class AttentionPlanner {
 public:
  virtual ~AttentionPlanner() = default;
  virtual Library library() const = 0;
  /// Throws an input_error with cuDNN's message if it has no deterministic kernel for the case, and a resource_error if
  /// memory is exhausted or the device failed.
  virtual std::unique_ptr<AttentionPlan> make(const AttentionCase& wanted) = 0;
};

/// cuDNN on the thread's current CUDA device, of compute capability `sm` (90 is 9.0). Throws an input_error that says
/// what is missing and how to get it: the library, or cuDNN's frontend if the program was built without it.
std::unique_ptr<AttentionPlanner> make_planner(int sm);
/// cuDNN for a device that need not exist: its plans give their workspace sizes but cannot run. `properties` is cuDNN's
/// own description of a device in JSON (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION).
std::unique_ptr<AttentionPlanner> make_planner(std::string_view properties, int sm);

}  // namespace ashlar::cudnn
