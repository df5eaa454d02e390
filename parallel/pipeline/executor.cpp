#include "parallel/pipeline/executor.h"

#include <algorithm>
#include <list>
#include <map>
#include <tuple>

namespace ashlar::pipeline {

namespace {

/// Tensors on their way into and out of this stage.
class Mail {
 public:
  Mail(const Ctx& ctx, const Execution& e) : ctx_(ctx), e_(e) {}

  /// Keeps what an action made until its transfer.
  void put(const Message& message, const Tensor& tensor) {
    if (tensor) outgoing_.emplace(key(message), tensor);
  }
  /// What a transfer brought, once it is there.
  Tensor take(const Message& message) {
    const auto at = incoming_.find(key(message));
    ASHLAR_CHECK(at != incoming_.end(), "micro-batch ", message.micro_batch, " of chunk ", message.chunk,
                 " was used before its transfer");
    const Arriving arrived = std::move(at->second);
    incoming_.erase(at);
    if (arrived.transfer == nullptr) return arrived.tensor;
    arrived.transfer->work.wait_received(ctx_.stream);
    // The peer issued its side of what came before this, too, so that waiting for it costs nothing.
    const bool kept = std::find(under_way_.begin(), under_way_.end(), arrived.transfer) != under_way_.end();
    while (kept && under_way_to(arrived.transfer->peer) != arrived.transfer) release_oldest(arrived.transfer->peer);
    return arrived.tensor;
  }
  void transfer(const Action& a) {
    if (a.peer == e_.stages.rank()) {
      ASHLAR_CHECK(a.send && a.receive, "a stage's transfer to itself both sends and receives");
      incoming_.emplace(key(*a.receive), Arriving{.tensor = take_outgoing(*a.send), .transfer = nullptr});
      return;
    }
    auto transfer = std::make_shared<Transfer>();
    transfer->peer = a.peer;
    Tensor arriving;
    const auto to_peer = [&](const auto& other) { return other->peer == a.peer; };
    if (std::count_if(under_way_.begin(), under_way_.end(), to_peer) >= kMostUnderWay) release_oldest(a.peer);
    if (a.send) transfer->sent = take_outgoing(*a.send);
    if (a.receive) arriving = ctx_.empty(ctx_.dtype, e_.rows);
    const int peer = static_cast<int>(a.peer);
    if (a.send && a.receive) {
      transfer->work = e_.stages.send_recv(
          {.send = transfer->sent.view(), .to = peer, .recv = arriving.mut_view(), .from = peer}, ctx_.stream);
    } else if (a.send) {
      transfer->work = e_.stages.send({.data = transfer->sent.view(), .to = peer}, ctx_.stream);
    } else {
      transfer->work = e_.stages.recv({.data = arriving.mut_view(), .from = peer}, ctx_.stream);
    }
    if (a.receive) incoming_.emplace(key(*a.receive), Arriving{.tensor = arriving, .transfer = transfer});
    under_way_.push_back(std::move(transfer));
  }
  void finish() {
    for (const auto& transfer : under_way_) transfer->work.wait(ctx_.stream);
    ASHLAR_CHECK(incoming_.empty() && outgoing_.empty(), "the schedule left ", incoming_.size(), " tensors unused and ",
                 outgoing_.size(), " unsent");
  }

 private:
  /// Kept until a later point of the list that does not depend on when messages arrive: memory is used again at the
  /// same places in every step.
  struct Transfer {
    int64_t peer = 0;
    Tensor sent;
    comm::Work work;
  };
  struct Arriving {
    Tensor tensor;
    std::shared_ptr<Transfer> transfer;
  };
  using Key = std::tuple<Payload, int64_t, int64_t>;

  static Key key(const Message& m) { return {m.payload, m.micro_batch, m.chunk}; }

  Tensor take_outgoing(const Message& message) {
    const auto at = outgoing_.find(key(message));
    ASHLAR_CHECK(at != outgoing_.end(), "micro-batch ", message.micro_batch, " of chunk ", message.chunk,
                 " is sent before it is made");
    const Tensor tensor = at->second;
    outgoing_.erase(at);
    if (tensor.contiguous()) return tensor;
    const Tensor packed = ctx_.empty(tensor.dtype(), tensor.shape());
    ctx_.backend.copy({.src = tensor.view(), .dst = packed.mut_view()}, ctx_.stream);
    return packed;
  }
  /// The first transfer with `peer` that is still kept; null: none is.
  std::shared_ptr<Transfer> under_way_to(int64_t peer) const {
    const auto at = std::find_if(under_way_.begin(), under_way_.end(), [&](const auto& t) { return t->peer == peer; });
    return at == under_way_.end() ? nullptr : *at;
  }
  void release_oldest(int64_t peer) {
    const std::shared_ptr<Transfer> oldest = under_way_to(peer);
    oldest->work.wait(ctx_.stream);  // before what was sent is memory for others
    under_way_.remove(oldest);
  }

  /// With a peer that only takes; fewer than a stage's micro-batches in flight would hold its pipeline up.
  static constexpr int64_t kMostUnderWay = 16;

  const Ctx& ctx_;
  const Execution& e_;
  std::map<Key, Tensor> outgoing_;
  std::map<Key, Arriving> incoming_;
  std::list<std::shared_ptr<Transfer>> under_way_;
};

}  // namespace

void execute(const Ctx& ctx, const Execution& e) {
  const int64_t P = e.spec.stages, stage = e.stages.rank(), last = e.spec.chunks() - 1;
  ASHLAR_CHECK(e.stages.size() == P, e.stages.size(), " ranks for ", P, " stages");
  const bool training = e.spec.kind != ScheduleKind::kForwardOnly;
  Mail mail(ctx, e);
  const auto activation = [&](const Action& a) { return Message{Payload::kActivation, a.micro_batch, a.chunk}; };
  const auto gradient = [&](const Action& a) { return Message{Payload::kGradient, a.micro_batch, a.chunk}; };
  for (const Action& a : e.actions) {
    if (e.before) e.before(a);
    const int64_t chunk = model_chunk(stage, a.chunk, P);
    switch (a.kind) {
      case ActionKind::kForward: {
        const Tensor input = chunk == 0 ? Tensor() : mail.take(activation(a));
        mail.put(activation(a), e.runner.forward(a.chunk, a.micro_batch, input, training));
        break;
      }
      case ActionKind::kBackward:
      case ActionKind::kBackwardInput: {
        const Tensor grad = chunk == last ? Tensor() : mail.take(gradient(a));
        mail.put(gradient(a), e.runner.backward(a.chunk, a.micro_batch, grad, a.kind == ActionKind::kBackwardInput));
        break;
      }
      case ActionKind::kBackwardWeight: e.runner.backward_weight(a.chunk, a.micro_batch); break;
      case ActionKind::kTransfer: mail.transfer(a); break;
    }
    if (e.after) e.after(a);
    e.stages.progress();
  }
  mail.finish();
}

}  // namespace ashlar::pipeline
