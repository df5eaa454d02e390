#include "parallel/pipeline/executor.h"

#include <algorithm>
#include <list>
#include <map>
#include <tuple>

namespace ashlar::pipeline {

namespace {

/// The tensors that are being transferred into and out of this stage.
class StageTransfers {
 public:
  StageTransfers(const Ctx& ctx, const Execution& e) : ctx_(ctx), e_(e) {}

  /// Stores the output of an action until its transfer.
  void put(const Message& message, const BoundaryValues& values) {
    if (!values.empty()) outgoing_.emplace(key(message), values);
  }
  /// Returns the received tensors of a transfer, and makes the stream wait for them.
  BoundaryValues pop_incoming(const Message& message) {
    auto at = incoming_.extract(key(message));
    ASHLAR_CHECK(!at.empty(), "micro-batch ", message.micro_batch, " of chunk ", message.chunk,
                 " is used before its transfer");
    Arriving arrived = std::move(at.mapped());
    if (arrived.transfer == nullptr) return std::move(arrived.values);
    for (comm::Work& work : arrived.transfer->works) work.wait_received(ctx_.stream);
    // The peer has issued its side of all earlier transfers too, so waiting for them costs nothing.
    const bool kept = std::find(under_way_.begin(), under_way_.end(), arrived.transfer) != under_way_.end();
    while (kept && under_way_to(arrived.transfer->peer) != arrived.transfer) release_oldest(arrived.transfer->peer);
    return std::move(arrived.values);
  }
  void transfer(const Action& a) {
    if (a.peer == e_.stages.rank()) {
      ASHLAR_CHECK(a.send && a.receive, "a stage's transfer to itself must both send and receive");
      incoming_.emplace(key(*a.receive), Arriving{.values = pop_outgoing(*a.send), .transfer = nullptr});
      return;
    }
    auto transfer = std::make_shared<Transfer>();
    transfer->peer = a.peer;
    const auto to_peer = [&](const auto& other) { return other->peer == a.peer; };
    if (std::count_if(under_way_.begin(), under_way_.end(), to_peer) >= kMostUnderWay) release_oldest(a.peer);
    if (a.send) transfer->sent = pop_outgoing(*a.send);
    BoundaryValues arriving;
    const int peer = static_cast<int>(a.peer);
    for (size_t i = 0; i < e_.boundary.size(); ++i) {
      if (a.receive) arriving.push_back(ctx_.empty(ctx_.dtype, e_.boundary[i].shape));
      if (a.send && a.receive) {
        transfer->works.push_back(e_.stages.send_recv(
            {.send = transfer->sent[i].view(), .to = peer, .recv = arriving[i].mut_view(), .from = peer}, ctx_.stream));
      } else if (a.send) {
        transfer->works.push_back(e_.stages.send({.data = transfer->sent[i].view(), .to = peer}, ctx_.stream));
      } else {
        transfer->works.push_back(e_.stages.recv({.data = arriving[i].mut_view(), .from = peer}, ctx_.stream));
      }
    }
    if (a.receive) incoming_.emplace(key(*a.receive), Arriving{.values = std::move(arriving), .transfer = transfer});
    under_way_.push_back(std::move(transfer));
  }
  void finish() {
    for (const auto& transfer : under_way_) transfer->wait(ctx_.stream);
    ASHLAR_CHECK(incoming_.empty() && outgoing_.empty(), "the schedule left ", incoming_.size(),
                 " received tensors unused and ", outgoing_.size(), " unsent");
  }

 private:
  /// A started transfer. Its sent tensors are released at a fixed entry of the action list, regardless of when messages
  /// arrive, so that memory is reused at the same points in every step.
  struct Transfer {
    int64_t peer = 0;
    BoundaryValues sent;
    std::vector<comm::Work> works;  // one per boundary tensor

    void wait(Stream& stream) {
      for (comm::Work& work : works) work.wait(stream);
    }
  };
  struct Arriving {
    BoundaryValues values;
    std::shared_ptr<Transfer> transfer;
  };
  using Key = std::tuple<Payload, int64_t, int64_t>;

  static Key key(const Message& m) { return {m.payload, m.micro_batch, m.chunk}; }

  BoundaryValues pop_outgoing(const Message& message) {
    auto at = outgoing_.extract(key(message));
    ASHLAR_CHECK(!at.empty(), "micro-batch ", message.micro_batch, " of chunk ", message.chunk,
                 " is sent before it is computed");
    BoundaryValues values = std::move(at.mapped());
    ASHLAR_CHECK(values.size() == e_.boundary.size(), values.size(), " tensors, but the boundary has ",
                 e_.boundary.size());
    for (Tensor& tensor : values) {
      if (tensor.contiguous()) continue;
      const Tensor packed = ctx_.empty(tensor.dtype(), tensor.shape());
      ctx_.backend.copy({.src = tensor.view(), .dst = packed.mut_view()}, ctx_.stream);
      tensor = packed;
    }
    return values;
  }
  /// Returns the oldest unreleased transfer with `peer`; null if there is none.
  std::shared_ptr<Transfer> under_way_to(int64_t peer) const {
    const auto at = std::find_if(under_way_.begin(), under_way_.end(), [&](const auto& t) { return t->peer == peer; });
    return at == under_way_.end() ? nullptr : *at;
  }
  void release_oldest(int64_t peer) {
    const std::shared_ptr<Transfer> oldest = under_way_to(peer);
    oldest->wait(ctx_.stream);  // before the sent memory is reused
    under_way_.remove(oldest);
  }

  /// Limit on the unreleased transfers with one peer. A tensor that arrives from the peer releases the earlier
  /// transfers; if the peer only receives, this limit bounds their memory. A limit below the number of micro-batches in
  /// flight would stall the pipeline.
  static constexpr int64_t kMostUnderWay = 16;

  const Ctx& ctx_;
  const Execution& e_;
  std::map<Key, BoundaryValues> outgoing_;
  std::map<Key, Arriving> incoming_;
  std::list<std::shared_ptr<Transfer>> under_way_;
};

}  // namespace

void execute(const Ctx& ctx, const Execution& e) {
  const int64_t P = e.spec.stages, stage = e.stages.rank(), last = e.spec.chunks() - 1;
  ASHLAR_CHECK(e.stages.size() == P, "expected one rank per stage, got ", e.stages.size(), " ranks for ", P, " stages");
  const bool training = e.spec.kind != PipelineSchedule::kForwardOnly;
  StageTransfers transfers(ctx, e);
  const auto activation = [&](const Action& a) { return Message{Payload::kActivation, a.micro_batch, a.chunk}; };
  const auto gradient = [&](const Action& a) { return Message{Payload::kGradient, a.micro_batch, a.chunk}; };
  for (const Action& a : e.actions) {
    if (e.before) e.before(a);
    const int64_t chunk = model_chunk(stage, a.chunk, P);
    switch (a.kind) {
      case ActionKind::kForward: {
        const BoundaryValues inputs = chunk == 0 ? BoundaryValues() : transfers.pop_incoming(activation(a));
        transfers.put(activation(a), e.runner.forward(a.chunk, a.micro_batch, inputs, training));
        break;
      }
      case ActionKind::kBackward:
      case ActionKind::kBackwardInput: {
        const BoundaryValues grads = chunk == last ? BoundaryValues() : transfers.pop_incoming(gradient(a));
        transfers.put(gradient(a),
                      e.runner.backward(a.chunk, a.micro_batch, grads, a.kind == ActionKind::kBackwardInput));
        break;
      }
      case ActionKind::kBackwardWeight: e.runner.backward_weight(a.chunk, a.micro_batch); break;
      case ActionKind::kTransfer: transfers.transfer(a); break;
    }
    if (e.after) e.after(a);
    e.stages.progress();
  }
  transfers.finish();
}

}  // namespace ashlar::pipeline
