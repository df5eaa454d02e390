#include "kernels/cpu/gemm/gemm.h"

#include "core/base/error.h"
#include "kernels/cpu/gemm/packed_gemm.h"

namespace ashlar::cpu {

namespace {

void check_view(const ConstView& view, std::string_view name, int64_t rows, int64_t cols) {
  ASHLAR_CHECK(view.rows == rows && view.cols == cols && (rows <= 1 || view.stride >= cols), "gemm operand ", name,
               ": expected [", rows, ", ", cols, "], got [", view.rows, ", ", view.cols, "] with stride ", view.stride);
}

void check(const GemmArgs& args) {
  const int64_t m = args.m();
  const int64_t n = args.n();
  const int64_t k = args.k();
  const DType storage = args.a.dtype;
  check_view(args.a, "a", args.transpose_a ? k : m, args.transpose_a ? m : k);
  check_view(args.b, "b", args.transpose_b ? n : k, args.transpose_b ? k : n);
  check_view(args.c, "c", m, n);
  ASHLAR_CHECK(is_floating(storage) && args.b.dtype == storage, "gemm of ", name_of(storage), " and ",
               name_of(args.b.dtype), ": expected one floating dtype");
  ASHLAR_CHECK(args.c.dtype == storage || args.c.dtype == accumulate_dtype(storage), "gemm of ", name_of(storage),
               " into ", name_of(args.c.dtype), ": expected the storage or the accumulate dtype");
  if (!args.bias) return;
  ASHLAR_CHECK(!args.accumulate, "gemm: expected a bias only without accumulation");
  ASHLAR_CHECK(args.bias.size() == n && (args.bias.rows == 1 || args.bias.contiguous()), "gemm bias: expected [", n,
               "] contiguous, got [", args.bias.rows, ", ", args.bias.cols, "]");
  ASHLAR_CHECK(args.bias.dtype == storage || args.bias.dtype == accumulate_dtype(storage), "gemm of ", name_of(storage),
               " with a bias of ", name_of(args.bias.dtype));
}

}  // namespace

Gemm::Gemm(Isa isa, Threads& threads, Allocator& workspace) : isa_(isa), threads_(threads), workspace_(workspace) {}

void Gemm::run(const GemmArgs& args) {
  check(args);
  ++num_runs_;
  packed_gemm(args, isa_, threads_, workspace_);
}

void Gemm::run_all(std::span<const GemmArgs> products) {
  for (const GemmArgs& args : products) {
    check(args);
    ASHLAR_CHECK(args.a.dtype == products[0].a.dtype, "gemms of ", name_of(products[0].a.dtype), " and ",
                 name_of(args.a.dtype), ": expected one storage dtype");
  }
  num_runs_ += static_cast<int64_t>(products.size());
  packed_gemms(products, isa_, threads_, workspace_);
}

std::string Gemm::description() const { return "packed gemm"; }

}  // namespace ashlar::cpu
