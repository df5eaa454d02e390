#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/parallel_for.h"

namespace ashlar::cpu {

namespace {

int thread_count(const CpuOptions& options, const CpuInfo& info) {
  if (options.threads < 0) {
    throw input_error("run.threads", "expected 0 (all cores) or a positive count, got ", options.threads);
  }
  return options.threads > 0 ? options.threads : info.cores;
}

}  // namespace

CpuBackend::CpuBackend(const CpuOptions& options)
    : info_(detect_cpu(options.max_isa)),
      threads_(thread_count(options, info_),
               thread_count(options, info_) > info_.cores ? 0 : Threads::kSpinMicroseconds, options.dry_run),
      log_(options.log) {
  for (int kind = 0; kind < kNumMemoryKinds; ++kind) {
    arenas_[static_cast<size_t>(kind)] = std::make_unique<ArenaAllocator>(
        static_cast<MemoryKind>(kind), options.arena_cap_bytes,
        options.dry_run ? ArenaAllocator::Blocks::kAddresses : ArenaAllocator::Blocks::kMemory);
  }
  gemm_ = std::make_unique<Gemm>(info_.isa, threads_, workspace());
  if (log_ != nullptr && info_.isa != Isa::kAvx512Bf16) {
    const bool has_it = info_.detected == Isa::kAvx512Bf16;
    log_->info_once(str_cat("cpu: bf16 matrices are widened to fp32 while they are packed: ",
                            has_it ? "the bf16 dot product is slower on this machine, or disabled"
                                   : "this machine has no bf16 dot product"));
  }
}

CpuBackend::~CpuBackend() = default;

std::string CpuBackend::description() const {
  std::string held;
  if (info_.isa != info_.detected) held = str_cat(" (limited below ", name_of(info_.detected), ")");
  return str_cat("cpu: ", info_.model, ", ", threads(), threads() == 1 ? " thread of " : " threads of ", info_.cores,
                 info_.cores == 1 ? " core, " : " cores, ", name_of(info_.isa), held, ", ", gemm_->description());
}

double CpuBackend::measure_peak(DType dtype, double seconds) {
  return cpu::measure_peak(dtype, threads_, info_.isa, seconds);
}

int64_t CpuBackend::num_gemms() const { return gemm_->num_runs(); }

Allocator& CpuBackend::allocator(MemoryKind kind) { return *arenas_.at(static_cast<size_t>(kind)); }

std::unique_ptr<Stream> CpuBackend::make_stream() { return std::make_unique<SynchronousStream>(); }

std::unique_ptr<Event> CpuBackend::make_event() { return std::make_unique<SynchronousEvent>(); }

// The number of rows is small enough that logits use about 64 MiB, and large enough that reading and writing the weight
// gradient [V, C] once per chunk costs little compared with the matrix products.
int64_t CpuBackend::loss_chunk_rows(int64_t N, int64_t V, DType storage) const {
  const int64_t rows = (int64_t{64} << 20) / (V * size_of(logits_dtype(storage)));
  return std::clamp<int64_t>(rows / 64 * 64, std::min<int64_t>(N, 64), N);
}

void CpuBackend::copy_to_host(ConstView device, void* host, Stream&) {
  ASHLAR_CHECK(device.contiguous(), "expected contiguous rows, got rows = ", device.rows, " cols = ", device.cols,
               " stride = ", device.stride);
  // Uses all threads: a checkpoint copies gigabytes, and one core cannot saturate the memory bandwidth.
  const auto* from = static_cast<const std::byte*>(device.data);
  parallel_for(threads_, device.size() * size_of(device.dtype), int64_t{1} << 20, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<std::byte*>(host) + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

void CpuBackend::copy_from_host(const void* host, MutView device, Stream&) {
  ASHLAR_CHECK(device.contiguous(), "expected contiguous rows, got rows = ", device.rows, " cols = ", device.cols,
               " stride = ", device.stride);
  std::memcpy(device.data, host, static_cast<size_t>(device.size() * size_of(device.dtype)));
}

}  // namespace ashlar::cpu
