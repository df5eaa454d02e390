#include "tests/stand_ins/nccl/kernel.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "core/base/bf16.h"
#include "core/base/strings.h"

namespace ashlar::stand_in {

using Kind = Call::Kind;

namespace {

constexpr int kCollective = 2, kMessage = 3;

template <typename T>
T combine(T a, T b, ncclRedOp_t op) {
  if (op == ncclSum) {
    if constexpr (std::is_same_v<T, int32_t>) {
      return static_cast<T>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
    } else {
      return static_cast<T>(a + b);
    }
  }
  if constexpr (std::is_same_v<T, int32_t>) {
    return std::max(a, b);
  } else {
    return std::fmax(a, b);
  }
}
BF16 combine(BF16 a, BF16 b, ncclRedOp_t op) { return BF16(combine(static_cast<float>(a), static_cast<float>(b), op)); }

/// A ring: the sum of a chunk begins behind its owner and ends there, with a rounding at each hop.
template <typename T>
void ring_sum(const std::vector<const char*>& operands, char* out, size_t begin, size_t end, size_t owner,
              ncclRedOp_t op) {
  const size_t p = operands.size();
  for (size_t i = begin; i < end; ++i) {
    T sum;
    std::memcpy(static_cast<void*>(&sum), operands[(owner + 1) % p] + i * sizeof(T), sizeof(T));
    for (size_t hop = 2; hop <= p; ++hop) {
      T next;
      std::memcpy(static_cast<void*>(&next), operands[(owner + hop) % p] + i * sizeof(T), sizeof(T));
      sum = combine(sum, next, op);
    }
    std::memcpy(out + i * sizeof(T), static_cast<const void*>(&sum), sizeof(T));
  }
}

void ring_sum(ncclDataType_t type, const std::vector<const char*>& operands, char* out, size_t begin, size_t end,
              size_t owner, ncclRedOp_t op) {
  switch (type) {
    case ncclFloat32: return ring_sum<float>(operands, out, begin, end, owner, op);
    case ncclFloat64: return ring_sum<double>(operands, out, begin, end, owner, op);
    case ncclBfloat16: return ring_sum<BF16>(operands, out, begin, end, owner, op);
    case ncclInt32: return ring_sum<int32_t>(operands, out, begin, end, owner, op);
    default: throw std::logic_error("[stand-in nccl] a sum of a type that nobody adds");
  }
}

}  // namespace

/// What a message says of the call that sends it, for the other side to compare.
struct Kernel::Header {
  Kind kind{};
  int32_t type = 0, op = 0, root = 0;
  uint64_t count = 0;
  uint64_t num_orders = 0;
  WindowPlace sent, received;  ///< of the buffers that begin at one place on all ranks
};

Kernel::Kernel(ncclComm& comm, const std::vector<Call>& calls)
    : comm_(comm), calls_(calls), done_(calls.size(), false), delay_(static_cast<int>(process().random() % 3)) {
  for (const ncclComm* other : process().comms)
    if (other != &comm) order_.emplace_back(other->id, other->collectives);
  for (const Call& call : calls_) {
    const auto peer = static_cast<size_t>(std::max(call.root, 0));
    if (call.kind == Kind::kSend) {
      numbers_.push_back(comm_.sent[peer]++);
    } else if (call.kind == Kind::kRecv) {
      numbers_.push_back(comm_.received[peer]++);
    } else {
      numbers_.push_back(comm_.collectives++);
    }
  }
}

Kernel::Header Kernel::header_of(size_t i) const {
  const Call& call = calls_[i];
  // What a rank has alone, such as its part of a gathered vector, lies where its part lies.
  const bool sends = call.kind == Kind::kAllReduce || call.kind == Kind::kReduceScatter || call.kind == Kind::kReduce;
  const bool receives = call.kind == Kind::kAllReduce || call.kind == Kind::kAllGather || call.kind == Kind::kBroadcast;
  return {.kind = call.is_message() ? Kind::kSend : call.kind,
          .type = call.type,
          .op = call.op,
          .root = call.is_message() ? -1 : call.root,
          .count = call.count,
          .num_orders = order_.size(),
          .sent = sends ? comm_.place_of(call.send) : WindowPlace{},
          .received = receives ? comm_.place_of(call.recv) : WindowPlace{}};
}

Post::Name Kernel::name_of_message(size_t i, int from) const {
  return {.comm = comm_.id,
          .sequence = calls_[i].is_message() ? kMessage : kCollective,
          .from = comm_.world[static_cast<size_t>(from)],
          .number = numbers_[i]};
}

void Kernel::send(size_t i) {
  const Call& call = calls_[i];
  const size_t size = size_of(call.type), bytes = call.count * size;
  const auto* const data = static_cast<const char*>(call.send);
  const auto to = [&](int peer, const char* from, size_t length) {
    const Header header = header_of(i);
    Post::Bytes message(sizeof(Header));
    std::memcpy(message.data(), &header, sizeof(Header));
    const auto* const orders = reinterpret_cast<const char*>(order_.data());
    message.insert(message.end(), orders, orders + order_.size() * sizeof(order_[0]));
    if (length > 0) message.insert(message.end(), from, from + length);
    process().post.send(comm_.world[static_cast<size_t>(peer)], name_of_message(i, comm_.rank), message);
  };
  if (call.kind == Kind::kRecv) return;
  if (call.kind == Kind::kSend) return to(call.root, data, bytes);
  for (int peer = 0; peer < comm_.size(); ++peer) {
    if (peer == comm_.rank) continue;
    switch (call.kind) {
      case Kind::kReduceScatter: to(peer, data + static_cast<size_t>(peer) * bytes, bytes); break;
      case Kind::kReduce: to(peer, data, peer == call.root ? bytes : 0); break;
      case Kind::kBroadcast: to(peer, data, comm_.rank == call.root ? bytes : 0); break;
      default: to(peer, data, bytes); break;
    }
  }
}

void Kernel::check(size_t i, int from, const Post::Bytes& bytes) const {
  const auto mismatch = [&](const std::string& theirs) {
    throw std::logic_error(str_cat("[stand-in nccl] rank ", comm_.rank, " called ", describe(calls_[i]), ", rank ",
                                   from, " ", theirs, ": with the real one they would wait for ever"));
  };
  Header theirs;
  std::memcpy(&theirs, bytes.data(), sizeof(Header));
  const Header mine = header_of(i);
  if (theirs.kind != mine.kind || theirs.type != mine.type || theirs.op != mine.op || theirs.root != mine.root ||
      theirs.count != mine.count) {
    mismatch(str_cat("called ", name_of(theirs.kind), " of ", theirs.count, " of type ", theirs.type));
  }
  if (calls_[i].is_message()) return;
  for (const auto& [here, there] : {std::pair(mine.sent, theirs.sent), std::pair(mine.received, theirs.received)}) {
    if (here == there) continue;
    const auto text = [](const WindowPlace& place) {
      return place.window < 0 ? std::string("outside the windows")
                              : str_cat("at byte ", place.offset, " of window ", place.window);
    };
    throw std::logic_error(str_cat("[stand-in nccl] the buffer of ", describe(calls_[i]), " lies ", text(here),
                                   " on rank ", comm_.rank, " and ", text(there), " on rank ", from,
                                   ": symmetric memory is at one place on all ranks"));
  }
  for (uint64_t k = 0; k < theirs.num_orders; ++k) {
    std::pair<uint64_t, uint64_t> other;
    std::memcpy(static_cast<void*>(&other), bytes.data() + sizeof(Header) + k * sizeof(other), sizeof(other));
    for (const auto& [id, count] : order_) {
      if (id == other.first && count != other.second)
        mismatch(str_cat("called it in another order: after ", other.second, " collectives of communicator ", id,
                         ", not ", count));
    }
  }
}

// Everybody's message must be there, as everybody's kernel must have begun; then the result is made at once.
bool Kernel::finish(size_t i) {
  const Call& call = calls_[i];
  const size_t bytes = call.count * size_of(call.type);
  const auto p = static_cast<size_t>(comm_.size());
  const auto me = static_cast<size_t>(comm_.rank);
  if (call.kind == Kind::kSend) return true;
  std::vector<int> from;
  for (int r = 0; r < comm_.size(); ++r) {
    if (call.kind == Kind::kRecv ? r == call.root : r != comm_.rank) from.push_back(r);
  }
  for (const int r : from) {
    if (process().post.look(name_of_message(i, r)) == nullptr) return false;
  }
  std::vector<Post::Bytes> messages(p);
  std::vector<const char*> content(p, nullptr);
  for (const int r : from) {
    const auto at = static_cast<size_t>(r);
    messages[at] = process().post.take(name_of_message(i, r));
    check(i, r, messages[at]);
    Header header;
    std::memcpy(&header, messages[at].data(), sizeof(Header));
    content[at] = messages[at].data() + sizeof(Header) + header.num_orders * sizeof(order_[0]);
  }
  auto* const out = static_cast<char*>(call.recv);
  const auto* const own = static_cast<const char*>(call.send);
  switch (call.kind) {
    case Kind::kAllReduce: {
      content[me] = own;
      const size_t chunk = (call.count + p - 1) / p;
      std::vector<char> result(bytes);
      for (size_t owner = 0; owner < p; ++owner)
        ring_sum(call.type, content, result.data(), std::min(owner * chunk, call.count),
                 std::min((owner + 1) * chunk, call.count), owner, call.op);
      std::memcpy(out, result.data(), bytes);
      break;
    }
    case Kind::kReduceScatter: content[me] = own + me * bytes; [[fallthrough]];
    case Kind::kReduce: {
      if (call.kind == Kind::kReduce) {
        if (comm_.rank != call.root) break;
        content[me] = own;
      }
      std::vector<char> result(bytes);
      ring_sum(call.type, content, result.data(), 0, call.count, me, call.op);
      std::memcpy(out, result.data(), bytes);
      break;
    }
    case Kind::kAllGather:
      for (size_t r = 0; r < p; ++r) {
        if (r == me && out + r * bytes == own) continue;
        std::memcpy(out + r * bytes, r == me ? own : content[r], bytes);
      }
      break;
    case Kind::kBroadcast: {
      const char* const source = comm_.rank == call.root ? own : content[static_cast<size_t>(call.root)];
      if (source != out) std::memcpy(out, source, bytes);
      break;
    }
    case Kind::kRecv: std::memcpy(out, content[static_cast<size_t>(call.root)], bytes); break;
    case Kind::kSend: break;
  }
  return true;
}

bool Kernel::step() {
  process().post.progress();
  if (delay_-- > 0) return false;
  if (!begun_) {
    begun_ = true;
    for (size_t i = 0; i < calls_.size(); ++i) send(i);
    process().post.progress();
  }
  bool all = true;
  for (size_t i = 0; i < calls_.size(); ++i) {
    if (!done_[i]) done_[i] = finish(i);
    all = all && done_[i];
  }
  return all;
}

}  // namespace ashlar::stand_in
