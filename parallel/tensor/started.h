#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "core/autograd/tape.h"
#include "parallel/comm/communicator.h"

namespace ashlar::tensor {

/// A pending collective with its buffers.
class Collective {
 public:
  /// `finish`, if given, computes the result from the received buffer.
  Collective(Tensor in, Tensor out, comm::Work work, std::function<Tensor(Tensor)> finish = {})
      : in_(std::move(in)), out_(std::move(out)), work_(std::move(work)), finish_(std::move(finish)) {}
  /// Makes later work of the stream wait for the result, and returns the result. Call it only once.
  Tensor wait(Stream& stream) {
    work_.wait(stream);
    in_ = {};
    return finish_ ? finish_(std::move(out_)) : std::move(out_);
  }

 private:
  Tensor in_, out_;
  comm::Work work_;
  std::function<Tensor(Tensor)> finish_;
};
using Started = std::shared_ptr<Collective>;

/// Returns the values of t in contiguous memory: t itself, or a copy if it is a column slice.
Tensor packed(const Ctx& ctx, Tensor t);

/// Records on the tape that y was computed from x. In backward, `start` gets the gradient of y and starts the
/// collective that computes the gradient of x.
Var record_collective(const Ctx& ctx, const ValueInfo& info, const Var& x, const Tensor& y,
                      std::function<Started(Tensor dy)> start);

}  // namespace ashlar::tensor
