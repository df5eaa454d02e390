#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/autograd/tape.h"
#include "parallel/comm/communicator.h"

namespace ashlar::tensor {

/// The rows that the ranks of an expert group exchange in one layer and micro-batch. Each rank sorts its choices of the
/// group's experts by expert, so that the rows for one rank, which holds consecutive experts, are contiguous. On the
/// receiver, rows are ordered by expert, then by source rank, then as on the source.
struct ExpertTraffic {
  comm::Communicator* group = nullptr;
  std::vector<comm::Range> sent;      ///< [ranks] rows of the sorted choices that each rank processes
  std::vector<comm::Range> received;  ///< [ranks] rows that arrive from each rank, in rank order
  int64_t sorted_rows = 0;            ///< S: number of rows of the sorted choices, at least 1
  int64_t rows = 0;                   ///< R: number of rows of the buffers on the receiver, at least 1
  Tensor offsets;                     ///< [G + 1] kInt32: rows of each of this rank's G experts
  Tensor slots;                       ///< [R, 1] kInt32: position by expert of each arriving row, or -1 without a row

  int64_t crossing() const;  ///< number of rows that this rank sends to other ranks
};

/// Pinned memory from which exchange_counts copies offsets and slots to the device, kept and grown by it. It is written
/// only after the stream has been waited for, and so after the copy of the exchange before: one stream uses it.
struct CountStaging {
  Tensor pinned;
};

/// Exchanges the counts of a micro-batch. `offsets` [E + 1] kInt32 are the offsets of this rank's choices, sorted by
/// expert (SortChoices), of the E experts of the group; rank r of the group holds experts[r], which follow each other.
/// Called by all ranks of the group; the host waits for the stream once, since transports take counts on the host.
std::shared_ptr<const ExpertTraffic> exchange_counts(const Ctx& ctx, comm::Communicator& group, const Tensor& offsets,
                                                     std::span<const comm::Range> experts, CountStaging& staging);

/// A differentiable pair along the expert axis: the forward of one function is the backward of the other. Placements
/// over the tensor axis do not change. All ranks of the group call them in the same order, ranks without rows too.
///
///                  forward                                         placement
///   to_experts     sorted choices [S, C] -> rows by expert [R, C]  partial gradient
///   from_experts   rows by expert [R, C] -> sorted choices [S, C]  partial sum
///
/// Rows are copied, never added, so the values do not depend on which rank holds which expert.

/// Starts to send the rows. The returned function waits for the arriving rows and returns them; call it once. Work that
/// is queued in between overlaps the communication.
std::function<Var()> start_to_experts(const Ctx& ctx, const Var& rows, std::shared_ptr<const ExpertTraffic> traffic);
/// Returns the rows of the experts' results to the ranks of their tokens.
Var from_experts(const Ctx& ctx, const Var& rows, std::shared_ptr<const ExpertTraffic> traffic);

}  // namespace ashlar::tensor
