#include "tests/mpi/checked_comm.h"

#include <array>
#include <functional>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace ashlar::comm {

/// What one rank sends another about its operation. For an all_to_all: what the two exchange.
struct CheckedComm::Signature {
  OperationInfo info;
  uint64_t parts = 0;  ///< hash of the ranges

  /// The operation of `rank` with respect to `peer`.
  struct Aspect {
    OperationKind kind;
    DType dtype, recv_dtype;
    int64_t size, recv_size;
    bool operator==(const Aspect&) const = default;
  };
  Aspect towards(int peer) const {
    const bool to = info.peer == peer, from = info.recv_peer == peer;
    if (info.kind == OperationKind::kAllToAll)
      return {info.kind, info.dtype, info.recv_dtype, info.size, info.recv_size};
    if (info.kind != OperationKind::kSendRecv) return {info.kind, info.dtype, DType{}, info.size, 0};
    if (to && from) return {info.kind, info.dtype, info.recv_dtype, info.size, info.recv_size};
    if (to) return {OperationKind::kSend, info.dtype, DType{}, info.size, 0};
    return {OperationKind::kRecv, info.recv_dtype, DType{}, info.recv_size, 0};
  }
  /// The matching aspect on the other side.
  static Aspect opposite(Aspect a) {
    if (a.kind == OperationKind::kSend) {
      a.kind = OperationKind::kRecv;
    } else if (a.kind == OperationKind::kRecv) {
      a.kind = OperationKind::kSend;
    } else if (a.kind == OperationKind::kSendRecv || a.kind == OperationKind::kAllToAll) {
      std::swap(a.dtype, a.recv_dtype);
      std::swap(a.size, a.recv_size);
    }
    return a;
  }
};

struct CheckedComm::Shared {
  std::unique_ptr<Communicator> inner;
  std::unique_ptr<Communicator> control;        ///< over the same ranks, for signatures
  std::deque<const CheckedOperation*> waiting;  ///< not started, in order of issue
  SynchronousStream host;                       ///< for signatures
};

namespace {

MutView bytes_of(void* data, int64_t size) { return {data, DType::kUInt8, 1, size, size}; }

bool is_message(OperationKind kind) {
  return kind == OperationKind::kSend || kind == OperationKind::kRecv || kind == OperationKind::kSendRecv;
}

}  // namespace

/// Signatures are exchanged at once; the operations start in the order of issue, each after its signatures agreed.
class CheckedComm::CheckedOperation final : public Operation {
 public:
  CheckedOperation(std::shared_ptr<Shared> shared, const Signature& mine, std::function<Work(Communicator&)> issue)
      : shared_(std::move(shared)), issue_(std::move(issue)) {
    const int me = shared_->inner->rank();
    if (!is_message(mine.info.kind)) {
      for (int peer = 0; peer < shared_->inner->size(); ++peer) {
        if (peer != me) peers_.push_back(peer);
      }
    } else {
      if (mine.info.peer != me) peers_.push_back(mine.info.peer);
      const int from = mine.info.recv_peer;
      if (mine.info.kind == OperationKind::kSendRecv && from != me && from != mine.info.peer) peers_.push_back(from);
    }
    mine_.assign(peers_.size(), mine);
    theirs_.resize(peers_.size());
    shared_->waiting.push_back(this);
  }
  ~CheckedOperation() override { std::erase(shared_->waiting, this); }

  /// For an all_to_all: each pair of ranks compares only what the two exchange.
  void compare_pairs(const AllToAll& args) {
    for (size_t i = 0; i < peers_.size(); ++i) {
      OperationInfo& info = mine_[i].info;
      info.peer = info.recv_peer = peers_[i];
      info.size = args.send_parts[static_cast<size_t>(peers_[i])].size();
      info.recv_size = args.recv_parts[static_cast<size_t>(peers_[i])].size();
    }
  }

  bool advance() override {
    if (!exchanging_) {
      exchanging_ = true;
      constexpr auto kBytes = static_cast<int64_t>(sizeof(Signature));
      for (size_t i = 0; i < peers_.size(); ++i) {
        exchanges_.push_back(shared_->control->send_recv({.send = bytes_of(&mine_[i], kBytes),
                                                          .to = peers_[i],
                                                          .recv = bytes_of(&theirs_[i], kBytes),
                                                          .from = peers_[i]},
                                                         shared_->host));
      }
    }
    if (!begun_) {
      for (const Work& exchange : exchanges_) {
        if (!exchange.ready()) return false;
      }
      compare();
      if (shared_->waiting.front() != this) return false;
      shared_->waiting.pop_front();
      begun_ = true;
      work_ = issue_(*shared_->inner);
    }
    return work_.ready();
  }
  bool received() const override { return begun_ && work_.received(); }
  bool stuck() const override { return begun_ && work_.stuck(); }

 private:
  void compare() {
    if (compared_) return;
    compared_ = true;
    const Communicator& inner = *shared_->inner;
    for (size_t i = 0; i < peers_.size(); ++i) {
      const Signature &mine = mine_[i], &other = theirs_[i];
      const bool collective = !is_message(mine.info.kind), pairs = mine.info.kind == OperationKind::kAllToAll;
      bool same = mine.towards(peers_[i]) == Signature::opposite(other.towards(inner.rank()));
      if (collective && !pairs && same) same = mine.info.op == other.info.op && mine.info.peer == other.info.peer;
      const bool same_parts = mine.parts == other.parts;
      if (same && (same_parts || !collective)) continue;
      std::erase(shared_->waiting, this);
      throw Bug(str_cat("[comm] rank ", inner.rank(), " issued ", describe(mine.info, inner.name()), "; rank ",
                        peers_[i], " issued ", describe(other.info, inner.name()), same ? " with other parts" : "",
                        ": the operations do not match"));
    }
  }

  std::shared_ptr<Shared> shared_;
  std::function<Work(Communicator&)> issue_;
  std::vector<int> peers_;
  std::vector<Signature> mine_, theirs_;  ///< by peer
  std::vector<Work> exchanges_;
  Work work_;
  bool exchanging_ = false, compared_ = false, begun_ = false;
};

CheckedComm::CheckedComm(std::unique_ptr<Communicator> inner)
    : Communicator(inner->rank(), inner->size(), inner->name(), inner->engine()), shared_(std::make_shared<Shared>()) {
  shared_->inner = std::move(inner);
  shared_->control = shared_->inner->host().split({.color = 0, .key = rank(), .name = name() + " check"});
}

Communicator::OperationPtr CheckedComm::make(const DeviceOperation& args, Stream& stream) {
  check_on_host(stream);
  Signature mine{.info = issuing()};
  DeviceOperation kept = args;
  std::vector<Range> parts, recv_parts;  // the operation starts later, so it owns what `args` refers to
  const auto keep_parts = [&](auto& a) {
    parts.assign(a.parts.begin(), a.parts.end());
    for (const Range& part : parts) {
      for (const int64_t end : {part.begin, part.end}) {
        mine.parts = (mine.parts ^ static_cast<uint64_t>(end)) * 0x9E3779B97F4A7C15ULL;
        mine.parts ^= mine.parts >> 29;
      }
    }
  };
  std::visit(Cases{[&](ReduceScatter& a) { keep_parts(a); }, [&](AllGather& a) { keep_parts(a); },
                   [&](AllToAll& a) {
                     parts.assign(a.send_parts.begin(), a.send_parts.end());
                     recv_parts.assign(a.recv_parts.begin(), a.recv_parts.end());
                   },
                   [](auto&) {}},
             kept);
  const auto issue = [kept, parts = std::move(parts), recv_parts = std::move(recv_parts),
                      &stream](Communicator& inner) mutable {
    std::visit(Cases{[&](ReduceScatter& a) { a.parts = parts; }, [&](AllGather& a) { a.parts = parts; },
                     [&](AllToAll& a) { a.send_parts = parts, a.recv_parts = recv_parts; }, [](auto&) {}},
               kept);
    return inner.issue(kept, stream);
  };
  auto operation = std::make_shared<CheckedOperation>(shared_, mine, issue);
  if (const auto* const pairs = std::get_if<AllToAll>(&args)) operation->compare_pairs(*pairs);
  return operation;
}

std::unique_ptr<Communicator> CheckedComm::make_split(const Split& args) {
  std::unique_ptr<Communicator> part = shared_->inner->split(args);
  if (part == nullptr || args.control) return part;
  return std::make_unique<CheckedComm>(std::move(part));
}

}  // namespace ashlar::comm
