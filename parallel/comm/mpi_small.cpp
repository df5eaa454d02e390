// Two rounds, as in mpi_collectives.cpp, but blocks are forwarded by other ranks (Bruck et al. 1997):
//   collect: block i of rank r is the part of r's operand that rank r + i (modulo p) owns. In step k each rank sends
// one message to the rank 2^k ahead. It contains all blocks of which i has bit k set, both the rank's own blocks and
// blocks that it has received in earlier steps. A rank sends log2 p messages of about half the vector each. Then each
// owner adds the operands of its part in rank order.
//   all-gather: in step k rank r has the parts of ranks r to r + 2^k - 1 and sends them to rank r - 2^k (modulo p). In
// the last step it sends only the parts that the receiver does not have. A rank sends log2 p messages, in total about
// the bytes of the vector.
// p need not be a power of two. Parts may have different sizes, which every rank knows.
#include "parallel/comm/mpi_small.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "parallel/comm/mpi_messages.h"
#include "parallel/comm/rank_order.h"
#include "parallel/comm/rank_tree.h"

namespace ashlar::comm {

namespace {

using GroupPtr = std::shared_ptr<MpiGroup>;

class SmallCollective final : public Operation {
 public:
  SmallCollective(GroupPtr group, CollectivePlan plan)
      : group_(std::move(group)),
        plan_(std::move(plan)),
        number_(group_->collectives++),
        element_(size_of(plan_.dtype)),
        stride_(longest(plan_.parts) * element_) {}

  bool advance() override {
    while (messages_.test()) {
      if (!step()) return true;
    }
    return false;
  }

 private:
  enum class Round : uint8_t { kBegin, kCollect, kSpread };

  int64_t bytes(int rank) const { return plan_.parts[static_cast<size_t>(rank)].size() * element_; }
  int64_t offset(int rank) const { return plan_.parts[static_cast<size_t>(rank)].begin * element_; }
  int ahead(int distance) const { return (group_->rank + distance) % group_->size; }
  int behind(int distance) const { return (group_->rank + group_->size - distance) % group_->size; }

  /// Does the next step. Called when the messages of the previous step are complete. Returns false at the end of the
  /// operation.
  bool step() {
    switch (round_) {
      case Round::kBegin:
        if (plan_.reduce == ReduceOp{}) {
          begin_all_gather();
        } else {
          begin_collect();
        }
        return true;
      case Round::kCollect:
        if (passed_) unpack();
        if (distance_ < group_->size) {
          pass_on();
          return true;
        }
        add();
        if (plan_.gather_to == nullptr) return false;
        begin_all_gather();
        return true;
      case Round::kSpread:
        if (distance_ < group_->size) {
          all_gather();
          return true;
        }
        place_parts();
        return false;
    }
    return false;
  }

  // Returns the address of block i, whose destination is i ranks ahead of its origin.
  char* block(int i) { return blocks_.data() + stride_ * i; }

  void begin_collect() {
    round_ = Round::kCollect;
    distance_ = 1;
    blocks_.resize(static_cast<size_t>(stride_ * group_->size));
    for (int i = 0; i < group_->size; ++i) {
      if (bytes(ahead(i)) > 0) std::memcpy(block(i), plan_.in + offset(ahead(i)), static_cast<size_t>(bytes(ahead(i))));
    }
  }
  /// Calls visit(i, bytes) for each block i that leaves `rank` in the step that moves blocks by distance_ ranks. Block
  /// i has moved i % distance_ ranks so far; its destination is i - i % distance_ ranks ahead of `rank`.
  template <typename Visit>
  void for_each_passed(int rank, const Visit& visit) const {
    for (int i = distance_; i < group_->size; ++i) {
      if ((i & distance_) != 0) visit(i, bytes((rank + (i & ~(distance_ - 1))) % group_->size));
    }
  }
  void pass_on() {
    int64_t out = 0, in = 0;
    sent_.clear();
    for_each_passed(group_->rank, [&](int i, int64_t size) {
      sent_.insert(sent_.end(), block(i), block(i) + size);
      out += size;
    });
    for_each_passed(behind(distance_), [&](int, int64_t size) { in += size; });
    received_.resize(static_cast<size_t>(in));
    const int tag = group_->collective_tag(number_, 0);
    messages_.receive(*group_, received_.data(), in, behind(distance_), tag);
    messages_.send(*group_, sent_.data(), out, ahead(distance_), tag);
    passed_ = true;
    distance_ *= 2;
  }
  void unpack() {
    distance_ /= 2;
    const char* at = received_.data();
    for_each_passed(behind(distance_), [&](int i, int64_t size) {
      std::copy(at, at + size, block(i));
      at += size;
    });
    distance_ *= 2;
    passed_ = false;
  }
  void add() {
    std::vector<const void*> operands(static_cast<size_t>(group_->size));
    for (int rank = 0; rank < group_->size; ++rank) {
      operands[static_cast<size_t>(rank)] = block((group_->rank + group_->size - rank) % group_->size);
    }
    reduce_in_rank_order({.operands = operands,
                          .out = plan_.own,
                          .size = bytes(group_->rank) / element_,
                          .dtype = plan_.dtype,
                          .op = plan_.reduce});
  }

  // parts_ collects the part of this rank, followed by the parts of the ranks ahead, in order.
  void begin_all_gather() {
    round_ = Round::kSpread;
    distance_ = 1;
    int64_t all = 0;
    for (int rank = 0; rank < group_->size; ++rank) all += bytes(rank);
    parts_.resize(static_cast<size_t>(all));
    std::copy(plan_.own, plan_.own + bytes(group_->rank), parts_.data());
  }
  int64_t bytes_from(int rank, int count) const {
    int64_t sum = 0;
    for (int i = 0; i < count; ++i) sum += bytes((rank + i) % group_->size);
    return sum;
  }
  void all_gather() {
    const int count = std::min(distance_, group_->size - distance_);
    const int tag = group_->collective_tag(number_, 1);
    messages_.receive(*group_, parts_.data() + bytes_from(group_->rank, distance_), bytes_from(ahead(distance_), count),
                      ahead(distance_), tag);
    messages_.send(*group_, parts_.data(), bytes_from(group_->rank, count), behind(distance_), tag);
    distance_ *= 2;
  }
  void place_parts() {
    const char* at = parts_.data();
    for (int i = 0; i < group_->size; ++i) {
      const int64_t size = bytes(ahead(i));
      char* const to = plan_.gather_to + offset(ahead(i));
      if (i > 0 || to != plan_.own) std::copy(at, at + size, to);
      at += size;
    }
  }

  GroupPtr group_;
  CollectivePlan plan_;
  uint64_t number_;
  int64_t element_, stride_;
  Round round_ = Round::kBegin;
  int distance_ = 1;
  bool passed_ = false;  ///< true if received_ still has to be unpacked
  std::vector<char> blocks_, sent_, received_, parts_;
  MpiMessages messages_;
};

/// Broadcasts from the root along a binomial tree.
class TreeBroadcast final : public Operation {
 public:
  TreeBroadcast(GroupPtr group, const Broadcast& args)
      : group_(std::move(group)), args_(args), tag_(group_->collective_tag(group_->collectives++, 0)) {}

  bool advance() override {
    const int size = group_->size;
    const int64_t bytes = args_.data.size() * size_of(args_.data.dtype);
    const RankTree tree = RankTree::of((group_->rank + size - args_.root) % size, size);
    if (step_ == 0) {
      step_ = 1;
      if (tree.parent >= 0) {
        messages_.receive(*group_, args_.data.data, bytes, (tree.parent + args_.root) % size, tag_);
      }
    }
    if (!messages_.test()) return false;
    if (step_ == 1) {
      step_ = 2;
      for (const int child : tree.children) {
        messages_.send(*group_, args_.data.data, bytes, (child + args_.root) % size, tag_);
      }
    }
    return messages_.test();
  }

 private:
  GroupPtr group_;
  Broadcast args_;
  int tag_;
  int step_ = 0;
  MpiMessages messages_;
};

/// A dissemination barrier: after log2 p steps each rank has heard from every other rank, directly or indirectly.
class TreeBarrier final : public Operation {
 public:
  explicit TreeBarrier(GroupPtr group)
      : group_(std::move(group)), tag_(group_->collective_tag(group_->collectives++, 0)) {}

  bool advance() override {
    const int size = group_->size;
    while (messages_.test()) {
      if (distance_ >= size) return true;
      messages_.receive(*group_, &received_, 1, (group_->rank + size - distance_) % size, tag_);
      messages_.send(*group_, &sent_, 1, (group_->rank + distance_) % size, tag_);
      distance_ *= 2;
    }
    return false;
  }

 private:
  GroupPtr group_;
  int tag_;
  int distance_ = 1;
  char sent_ = 0, received_ = 0;
  MpiMessages messages_;
};

}  // namespace

bool is_small(const MpiGroup& group, int64_t bytes) {
  // With few ranks, these algorithms save few or no messages over sending directly to every other rank.
  return group.size >= group.tuning.small_ranks && bytes <= group.tuning.small_bytes;
}

bool is_small(const MpiGroup& group, std::span<const Range> parts, int64_t element_bytes) {
  return is_small(group, longest(parts) * element_bytes * group.size);
}

std::shared_ptr<Operation> mpi_small_collective(const GroupPtr& group, CollectivePlan plan) {
  return std::make_shared<SmallCollective>(group, std::move(plan));
}

std::shared_ptr<Operation> mpi_small_broadcast(const GroupPtr& group, const Broadcast& args) {
  return std::make_shared<TreeBroadcast>(group, args);
}

std::shared_ptr<Operation> mpi_barrier(const GroupPtr& group) { return std::make_shared<TreeBarrier>(group); }

}  // namespace ashlar::comm
