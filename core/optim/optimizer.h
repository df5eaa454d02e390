#pragma once

#include <string>
#include <vector>

#include "core/backend/optimizer.h"
#include "core/nn/parameter.h"

namespace ashlar::optim {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0.1;
  bool decay_embeddings = true;  ///< token and position tables; matrices always decay, norms and biases never
};

/// The decay that a role gets.
double decay_of(nn::Role role, const AdamWOptions& options);

/// AdamW over all of a store's pieces: fp32 master weights (the values themselves when the storage is fp32 or fp64)
/// and two moments, in slabs laid out like the values.
class Optimizer {
 public:
  /// Allocates and zeroes the moments. Master weights start as garbage: call `initialize` or load them, then
  /// `publish`.
  Optimizer(const Ctx& ctx, nn::ParameterStore& store, const AdamWOptions& options);

  void initialize(const Ctx& ctx, uint64_t seed);  ///< initial weights into the master, then publish
  void publish(const Ctx& ctx);                    ///< values = master rounded once
  /// One update from the main gradients; scalars hold lr, corrections, clip scale and skip.
  void step(const Ctx& ctx);

  const Tensor& master() const { return master_; }
  const Tensor& m() const { return m_; }
  const Tensor& v() const { return v_; }
  const AdamWOptions& options() const { return options_; }

 private:
  nn::ParameterStore& store_;
  AdamWOptions options_;
  Tensor master_, m_, v_;
  bool separate_master_;
  std::vector<AdamWSegment> segments_;
};

/// Sums of squares of gradients.
struct GradNorm {
  double norm = 0;               ///< sqrt of the sum over all pieces
  std::string first_non_finite;  ///< name of the first piece (by name) whose sum is NaN or infinite; empty if none
  std::vector<double> squares;   ///< sum of squares of each piece, in the store's order
};

/// The norm of a slab laid out like the store's (gradients; any other for statistics), each element once: chunks of
/// 4096 from each piece's start, chunk sums added in order, pieces in global-name order, all in fp64.
GradNorm grad_norm(const Ctx& ctx, const nn::ParameterStore& store, const Tensor& slab);

/// Sum of squares of a contiguous tensor of any floating dtype, in fp64, chunks of 4096 added in order.
double sum_squares(const Ctx& ctx, const Tensor& t);

}  // namespace ashlar::optim
