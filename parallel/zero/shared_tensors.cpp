#include "parallel/zero/shared_tensors.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_join.h"
#include "core/device/stream.h"

namespace ashlar::zero {

namespace {

/// Identifies a part of a tensor in messages between ranks.
struct Part {
  int64_t id = 0;                ///< hash of name and position; equal on all ranks that hold the part
  int64_t grad_summed_over = 0;  ///< AxisSet::bits of the axes
};
static_assert(sizeof(Part) == 2 * sizeof(int64_t));

int64_t id_of(const nn::ShardedTensor& t) {
  return static_cast<int64_t>(hash64(
      str_cat(t.name, " ", t.global_row, " ", t.rows, " ", t.global_col, " ", t.cols, " of ", t.global_shape.str())));
}

/// Returns the parts of each rank of `group`, indexed by rank. Called by all ranks of `group`.
std::vector<std::vector<Part>> gather(comm::Communicator& group, std::vector<Part> own) {
  SynchronousStream stream;
  const auto view = [](auto* data, int64_t n) { return MutView{data, DType::kInt64, 1, n, n}; };
  int64_t count = std::ssize(own) * 2;
  std::vector<int64_t> counts(static_cast<size_t>(group.size()));
  group.host().all_gather({.in = view(&count, 1), .out = view(counts.data(), group.size())}, stream).wait();
  const std::vector<comm::Range> places = comm::ranges_of_sizes(counts);
  std::vector<Part> all(static_cast<size_t>(places.back().end / 2));
  group.host()
      .all_gather({.in = view(own.data(), count), .out = view(all.data(), places.back().end), .parts = places}, stream)
      .wait();
  std::vector<std::vector<Part>> by_rank;
  for (const comm::Range& place : places)
    by_rank.emplace_back(all.begin() + place.begin / 2, all.begin() + place.end / 2);
  return by_rank;
}

using Ranks = std::vector<int>;  // ranks of a group, ascending

/// Divides the sets of ranks into rounds. Each set joins the first round in which it overlaps no other set. The sets of
/// a round are then disjoint, so one split creates the communicators of all sets of a round.
std::vector<std::vector<Ranks>> in_rounds(const std::set<Ranks>& sets) {
  std::vector<std::vector<Ranks>> rounds;
  for (const Ranks& set : sets) {
    const auto apart = [&](const Ranks& other) {
      return std::find_first_of(set.begin(), set.end(), other.begin(), other.end()) == set.end();
    };
    const auto free = std::find_if(rounds.begin(), rounds.end(), [&](const std::vector<Ranks>& round) {
      return std::all_of(round.begin(), round.end(), apart);
    });
    (free == rounds.end() ? rounds.emplace_back() : *free).push_back(set);
  }
  return rounds;
}

}  // namespace

SharedTensors::SharedTensors(nn::ParameterStore& store, mesh::Mesh& mesh) : store_(store) {
  std::map<AxisSet, std::vector<nn::ShardedTensor*>> by_axes;
  std::vector<AxisSet> own;
  for (const auto& parameter : store.parameters()) {
    for (nn::ShardedTensor& tensor : parameter->tensors) {
      const AxisSet axes = tensor.axes.replicated_over - kReplicaAxes, summed = tensor.axes.summed_in_replica();
      ASHLAR_CHECK(summed.empty() || summed == axes, tensor.name, ": its gradient is summed over ", text_of(summed),
                   ", but it is replicated over ", text_of(axes));
      if (axes.empty()) continue;
      by_axes[axes].push_back(&tensor);
      own.push_back(axes);
    }
  }
  for (const auto& buffer : store.buffers())
    buffer->tensor.main_replica = mesh.index(buffer->tensor.axes.replicated_over) == 0;
  for (const AxisSet axes : mesh.agree_on(own)) find_groups(mesh.group(axes), by_axes[axes]);
}

void SharedTensors::find_groups(comm::Communicator& along, std::span<nn::ShardedTensor* const> tensors) {
  // 1. Find out which rank holds which parts.
  std::vector<Part> own;
  for (const nn::ShardedTensor* t : tensors)
    own.push_back({.id = id_of(*t), .grad_summed_over = int64_t{t->axes.summed_in_replica().bits()}});
  std::map<int64_t, Ranks> holders;
  std::map<int64_t, std::set<int64_t>> summed_over;  // a set with more than one value means that ranks disagree
  const std::vector<std::vector<Part>> all = gather(along, own);
  for (int rank = 0; rank < along.size(); ++rank) {
    for (const Part& part : all[static_cast<size_t>(rank)]) {
      holders[part.id].push_back(rank);
      summed_over[part.id].insert(part.grad_summed_over);
    }
  }
  // 2. Make a communicator for each set of ranks that sum a gradient. All ranks of `along` compute the same sets.
  std::set<Ranks> sums;
  for (const auto& [id, ranks] : holders)
    if (ranks.size() > 1 && *summed_over[id].rbegin() != 0) sums.insert(ranks);
  std::map<Ranks, size_t> group_of;
  const auto add = [&](const Ranks& ranks, comm::Communicator* group, std::unique_ptr<comm::Communicator> made) {
    group_of[ranks] = groups_.size();
    groups_.push_back({.ranks = group, .made = std::move(made), .tensors = {}});
  };
  const auto whole =
      std::find_if(sums.begin(), sums.end(), [&](const Ranks& ranks) { return std::ssize(ranks) == along.size(); });
  if (whole != sums.end()) {
    add(*whole, &along, nullptr);
    sums.erase(whole);
  }
  for (const std::vector<Ranks>& round : in_rounds(sums)) {
    const auto mine = std::find_if(round.begin(), round.end(), [&](const Ranks& ranks) {
      return std::binary_search(ranks.begin(), ranks.end(), along.rank());
    });
    const bool member = mine != round.end();
    std::unique_ptr<comm::Communicator> made =
        along.split({.color = member ? static_cast<int>(mine - round.begin()) : -1,
                     .key = along.rank(),
                     .name = str_cat(along.name(), " ranks ", member ? absl::StrJoin(*mine, ",") : std::string())});
    comm::Communicator* const group = made.get();
    if (member) add(*mine, group, std::move(made));
  }
  // 3. Assign this rank's tensors to the groups.
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Ranks& ranks = holders[own[i].id];
    ASHLAR_CHECK(summed_over[own[i].id].size() == 1, tensors[i]->name, ": ranks ", absl::StrJoin(ranks, ", "), " of ",
                 along.name(), " hold the same part but disagree on summing its gradient");
    tensors[i]->main_replica = ranks.front() == along.rank();
    if (own[i].grad_summed_over != 0 && ranks.size() > 1) groups_[group_of.at(ranks)].tensors.insert(tensors[i]);
  }
}

void SharedTensors::sum_gradients(const Ctx& ctx, std::span<const nn::ShardedRange> ranges) const {
  for (const Group& group : groups_) {
    const auto each = [&](auto&& visit) {  // in order of global names, the same on all ranks
      int64_t at = 0;
      for (const auto& range : ranges) {
        if (!group.tensors.contains(range.ref->tensor)) continue;
        visit(range, at);
        at += range.size;
      }
      return at;
    };
    const int64_t size = each([](const nn::ShardedRange&, int64_t) {});
    if (size == 0) continue;
    const Tensor packed = ctx.empty(store_.grads().dtype(), {size}, MemoryKind::kWorkspace);
    const auto grad_of = [&](const nn::ShardedRange& range) {
      return store_.grads().flat_range(range.flat_begin, range.size);
    };
    each([&](const nn::ShardedRange& range, int64_t at) {
      ctx.backend.copy({.src = grad_of(range).view(), .dst = packed.flat_range(at, range.size).mut_view()}, ctx.stream);
    });
    group.ranks->all_reduce({.in = packed.view(), .out = packed.mut_view(), .op = comm::ReduceOp::kSum}, ctx.stream)
        .wait(ctx.stream);
    each([&](const nn::ShardedRange& range, int64_t at) {
      ctx.backend.copy({.src = packed.flat_range(at, range.size).view(), .dst = grad_of(range).mut_view()}, ctx.stream);
    });
  }
}

}  // namespace ashlar::zero
