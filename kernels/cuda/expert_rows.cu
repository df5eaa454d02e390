// Sorts choices by expert, and copies rows to experts and back.
// Sort: a stable counting sort with integers alone, in three kernels: a warp counts the experts of a chunk of choices;
// a warp per expert adds these counts in the order of chunks; a warp gives the choices of a chunk their slots, in
// order. 12 bytes a choice, and 12 bytes for each pair of expert and chunk (at most 512 chunks, or 256 choices each).
// Rows: memory-bound. Dispatch reads N rows and writes N * k, combine the other way round; dots read the rows of the
// other matrix as well. In dispatch a warp copies the row of one choice; in combine a group of threads adds the k rows
// of a result, several loads at a time.

#include "core/backend/expert_rows.h"

#include <bit>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/dev/math.h"
#include "kernels/cuda/dev/reduce.h"
#include "kernels/cuda/dispatch.h"

namespace ashlar::ASHLAR_DEV {
namespace {

/// The choices of a call, divided into chunks. A warp processes a chunk.
struct Chunks {
  static constexpr int64_t kSmallest = 256, kMost = 512;

  const int32_t* choices;
  int64_t size;  ///< number of choices
  int64_t first_expert;
  int chunk;  ///< number of choices of a chunk, a multiple of 32
  int count;  ///< number of chunks
  int groups;

  __device__ __forceinline__ int64_t begin(int c) const { return int64_t{c} * chunk; }
  __device__ __forceinline__ int64_t end(int c) const { return min(begin(c) + chunk, size); }
  /// The group of choice i, or `groups` if its expert is on another rank.
  __device__ __forceinline__ int group(int64_t i) const {
    const int64_t g = choices[i] - first_expert;
    return g >= 0 && g < groups ? static_cast<int>(g) : groups;
  }
};

/// counts[g, c] = number of choices of group g in chunk c.
__global__ void __launch_bounds__(kThreads) count_choices_kernel(Chunks a, int* counts) {
  ASHLAR_DYNAMIC_SHARED(int, shared);
  const auto lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const auto c = static_cast<int>(blockIdx.x * (blockDim.x / 32)) + warp;
  if (c >= a.count) return;
  int* const mine = shared + warp * a.groups;
  for (int g = lane; g < a.groups; g += 32) mine[g] = 0;
  __syncwarp();
  for (int64_t i = a.begin(c) + lane; i < a.end(c); i += 32) {
    const int g = a.group(i);
    if (g < a.groups) atomicAdd(&mine[g], 1);
  }
  __syncwarp();
  for (int g = lane; g < a.groups; g += 32) counts[int64_t{g} * a.count + c] = mine[g];
}

/// counts[g, c] becomes the number of choices of group g in the chunks before c, and totals[g] that in all chunks. A
/// warp processes a group.
__global__ void __launch_bounds__(kThreads) add_counts_kernel(int* counts, int* totals, int chunks, int groups) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const auto g = static_cast<int>((blockIdx.x * kThreads + threadIdx.x) / 32);
  if (g >= groups) return;
  int* const row = counts + int64_t{g} * chunks;
  int before = 0;
  for (int first = 0; first < chunks; first += 32) {
    const int c = first + lane, value = c < chunks ? row[c] : 0;
    const int sum = warp_prefix_sum(value);
    if (c < chunks) row[c] = before + sum - value;
    before += __shfl_sync(0xffffffffU, sum, 31);
  }
  if (lane == 0) totals[g] = before;
}

/// A block  1. adds the totals to offsets, which block 0 stores. Then a warp for each chunk  2. finds the first slot of
/// each group  3. gives 32 choices at a time their slots: each lane counts the lower lanes with the same group.
__global__ void __launch_bounds__(kThreads)
    assign_slots_kernel(Chunks a, const int* counts, const int* totals, int* offsets, int* slots) {
  ASHLAR_DYNAMIC_SHARED(int, shared);  // first slots of the groups, then next slots of each warp
  const auto lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  // 1. offsets
  if (warp == 0) {
    int before = 0;
    for (int first = 0; first < a.groups; first += 32) {
      const int g = first + lane, value = g < a.groups ? totals[g] : 0;
      const int sum = warp_prefix_sum(value);
      if (g < a.groups) {
        shared[g] = before + sum - value;
        if (blockIdx.x == 0) offsets[g + 1] = before + sum;
      }
      before += __shfl_sync(0xffffffffU, sum, 31);
    }
    if (blockIdx.x == 0 && lane == 0) offsets[0] = 0;
  }
  __syncthreads();
  const auto c = static_cast<int>(blockIdx.x * (blockDim.x / 32)) + warp;
  if (c >= a.count) return;
  // 2. first slots
  int* const next = shared + (1 + warp) * a.groups;
  for (int g = lane; g < a.groups; g += 32) next[g] = shared[g] + counts[int64_t{g} * a.count + c];
  __syncwarp();
  // 3. slots
  const int bits = 32 - __clz(a.groups);
  for (int64_t first = a.begin(c); first < a.end(c); first += 32) {
    const int64_t i = first + lane;
    const int g = i < a.end(c) ? a.group(i) : a.groups;
    unsigned same = 0xffffffffU;  // lanes with the same group
    for (int b = 0; b < bits; ++b) {
      const unsigned ones = __ballot_sync(0xffffffffU, g >> b & 1);
      same &= (g >> b & 1) != 0 ? ones : ~ones;
    }
    const unsigned lower = same & ((1U << lane) - 1);
    const int slot = g < a.groups ? next[g] + __popc(lower) : -1;
    if (i < a.end(c)) slots[i] = slot;
    __syncwarp();  // all lanes have read `next`
    if (g < a.groups && lower == 0) next[g] += __popc(same);
    __syncwarp();
  }
}

/// Copies and products of the rows of choices; absent matrices are null.
template <typename T>
struct ChoiceRows {
  using A = AccumulateOf<T>;

  Rows<const T> x;  ///< [N, cols]
  const int32_t* slots;
  int64_t choices;
  int k, cols;
  bool vector;
  const A* weights;
  Rows<const T> others;  ///< [S, cols]
  Rows<T> rows;          ///< [S, cols]
  int64_t num_rows;      ///< S, or 0 if rows are absent
  A* dots;
  const int32_t* used_rows;  ///< rows from this number on are set to zero
};

/// For each choice with a slot, a warp  1. writes weight * x to rows, and computes the dot product of x and others.
/// Then the warps  2. set the rows without a choice to zero.
template <typename T>
__global__ void __launch_bounds__(kThreads) choice_rows_kernel(ChoiceRows<T> a) {
  using A = AccumulateOf<T>;
  constexpr int W = kWidth<T>, kAhead = 2, kStep = 32 * W;
  const int lane = static_cast<int>(threadIdx.x % 32), column = lane * W;
  const int64_t warp = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32, warps = int64_t{gridDim.x} * kWarps;

  // 1. choices
  for (int64_t i = warp; i < a.choices; i += warps) {
    const int slot = a.slots[i];
    A dot = 0;
    if (slot >= 0) {
      const T* const x = a.x[i / a.k];
      const A weight = a.weights != nullptr ? a.weights[i] : A{1};
      for (int first = column; first < a.cols; first += kAhead * kStep) {
        Vec<T, W> from[kAhead], other[kAhead];
        ASHLAR_UNROLL
        for (int p = 0; p < kAhead; ++p) {
          const int c = first + p * kStep;
          from[p] = load_some<W>(x + c, a.cols - c, a.vector);
          other[p] = Vec<T, W>{};
          if (a.others) other[p] = load_some<W>(a.others[slot] + c, a.cols - c, a.vector);
        }
        ASHLAR_UNROLL
        for (int p = 0; p < kAhead; ++p) {
          const int c = first + p * kStep;
          A scaled[W];
          ASHLAR_UNROLL
          for (int e = 0; e < W; ++e) {
            scaled[e] = weight * from[p].wide(e);
            dot = fused(static_cast<A>(from[p].wide(e)), static_cast<A>(other[p].wide(e)), dot);
          }
          if (a.rows) store_some(a.rows[slot] + c, narrow<T>(scaled), a.cols - c, a.vector);
        }
      }
    }
    if (a.dots == nullptr) continue;
    dot = warp_reduce(dot, Add());
    if (lane == 0) a.dots[i] = dot;
  }

  // 2. rows without a choice
  if (a.num_rows == 0) return;
  for (int64_t row = *a.used_rows + warp; row < a.num_rows; row += warps) {
    for (int c = column; c < a.cols; c += kStep) store_some(a.rows[row] + c, Vec<T, W>{}, a.cols - c, a.vector);
  }
}

/// y[n] (+)= the sum of weight * row over the choices of n with a slot. A group of threads processes each row; a thread
/// loads kAhead rows together.
template <typename T>
__global__ void __launch_bounds__(Pieces::kThreads, 4)
    combine_rows_kernel(Pieces pieces, Rows<const T> rows, const int32_t* slots, const AccumulateOf<T>* weights, int k,
                        Rows<T> y, bool accumulate) {
  using A = AccumulateOf<T>;
  constexpr int W = kWidth<T>, kAhead = 4;
  for_each_vector<W>(pieces, [&](int64_t row, int c, int count) {
    A sum[W] = {};
    if (accumulate) widen(load_some<W>(y[row] + c, count, pieces.vector), sum);
    for (int first = 0; first < k; first += kAhead) {
      Vec<T, W> from[kAhead];
      A weight[kAhead];
      ASHLAR_UNROLL
      for (int p = 0; p < kAhead; ++p) {
        const int64_t i = row * k + first + p;
        const int slot = first + p < k ? slots[i] : -1;
        from[p] = Vec<T, W>{};
        weight[p] = 0;
        if (slot < 0) continue;
        from[p] = load_some<W>(rows[slot] + c, count, pieces.vector);
        weight[p] = weights != nullptr ? weights[i] : A{1};
      }
      ASHLAR_UNROLL
      for (int p = 0; p < kAhead; ++p) {
        ASHLAR_UNROLL
        for (int e = 0; e < W; ++e) sum[e] = fused(weight[p], static_cast<A>(from[p].wide(e)), sum[e]);
      }
    }
    store_some(y[row] + c, narrow<T>(sum), count, pieces.vector);
  });
}

template <typename T>
void run_choice_rows(const char* name, const ChoiceRows<T>& args, Stream& stream) {
  const int64_t most = std::max(args.choices, args.num_rows);
  if (most == 0) return;
  run_kernel(
      stream,
      {.name = name, .grid = num_blocks(div_up(most, kWarps), 16 * kMultiprocessors), .block = unsigned{kThreads}},
      choice_rows_kernel<T>, args);
}

}  // namespace

void CudaBackend::launch(const SortChoices& args, Stream& stream) {
  constexpr int64_t kInt = sizeof(int);
  const int64_t size = args.choices.size(), groups = args.offsets.size() - 1;
  const int64_t chunk = std::max(Chunks::kSmallest, div_up(div_up(size, Chunks::kMost), 32) * 32);
  const Chunks chunks{.choices = static_cast<const int32_t*>(args.choices.data),
                      .size = size,
                      .first_expert = args.first_expert,
                      .chunk = static_cast<int>(chunk),
                      .count = static_cast<int>(div_up(size, chunk)),
                      .groups = static_cast<int>(groups)};
  auto* const totals = static_cast<int*>(scratch(stream, groups * (1 + chunks.count) * kInt));
  int* const counts = totals + groups;
  // As many warps as have room for their groups, and for those of the block, in 48 KB.
  constexpr int64_t kGroups = (48 << 10) / kInt;
  const int64_t warps = std::max<int64_t>(1, std::min<int64_t>(kWarps, kGroups / groups - 1));
  const unsigned blocks = blocks_for(chunks.count, warps), threads = static_cast<unsigned>(32 * warps);
  if (chunks.count > 0) {
    run_kernel(stream,
               {.name = "count_choices", .grid = blocks, .block = threads, .shared_bytes = warps * groups * kInt},
               count_choices_kernel, chunks, counts);
  }
  run_kernel(stream, {.name = "add_counts", .grid = blocks_for(groups, kWarps), .block = unsigned{kThreads}},
             add_counts_kernel, counts, totals, chunks.count, chunks.groups);
  run_kernel(stream,
             {.name = "assign_slots",
              .grid = std::max(blocks, 1U),
              .block = threads,
              .shared_bytes = (1 + warps) * groups * kInt},
             assign_slots_kernel, chunks, static_cast<const int*>(counts), static_cast<const int*>(totals),
             args.offsets.as<int32_t>(), static_cast<int32_t*>(args.slots.data));
}

void CudaBackend::launch(const DispatchRows& args, Stream& stream) {
  with_storage("dispatch_rows", args.x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = AccumulateOf<T>;
    run_choice_rows<T>("dispatch_rows",
                       {.x = rows_of<T>(args.x),
                        .slots = static_cast<const int32_t*>(args.slots.data),
                        .choices = args.slots.size(),
                        .k = static_cast<int>(args.slots.cols),
                        .cols = static_cast<int>(args.x.cols),
                        .vector = rows_aligned_for(kWidth<T>, args.x, args.others, args.rows),
                        .weights = static_cast<const A*>(args.weights.data),
                        .others = rows_of<T>(args.others),
                        .rows = rows_of<T>(args.rows),
                        .num_rows = args.rows.rows,
                        .dots = static_cast<A*>(args.dots.data),
                        .used_rows = args.offsets.as<int32_t>() + args.offsets.size() - 1},
                       stream);
  });
}

void CudaBackend::launch(const CombineRows& args, Stream& stream) {
  if (args.mode == GradMode::kSkip) return;
  with_storage("combine_rows", args.rows.dtype, [&](auto t) {
    using T = decltype(t);
    using A = AccumulateOf<T>;
    const auto* const slots = static_cast<const int32_t*>(args.slots.data);
    const auto k = static_cast<int>(args.slots.cols);
    if (args.y.size() > 0) {
      Pieces pieces = split_pieces(true, kWidth<T>, args.y);
      pieces.vector = pieces.vector && rows_aligned(args.rows, kWidth<T>);
      run_kernel(stream, {.name = "combine_rows", .grid = pieces.blocks(), .block = Pieces::kThreads},
                 combine_rows_kernel<T>, pieces, rows_of<T>(args.rows), slots, static_cast<const A*>(args.weights.data),
                 k, rows_of<T>(args.y), args.mode == GradMode::kAccumulate);
    }
    if (!args.dots) return;
    run_choice_rows<T>("combine_dots",
                       {.x = rows_of<T>(args.others),
                        .slots = slots,
                        .choices = args.slots.size(),
                        .k = k,
                        .cols = static_cast<int>(args.rows.cols),
                        .vector = rows_aligned_for(kWidth<T>, args.others, args.rows),
                        .weights = nullptr,
                        .others = rows_of<T>(args.rows),
                        .rows = {},
                        .num_rows = 0,
                        .dots = static_cast<A*>(args.dots.data),
                        .used_rows = nullptr},
                       stream);
  });
}

}  // namespace ashlar::ASHLAR_DEV
