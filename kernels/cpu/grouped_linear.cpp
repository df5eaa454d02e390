#include "core/backend/grouped_linear.h"

#include <cstring>
#include <new>
#include <span>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/gemm/column_sums.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/row_ops.h"

// Forward and the two gradients of a linear layer with a weight per group: one matrix product for each group that has
// rows, 2*S*M*K flops in all. They are bound by the FMA rate with many rows per group. With few (about 32), they are
// bound by reading w and packing it, or by reading and writing dw. Rows of no group, and dw of a group without rows,
// are set to zero. gemm/packed_gemm.cpp describes how threads share the products.

namespace ashlar::cpu {
namespace {

/// The rows of groups, from offsets in this memory.
struct GroupedRows {
  GroupedRows(const ConstView& view, int64_t rows)
      : offsets(static_cast<const int32_t*>(view.data), static_cast<size_t>(view.size())) {
    int64_t last = 0;
    for (const int32_t offset : offsets) {
      ASHLAR_CHECK(offset >= last && offset <= rows, "offset ", offset, " after ", last, " of ", rows, " rows");
      last = offset;
    }
  }

  int64_t groups() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t begin(int64_t g) const { return offsets[static_cast<size_t>(g)]; }
  int64_t size(int64_t g) const { return begin(g + 1) - begin(g); }
  int64_t used() const { return offsets.back(); }

  template <AnyView View>
  View of(const View& rows, int64_t g) const {
    return row_range(rows, begin(g), size(g));
  }

  std::span<const int32_t> offsets;
};

/// Returns the rows of group g of a matrix that has the same number of rows for each group.
template <AnyView View>
View matrix_of(const View& all, int64_t groups, int64_t g) {
  return row_range(all, g * (all.rows / groups), all.rows / groups);
}

/// Runs product(g) for each group with rows.
template <typename Product>
void run_products(Gemm& gemm, Allocator& workspace, const GroupedRows& rows, const Product& product) {
  const ScopedBlock list(workspace, rows.groups() * static_cast<int64_t>(sizeof(GemmArgs)));
  GemmArgs* const products = list.as<GemmArgs>();
  size_t count = 0;
  for (int64_t g = 0; g < rows.groups(); ++g) {
    if (rows.size(g) > 0) new (products + count++) GemmArgs(product(g));
  }
  gemm.run_all({products, count});
}

void zero_rows(const MutView& v, Threads& threads) {
  parallel_for(threads, v.rows, rows_grain(v.cols, kCheapGrain), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      std::memset(static_cast<char*>(v.data) + n * v.stride * size_of(v.dtype), 0,
                  static_cast<size_t>(v.cols * size_of(v.dtype)));
    }
  });
}

}  // namespace

void CpuBackend::launch(const GroupedLinearForward& args, Stream&) {
  const GroupedRows rows(args.offsets, args.x.rows);
  const int64_t M = args.y.cols;
  // 1. y of groups
  run_products(*gemm_, workspace(), rows, [&](int64_t g) {
    return GemmArgs{.a = rows.of(args.x, g),
                    .b = matrix_of(args.w, rows.groups(), g),
                    .bias = args.bias ? flat_range(args.bias, g * M, M) : ConstView{},
                    .c = rows.of(args.y, g),
                    .transpose_b = true};
  });
  // 2. other rows
  zero_rows(row_range(args.y, rows.used(), args.y.rows - rows.used()), threads_);
}

void CpuBackend::launch(const GroupedLinearBackwardInput& args, Stream&) {
  const GroupedRows rows(args.offsets, args.dy.rows);
  // 1. dx of groups
  run_products(*gemm_, workspace(), rows, [&](int64_t g) {
    return GemmArgs{
        .a = rows.of(args.dy, g), .b = matrix_of(args.w, rows.groups(), g), .bias = {}, .c = rows.of(args.dx, g)};
  });
  // 2. other rows
  zero_rows(row_range(args.dx, rows.used(), args.dx.rows - rows.used()), threads_);
}

void CpuBackend::launch(const GroupedLinearBackwardWeight& args, Stream&) {
  const GroupedRows rows(args.offsets, args.dy.rows);
  const bool accumulate = args.mode == GradMode::kAccumulate;
  if (args.dw) {
    // 1. dw of groups with rows
    run_products(*gemm_, workspace(), rows, [&](int64_t g) {
      return GemmArgs{.a = rows.of(args.dy, g),
                      .b = rows.of(args.x, g),
                      .bias = {},
                      .c = matrix_of(args.dw, rows.groups(), g),
                      .transpose_a = true,
                      .accumulate = accumulate};
    });
    // 2. dw of groups without rows
    for (int64_t g = 0; g < rows.groups() && !accumulate; ++g) {
      if (rows.size(g) == 0) zero_rows(matrix_of(args.dw, rows.groups(), g), threads_);
    }
  }
  // 3. dbias
  if (args.dbias) column_sums_of_groups(args.dy, rows.offsets, args.dbias, accumulate, info_.isa, threads_);
}

}  // namespace ashlar::cpu
