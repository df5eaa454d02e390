#include "parallel/tensor/expert_exchange.h"

#include <algorithm>
#include <utility>

#include "parallel/tensor/started.h"

namespace ashlar::tensor {

int64_t ExpertTraffic::crossing() const {
  int64_t others = -sent[static_cast<size_t>(group->rank())].size();
  for (const comm::Range& range : sent) others += range.size();
  return others;
}

std::shared_ptr<const ExpertTraffic> exchange_counts(const Ctx& ctx, comm::Communicator& group, const Tensor& offsets,
                                                     std::span<const comm::Range> experts, CountStaging& staging) {
  const auto ranks = static_cast<size_t>(group.size()), own = static_cast<size_t>(group.rank());
  const int64_t E = offsets.size() - 1;
  const int64_t before = experts.front().begin;  // experts of other tensor ranks
  ASHLAR_CHECK(experts.size() == ranks && experts.back().end - before == E, "offsets of ", E, " experts and experts ",
               before, " to ", experts.back().end, " of ", experts.size(), " ranks for a group of ", ranks);
  // 1. The offsets of all ranks, on the host.
  const auto stride = static_cast<size_t>(offsets.size());
  const Tensor gathered = ctx.empty(DType::kInt32, {group.size(), offsets.size()});
  group.all_gather({.in = offsets.view(), .out = gathered.mut_view(), .parts = {}}, ctx.stream).wait(ctx.stream);
  std::vector<int32_t> all(ranks * stride);
  ctx.backend.read(gathered.view(), all.data(), ctx.stream);
  const auto offset = [&](size_t rank, int64_t expert) {
    return all[rank * stride + static_cast<size_t>(expert - before)];
  };

  // 2. Rows that this rank sends and receives.
  auto traffic = std::make_shared<ExpertTraffic>();
  traffic->group = &group;
  const auto [first, last] = experts[own];
  std::vector<int64_t> arriving;
  for (size_t r = 0; r < ranks; ++r) {
    ASHLAR_CHECK(r == 0 || experts[r].begin == experts[r - 1].end, "experts of rank ", r, " begin at ",
                 experts[r].begin, ", those of the rank before end at ", experts[r - 1].end);
    traffic->sent.push_back({offset(own, experts[r].begin), offset(own, experts[r].end)});
    arriving.push_back(offset(r, last) - offset(r, first));
  }
  traffic->sorted_rows = std::max<int64_t>(traffic->sent.back().end, 1);
  traffic->received = comm::ranges_of_sizes(arriving);
  traffic->rows = std::max<int64_t>(traffic->received.back().end, 1);

  // 3. Positions by expert of the arriving rows.
  const int64_t G = last - first;
  const int64_t size = G + 1 + traffic->rows;
  if (!staging.pinned || staging.pinned.size() < size)
    staging.pinned = ctx.empty(DType::kInt32, Shape{2 * size}, MemoryKind::kPinned);
  const std::span host(staging.pinned.mut_view().as<int32_t>(), static_cast<size_t>(size));
  std::ranges::fill(host, -1);
  const std::span by_expert = host.first(static_cast<size_t>(G + 1)), slots = host.subspan(static_cast<size_t>(G + 1));
  std::vector<int64_t> at;  // next arriving row of each rank
  for (const comm::Range& range : traffic->received) at.push_back(range.begin);
  int32_t slot = 0;
  for (int64_t g = 0; g < G; ++g) {
    by_expert[static_cast<size_t>(g)] = slot;
    for (size_t r = 0; r < ranks; ++r)
      for (int32_t n = offset(r, first + g + 1) - offset(r, first + g); n > 0; --n)
        slots[static_cast<size_t>(at[r]++)] = slot++;
  }
  by_expert.back() = slot;
  const Tensor device = ctx.empty(DType::kInt32, Shape{size});
  ctx.backend.copy_from_host(host.data(), device.mut_view(), ctx.stream);
  traffic->offsets = device.flat_range(0, G + 1);
  traffic->slots = device.flat_range(G + 1, traffic->rows).reshape({traffic->rows, 1});
  return traffic;
}

namespace {

using Traffic = std::shared_ptr<const ExpertTraffic>;

std::vector<comm::Range> elements_of(const std::vector<comm::Range>& rows, int64_t cols) {
  std::vector<comm::Range> elements;
  for (const comm::Range& range : rows) elements.push_back({range.begin * cols, range.end * cols});
  return elements;
}

Started start(const Ctx& ctx, Tensor in, Tensor out, const Traffic& traffic, bool back,
              std::function<Tensor(Tensor)> finish) {
  const std::vector<comm::Range> sent = elements_of(traffic->sent, in.cols());
  const std::vector<comm::Range> received = elements_of(traffic->received, in.cols());
  comm::Work work = traffic->group->all_to_all({.send = in.view(),
                                                .recv = out.mut_view(),
                                                .send_parts = back ? received : sent,
                                                .recv_parts = back ? sent : received},
                                               ctx.stream);
  return std::make_shared<Collective>(std::move(in), std::move(out), std::move(work), std::move(finish));
}

/// Starts to send sorted choices [S, C] to their experts -> rows by expert [R, C].
Started start_sending(const Ctx& ctx, Tensor rows, const Traffic& traffic) {
  Tensor in = packed(ctx, std::move(rows));
  Tensor out = ctx.empty(in.dtype(), {traffic->rows, in.cols()});
  return start(ctx, std::move(in), std::move(out), traffic, false, [ctx, traffic](const Tensor& arrived) {
    const Tensor by_expert = ctx.empty(arrived.dtype(), arrived.shape());
    ctx.backend.dispatch_rows({.x = arrived.view(),
                               .slots = traffic->slots.view(),
                               .offsets = traffic->offsets.view(),
                               .rows = by_expert.mut_view()},
                              ctx.stream);
    return by_expert;
  });
}

/// Starts to return rows by expert [R, C] -> sorted choices [S, C].
Started start_returning(const Ctx& ctx, const Tensor& rows, const Traffic& traffic) {
  Tensor in = ctx.empty(rows.dtype(), rows.shape());
  ctx.backend.combine_rows({.rows = rows.view(), .slots = traffic->slots.view(), .y = in.mut_view()}, ctx.stream);
  Tensor out = ctx.empty(rows.dtype(), {traffic->sorted_rows, rows.cols()});
  return start(ctx, std::move(in), std::move(out), traffic, true, {});
}

}  // namespace

std::function<Var()> start_to_experts(const Ctx& ctx, const Var& rows, Traffic traffic) {
  const ValueInfo info = place(ctx, "to_experts", rows, {{Placement::kPartialGrad, Placement::kPartialGrad}});
  return [ctx, info, traffic, sent = start_sending(ctx, rows.value, traffic), input = rows.without_value()] {
    return record_collective(ctx, info, input, sent->wait(ctx.stream),
                             [ctx, traffic](const Tensor& dy) { return start_returning(ctx, dy, traffic); });
  };
}

Var from_experts(const Ctx& ctx, const Var& rows, Traffic traffic) {
  const ValueInfo info = place(ctx, "from_experts", rows, {{Placement::kPartialSum, Placement::kPartialSum}});
  const Tensor returned = start_returning(ctx, rows.value, traffic)->wait(ctx.stream);
  return record_collective(ctx, info, rows, returned,
                           [ctx, traffic](Tensor dy) { return start_sending(ctx, std::move(dy), traffic); });
}

}  // namespace ashlar::tensor
