#include "parallel/pipeline/chunk_runner.h"

namespace ashlar::pipeline {

ChunkRunner::ChunkRunner(const Ctx& ctx, std::span<const std::unique_ptr<model::Stage>> chunks,
                         std::span<const MicroBatch> micro_batches, const MutView& stats, RunnerHooks hooks)
    : ctx_(ctx), chunks_(chunks), micro_batches_(micro_batches), stats_(stats), hooks_(std::move(hooks)) {}

ChunkRunner::Flight& ChunkRunner::flight(int64_t chunk, int64_t micro_batch) {
  const auto at = flights_.find({chunk, micro_batch});
  ASHLAR_CHECK(at != flights_.end(), "micro-batch ", micro_batch, " is not in flight on chunk ", chunk);
  return at->second;
}

BoundaryValues ChunkRunner::forward(int64_t chunk, int64_t micro_batch, const BoundaryValues& inputs, bool training) {
  const model::Stage& stage = *chunks_[chunk];
  const MicroBatch& batch = micro_batches_[micro_batch];
  ASHLAR_CHECK(inputs.size() == (stage.range().embedding ? 0 : 1), inputs.size(), " inputs for chunk ", chunk,
               ", expected 1, or 0 with the embedding");
  const Tensor input = inputs.empty() ? Tensor() : inputs.front();
  Ctx ctx = ctx_;
  ctx.dropout.enabled = training;
  ctx.dropout.first_sample = batch.first_sample;
  ctx.dropout.sequence_length = batch.view.T;

  Flight flight;
  if (training) {
    flight.tape = std::make_unique<Tape>(ctx.backend, ctx.stream);
    ctx.tape = flight.tape.get();
  }
  const ValueInfo sent{.op = "the previous stage", .placement = stage.tensor_parallel().residual_stream()};
  if (input) flight.input = training ? flight.tape->leaf(input, sent) : Var{.value = input, .info = sent};
  Var x = input ? flight.input : stage.embed(ctx, batch.view);
  if (!input && hooks_.progress) hooks_.progress();
  if (!input && hooks_.after_block) hooks_.after_block(0, x.value);
  flight.output = stage.blocks(ctx, x, batch.view, hooks_.after_block, hooks_.progress);
  x.value = flight.input.value = {};  // the nodes of the tape keep the tensors that they need
  BoundaryValues result;
  if (stage.range().head && hooks_.at_head && !training) {
    hooks_.at_head(ctx, stage, micro_batch, flight.output.value);
  } else if (stage.range().head) {
    stage.loss(ctx, flight.output, batch.view, stats_);
  } else {
    result.push_back(flight.output.value);
  }
  flight.output.value = {};
  if (training) {
    const bool fresh = flights_.emplace(std::pair(chunk, micro_batch), std::move(flight)).second;
    ASHLAR_CHECK(fresh, "micro-batch ", micro_batch, " runs on chunk ", chunk, " twice");
  }
  return result;
}

BoundaryValues ChunkRunner::backward(int64_t chunk, int64_t micro_batch, const BoundaryValues& grads, bool defer) {
  Flight& f = flight(chunk, micro_batch);
  ASHLAR_CHECK(f.tape != nullptr, "backward of micro-batch ", micro_batch, " on chunk ", chunk, " ran already");
  for (const Tensor& grad : grads) f.tape->seed(f.output, grad);
  f.tape->backward(defer ? &f.work : nullptr, hooks_.after_node);
  BoundaryValues input_grads;
  if (f.input.requires_grad()) input_grads.push_back(f.tape->leaf_grad(f.input));
  f.tape.reset();
  if (!defer) flights_.erase({chunk, micro_batch});
  return input_grads;
}

void ChunkRunner::backward_weight(int64_t chunk, int64_t micro_batch) {
  Flight& f = flight(chunk, micro_batch);
  ASHLAR_CHECK(f.tape == nullptr, "weight backward of micro-batch ", micro_batch, " on chunk ", chunk,
               " before its input backward");
  f.work.run(hooks_.after_node);
  flights_.erase({chunk, micro_batch});
}

}  // namespace ashlar::pipeline
