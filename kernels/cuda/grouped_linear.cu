// Matrix products with one weight for each group of rows, by gemm/grouped.h. They are bound by tensor cores if groups
// have some 100 rows, otherwise by reading the weights. Column sums (dbias) have kernels of their own and are
// memory-bound: they read dy once, and write and read the sums of tiles of at most 256 rows of a group.

#include "core/backend/grouped_linear.h"

#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/gemm/grouped.h"

namespace ashlar::ASHLAR_DEV {

namespace {

constexpr int kSumRows = 256;  // number of rows of a tile of dbias

/// A block sums 32 vectors of columns over a tile of rows of one group, and writes the sums to partial[tile, column].
template <typename T>
__global__ void __launch_bounds__(kThreads)
    group_column_partials_kernel(Rows<const T> dy, Groups groups, int64_t columns, bool vectors,
                                 AccumulateOf<T>* partial) {
  const auto tile = static_cast<int>(blockIdx.x);
  const RowTile rows = find_row_tile<kSumRows>(groups, tile);
  if (rows.group < 0 || rows.group == groups.count) return;
  sum_columns(dy, rows.first, rows.end, int64_t{blockIdx.y} * kSumLanes * kWidth<T>, columns, vectors,
              [&](int64_t column, AccumulateOf<T> sum) { partial[tile * columns + column] = sum; });
}

/// dbias[group, column] (+)= the sums of the group's tiles, in ascending order. A thread processes one column.
/// 1. each warp counts the tiles before its group  2. each thread adds
template <typename A>
__global__ void __launch_bounds__(kThreads)
    add_group_partials_kernel(const A* partial, Groups groups, int64_t columns, A* dbias, bool accumulate) {
  const auto group = static_cast<int>(blockIdx.y), lane = static_cast<int>(threadIdx.x % 32);
  // 1. count
  int before = 0;
  for (int g = lane; g < group; g += 32) before += groups.tiles<kSumRows>(g);
  before = __reduce_add_sync(0xffffffffU, before);
  // 2. add
  const int64_t column = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= columns) return;
  A& out = dbias[group * columns + column];
  A sum = accumulate ? out : A{0};
  const int end = before + groups.tiles<kSumRows>(group);
  for (int64_t tile = before; tile < end; ++tile) sum += partial[tile * columns + column];
  out = sum;
}

Groups groups_of(const ConstView& offsets, int64_t rows) {
  return {
      .offsets = offsets.as<int32_t>(), .count = static_cast<int>(offsets.size() - 1), .rows = static_cast<int>(rows)};
}

template <typename T>
void group_column_sums(Device& device, const GroupedLinearBackwardWeight& args, Stream& stream) {
  using A = AccumulateOf<T>;
  const Groups groups = groups_of(args.offsets, args.dy.rows);
  const int64_t columns = args.dy.cols, tiles = groups.most_tiles(kSumRows);
  A* const partial = static_cast<A*>(device.scratch(stream, tiles * columns * static_cast<int64_t>(sizeof(A))));
  if (tiles > 0) {
    run_kernel(stream,
               {.name = "group_column_partials",
                .grid = {static_cast<unsigned>(tiles), blocks_for(columns, kSumLanes * kWidth<T>)},
                .block = {kSumLanes, kSumWarps}},
               group_column_partials_kernel<T>, rows_of<T>(args.dy), groups, columns, rows_aligned(args.dy, kWidth<T>),
               partial);
  }
  run_kernel(stream,
             {.name = "add_group_partials",
              .grid = {blocks_for(columns, kThreads), static_cast<unsigned>(groups.count)},
              .block = kThreads},
             add_group_partials_kernel<A>, static_cast<const A*>(partial), groups, columns, args.dbias.as<A>(),
             args.mode == GradMode::kAccumulate);
}

}  // namespace

void CudaBackend::launch(const GroupedLinearForward& args, Stream& stream) {
  if (args.y.size() == 0) return;
  with_storage("grouped_linear_forward", args.x.dtype, [&](auto t) {
    using T = decltype(t);
    grouped_rows<T>({.x = matrix_of<T>(args.x),
                     .w = matrix_of<T>(args.w),
                     .bias = static_cast<const T*>(args.bias.data),
                     .y = matrix_of<T>(args.y),
                     .groups = groups_of(args.offsets, args.x.rows),
                     .terms = static_cast<int>(args.x.cols),
                     .columns = static_cast<int>(args.y.cols)},
                    Layout::kByRow, stream);
  });
}

void CudaBackend::launch(const GroupedLinearBackwardInput& args, Stream& stream) {
  if (args.dx.size() == 0) return;
  with_storage("grouped_linear_backward_input", args.dy.dtype, [&](auto t) {
    using T = decltype(t);
    grouped_rows<T>({.x = matrix_of<T>(args.dy),
                     .w = matrix_of<T>(args.w),
                     .bias = nullptr,
                     .y = matrix_of<T>(args.dx),
                     .groups = groups_of(args.offsets, args.dy.rows),
                     .terms = static_cast<int>(args.dy.cols),
                     .columns = static_cast<int>(args.dx.cols)},
                    Layout::kByTerm, stream);
  });
}

void CudaBackend::launch(const GroupedLinearBackwardWeight& args, Stream& stream) {
  if (args.dy.cols == 0 || args.mode == GradMode::kSkip) return;
  with_storage("grouped_linear_backward_weight", args.dy.dtype, [&](auto t) {
    using T = decltype(t);
    // 1. dw
    if (args.dw && args.dw.cols > 0) {
      grouped_weights<T>({.dy = matrix_of<T>(args.dy),
                          .x = matrix_of<T>(args.x),
                          .dw = matrix_of<AccumulateOf<T>>(args.dw),
                          .groups = groups_of(args.offsets, args.dy.rows),
                          .outputs = static_cast<int>(args.dy.cols),
                          .inputs = static_cast<int>(args.dw.cols),
                          .accumulate = args.mode == GradMode::kAccumulate},
                         stream);
    }
    // 2. dbias
    if (args.dbias) group_column_sums<T>(device_, args, stream);
  });
}

}  // namespace ashlar::ASHLAR_DEV
