#pragma once

#include <memory>
#include <string>

#include "core/backend/activation.h"
#include "core/backend/attention.h"
#include "core/backend/elementwise.h"
#include "core/backend/embedding.h"
#include "core/backend/linear.h"
#include "core/backend/loss.h"
#include "core/backend/norm.h"
#include "core/backend/optimizer.h"
#include "core/backend/rope.h"
#include "core/device/allocator.h"
#include "core/device/stream.h"

namespace ashlar {

/// Every kernel of the system. A pure virtual exists once a CPU kernel does; a field a backend does not serve yet
/// makes it throw and name the field. All kernels are deterministic: same inputs and thread count, same bits.
/// Pointers and views must stay valid until the stream has passed the call.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string description() const = 0;  ///< one line for the log: device, threads, instruction set, GEMM path
  virtual int64_t num_gemms() const = 0;        ///< matrix products so far, for reports
  virtual Allocator& allocator(MemoryKind kind) = 0;
  virtual std::unique_ptr<Stream> make_stream() = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
  virtual void copy_to_host(ConstView device, void* host, Stream& stream) = 0;        ///< contiguous; synchronises
  virtual void copy_from_host(const void* host, MutView device, Stream& stream) = 0;  ///< contiguous; synchronises

  virtual void linear_forward(const LinearForward& args, Stream& stream) = 0;
  virtual void linear_backward_input(const LinearBackwardInput& args, Stream& stream) = 0;
  virtual void linear_backward_weight(const LinearBackwardWeight& args, Stream& stream) = 0;
  virtual void norm_forward(const NormForward& args, Stream& stream) = 0;
  virtual void norm_backward(const NormBackward& args, Stream& stream) = 0;
  virtual void norm_row_stats(const NormRowStats& args, Stream& stream) = 0;
  virtual void norm_apply(const NormApply& args, Stream& stream) = 0;
  virtual void norm_backward_row_sums(const NormBackwardRowSums& args, Stream& stream) = 0;
  virtual void norm_backward_apply(const NormBackwardApply& args, Stream& stream) = 0;
  virtual void activation_forward(const ActivationForward& args, Stream& stream) = 0;
  virtual void activation_backward(const ActivationBackward& args, Stream& stream) = 0;
  virtual void rope(const Rope& args, Stream& stream) = 0;
  virtual void attention_forward(const AttentionForward& args, Stream& stream) = 0;
  virtual void attention_backward(const AttentionBackward& args, Stream& stream) = 0;
  virtual void embedding_forward(const EmbeddingForward& args, Stream& stream) = 0;
  virtual void embedding_backward(const EmbeddingBackward& args, Stream& stream) = 0;
  virtual void loss_row_max(const LossRowMax& args, Stream& stream) = 0;
  virtual void loss_row_sums(const LossRowSums& args, Stream& stream) = 0;
  virtual void loss_reduce(const LossReduce& args, Stream& stream) = 0;
  virtual void loss_backward(const LossBackward& args, Stream& stream) = 0;
  virtual void residual_forward(const ResidualForward& args, Stream& stream) = 0;
  virtual void dropout_backward(const DropoutBackward& args, Stream& stream) = 0;
  virtual void copy(const Copy& args, Stream& stream) = 0;
  virtual void fill(const Fill& args, Stream& stream) = 0;
  virtual void random_fill(const RandomFill& args, Stream& stream) = 0;
  virtual void adamw(const AdamW& args, Stream& stream) = 0;
  virtual void sum_squares(const SumSquares& args, Stream& stream) = 0;
};

}  // namespace ashlar
