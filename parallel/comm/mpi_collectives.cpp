// Each rank owns a part of the vector. Chunk k consists of the k-th slice of every part. Each chunk passes through up
// to two rounds:
//   1. collect: each rank receives its slice from all others and adds the operands in rank order (all_reduce,
// reduce_scatter), or receives it from the root (broadcast)
//   2. all-gather: each rank sends its slice to all others (all_reduce, all_gather, broadcast)
// With p ranks, each rank sends 2 (p-1)/p times the bytes of the vector in an all_reduce, and receives as many. In a
// reduce_scatter or an all_gather it sends and receives half as many. In a broadcast the root sends as much as in an
// all_reduce, and every other rank receives the vector once. No algorithm with rank-order sums sends less for an
// all_reduce. Messages are small enough that operands are still in the cache when they are added. A few chunks are in
// flight at once. A small all_reduce of few ranks sends whole operands instead: p / 2 times the bytes, but one round
// instead of two. Small vectors on many ranks use other algorithms (mpi_small.cpp).
#include "parallel/comm/mpi_collectives.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "parallel/comm/mpi_messages.h"
#include "parallel/comm/mpi_small.h"
#include "parallel/comm/rank_order.h"

namespace ashlar::comm {

namespace {

using GroupPtr = std::shared_ptr<MpiGroup>;

/// Calls visit(to, from) for each distance d = 1, 2, ...: `to` is the rank d ahead, `from` the rank d behind. So at
/// each distance every rank sends to a different rank, instead of all ranks to the same one.
template <typename Visit>
void for_each_peer(const MpiGroup& group, const Visit& visit) {
  for (int distance = 1; distance < group.size; ++distance) {
    visit((group.rank + distance) % group.size, (group.rank + group.size - distance) % group.size);
  }
}

/// A block of the staging pool, released by the destructor.
class Staging {
 public:
  Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() { give_back(); }
  void give_back() {
    if (block_) pool_->release(std::move(block_), std::exchange(bytes_, 0));
  }
  char* data(StagingPool& pool, int64_t bytes) {
    if (bytes > bytes_) {
      give_back();
      pool_ = &pool;
      std::tie(block_, bytes_) = pool.acquire(bytes);
    }
    return block_.get();
  }

 private:
  StagingPool* pool_ = nullptr;
  StagingPool::Block block_{nullptr, nullptr};
  int64_t bytes_ = 0;
};

/// An all_reduce that sends whole operands.
class DirectAllReduce final : public Operation {
 public:
  DirectAllReduce(GroupPtr group, const AllReduce& args)
      : group_(std::move(group)), args_(args), tag_(group_->collective_tag(group_->collectives++, 0)) {}

  bool advance() override {
    const int64_t bytes = args_.in.size() * size_of(args_.in.dtype);
    if (!started_) {
      started_ = true;
      char* const place = staging_.data(*group_->staging, bytes * group_->size);
      operands_.resize(static_cast<size_t>(group_->size));
      operands_[static_cast<size_t>(group_->rank)] = args_.in.data;
      for_each_peer(*group_, [&](int to, int from) {
        operands_[static_cast<size_t>(from)] = place + bytes * from;
        messages_.receive(*group_, place + bytes * from, bytes, from, tag_);
        messages_.send(*group_, args_.in.data, bytes, to, tag_);
      });
    }
    if (!messages_.test()) return false;
    reduce_in_rank_order({.operands = operands_,
                          .out = args_.out.data,
                          .size = args_.in.size(),
                          .dtype = args_.in.dtype,
                          .op = args_.op});
    return true;
  }

 private:
  GroupPtr group_;
  AllReduce args_;
  int tag_;
  bool started_ = false;
  Staging staging_;
  std::vector<const void*> operands_;
  MpiMessages messages_;
};

/// Sends one message per pair of ranks, directly between the buffers of the caller, without staging.
class DirectAllToAll final : public Operation {
 public:
  DirectAllToAll(GroupPtr group, const AllToAll& args)
      : group_(std::move(group)), tag_(group_->collective_tag(group_->collectives++, 0)) {
    for (size_t rank = 0; rank < args.send_parts.size(); ++rank) {
      sent_.push_back(part_of(args.send, args.send_parts[rank]));
      received_.push_back(part_of(args.recv, args.recv_parts[rank]));
    }
  }

  bool advance() override {
    if (!started_) {
      started_ = true;
      for_each_peer(*group_, [&](int to, int from) {
        const MutView& in = received_[static_cast<size_t>(from)];
        const ConstView& out = sent_[static_cast<size_t>(to)];
        messages_.receive(*group_, in.data, in.size() * size_of(in.dtype), from, tag_);
        messages_.send(*group_, out.data, out.size() * size_of(out.dtype), to, tag_);
      });
      const auto me = static_cast<size_t>(group_->rank);
      if (const int64_t bytes = sent_[me].size() * size_of(sent_[me].dtype); bytes > 0)
        std::memcpy(received_[me].data, sent_[me].data, static_cast<size_t>(bytes));
    }
    return messages_.test();
  }

 private:
  GroupPtr group_;
  std::vector<ConstView> sent_;
  std::vector<MutView> received_;
  int tag_;
  bool started_ = false;
  MpiMessages messages_;
};

class ChunkedOperation final : public Operation {
 public:
  ChunkedOperation(GroupPtr group, CollectivePlan plan)
      : group_(std::move(group)),
        plan_(std::move(plan)),
        number_(group_->collectives++),
        element_(size_of(plan_.dtype)),
        chunk_(chunk_elements(group_->tuning, group_->size, element_)),
        chunks_(num_chunks(plan_.parts, chunk_)),
        slots_(static_cast<size_t>(std::min(chunks_, group_->tuning.chunks_in_flight))) {}

  bool advance() override {
    for (bool moved = true; moved;) {
      moved = false;
      for (Slot& slot : slots_) moved = advance(slot) || moved;
    }
    return finished_ == chunks_;
  }

 private:
  enum class Step : uint8_t { kFree, kSent, kCollecting, kCollected, kSpreading };
  struct Slot {
    Step step = Step::kFree;
    int64_t chunk = 0;
    MpiMessages messages;
    Staging staging;
    std::vector<const void*> operands;
  };

  // Both rounds start in chunk order on every rank, so that messages with the same tag match in order.
  bool advance(Slot& slot) {
    switch (slot.step) {
      case Step::kFree:
        if (next_ == chunks_) return false;
        slot.chunk = next_++;
        send_operands(slot);
        slot.step = Step::kSent;
        return true;
      case Step::kSent:
        if (plan_.reduce != ReduceOp{} &&
            !group_->staging->has_room_for(bytes(group_->rank, slot.chunk) * group_->size))
          return false;
        collect(slot);
        slot.step = Step::kCollecting;
        return true;
      case Step::kCollecting:
        if (!slot.messages.test()) return false;
        add(slot);
        slot.step = Step::kCollected;
        return true;
      case Step::kCollected:
        if (slot.chunk != spread_) return false;
        ++spread_;
        if (plan_.gather_to != nullptr) all_gather(slot);
        slot.step = Step::kSpreading;
        return true;
      case Step::kSpreading:
        if (!slot.messages.test()) return false;
        ++finished_;
        slot.step = Step::kFree;
        return true;
    }
    return false;
  }

  /// Returns the number of elements of one slice. Staging one chunk takes one slice per rank, and should take at most
  /// 4 * chunk_bytes. With up to four ranks a slice therefore has chunk_bytes bytes; with more ranks it has 4 *
  /// chunk_bytes / ranks, but never less than least_chunk_bytes. Only at this minimum can staging take more.
  static int64_t chunk_elements(const Tuning& tuning, int ranks, int64_t element) {
    const int64_t share = std::max(4 * tuning.chunk_bytes / ranks, tuning.least_chunk_bytes);
    return std::max<int64_t>(1, std::min(tuning.chunk_bytes, share) / element);
  }

  Range part(int rank) const { return plan_.parts[static_cast<size_t>(rank)]; }
  Range slice(int rank, int64_t chunk) const { return chunk_of(part(rank), chunk, chunk_); }
  int64_t bytes(int rank, int64_t chunk) const { return slice(rank, chunk).size() * element_; }
  int64_t offset(int rank, int64_t chunk) const { return slice(rank, chunk).begin * element_; }
  char* own(int64_t chunk) const {
    return plan_.own + (slice(group_->rank, chunk).begin - part(group_->rank).begin) * element_;
  }

  void send_operands(Slot& slot) {
    const int me = group_->rank, tag = group_->collective_tag(number_, 0);
    if (plan_.reduce == ReduceOp{} && plan_.root != me) return;
    for_each_peer(*group_, [&](int to, int) {
      slot.messages.send(*group_, plan_.in + offset(to, slot.chunk), bytes(to, slot.chunk), to, tag);
    });
  }

  void collect(Slot& slot) {
    const int me = group_->rank, tag = group_->collective_tag(number_, 0);
    const int64_t mine = bytes(me, slot.chunk);
    if (plan_.reduce != ReduceOp{}) {
      char* const place = slot.staging.data(*group_->staging, mine * group_->size);
      slot.operands.assign(static_cast<size_t>(group_->size), nullptr);
      slot.operands[static_cast<size_t>(me)] = plan_.in + offset(me, slot.chunk);
      for_each_peer(*group_, [&](int, int from) {
        slot.operands[static_cast<size_t>(from)] = place + mine * from;
        slot.messages.receive(*group_, place + mine * from, mine, from, tag);
      });
    } else if (plan_.root >= 0 && plan_.root != me) {
      slot.messages.receive(*group_, own(slot.chunk), mine, plan_.root, tag);
    }
  }

  void add(Slot& slot) {
    if (plan_.reduce == ReduceOp{}) return;
    reduce_in_rank_order({.operands = slot.operands,
                          .out = own(slot.chunk),
                          .size = slice(group_->rank, slot.chunk).size(),
                          .dtype = plan_.dtype,
                          .op = plan_.reduce});
    slot.staging.give_back();
  }

  // The root of a broadcast has all parts already, so it receives none.
  void all_gather(Slot& slot) {
    const int me = group_->rank, tag = group_->collective_tag(number_, 1);
    for_each_peer(*group_, [&](int to, int from) {
      if (plan_.root != me) {
        slot.messages.receive(*group_, plan_.gather_to + offset(from, slot.chunk), bytes(from, slot.chunk), from, tag);
      }
      if (plan_.root != to) slot.messages.send(*group_, own(slot.chunk), bytes(me, slot.chunk), to, tag);
    });
  }

  GroupPtr group_;
  CollectivePlan plan_;
  uint64_t number_;
  int64_t element_, chunk_, chunks_;
  int64_t next_ = 0, spread_ = 0, finished_ = 0;
  std::vector<Slot> slots_;
};

// Returns the default parts of an operation; each starts at a multiple of 64 bytes.
std::vector<Range> own_parts(const MpiGroup& group, int64_t size, DType dtype) {
  return even_ranges(size, group.size, 64 / size_of(dtype));
}

std::shared_ptr<Operation> start(const GroupPtr& group, bool small, CollectivePlan plan) {
  if (small) return mpi_small_collective(group, std::move(plan));
  return std::make_shared<ChunkedOperation>(group, std::move(plan));
}

}  // namespace

std::shared_ptr<Operation> mpi_all_reduce(const GroupPtr& group, const AllReduce& args) {
  const int64_t size = args.in.size(), bytes = size * size_of(args.in.dtype);
  // If a sum of int32 overflows, each rank that adds the operands throws a Bug. So a small all_reduce of int32 is
  // direct: every rank then adds all operands, and all ranks throw.
  const bool direct = args.in.dtype == DType::kInt32 && group->tuning.direct_bytes > 0;
  const bool small = !direct && is_small(*group, bytes);
  if (!small && bytes * (group->size - 1) <= group->tuning.direct_bytes) {
    return std::make_shared<DirectAllReduce>(group, args);
  }
  CollectivePlan plan{.parts = small ? even_ranges(size, group->size) : own_parts(*group, size, args.in.dtype),
                      .dtype = args.in.dtype,
                      .reduce = args.op,
                      .in = static_cast<const char*>(args.in.data),
                      .gather_to = static_cast<char*>(args.out.data)};
  plan.own = static_cast<char*>(part_of(args.out, plan.parts[static_cast<size_t>(group->rank)]).data);
  return start(group, small, std::move(plan));
}

std::shared_ptr<Operation> mpi_reduce_scatter(const GroupPtr& group, const ReduceScatter& args) {
  return start(group, is_small(*group, args.parts, size_of(args.in.dtype)),
               {.parts = {args.parts.begin(), args.parts.end()},
                .dtype = args.in.dtype,
                .reduce = ReduceOp::kSum,
                .in = static_cast<const char*>(args.in.data),
                .own = static_cast<char*>(args.out.data)});
}

std::shared_ptr<Operation> mpi_all_gather(const GroupPtr& group, const AllGather& args) {
  char* const place = static_cast<char*>(part_of(args.out, args.parts[static_cast<size_t>(group->rank)]).data);
  if (place != args.in.data && args.in.size() > 0) {
    std::memcpy(place, args.in.data, static_cast<size_t>(args.in.size() * size_of(args.in.dtype)));
  }
  return start(group, is_small(*group, args.parts, size_of(args.in.dtype)),
               {.parts = {args.parts.begin(), args.parts.end()},
                .dtype = args.in.dtype,
                .own = place,
                .gather_to = static_cast<char*>(args.out.data)});
}

std::shared_ptr<Operation> mpi_all_to_all(const GroupPtr& group, const AllToAll& args) {
  return std::make_shared<DirectAllToAll>(group, args);
}

std::shared_ptr<Operation> mpi_broadcast(const GroupPtr& group, const Broadcast& args) {
  if (is_small(*group, args.data.size() * size_of(args.data.dtype))) return mpi_small_broadcast(group, args);
  CollectivePlan plan{.parts = own_parts(*group, args.data.size(), args.data.dtype),
                      .dtype = args.data.dtype,
                      .root = args.root,
                      .in = static_cast<const char*>(args.data.data),
                      .gather_to = static_cast<char*>(args.data.data)};
  plan.own = static_cast<char*>(part_of(args.data, plan.parts[static_cast<size_t>(group->rank)]).data);
  return std::make_shared<ChunkedOperation>(group, std::move(plan));
}

}  // namespace ashlar::comm
