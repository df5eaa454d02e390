#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/host/sizes.h"
#include "kernels/make_backend.h"

namespace ashlar::kernels {

namespace {

/// Allocates from the arenas of a CPU backend in a dry run. On "cpu" the kernels are those of that backend, which
/// allocate their scratch and skip their work. Integers and structs are real, since the host reads sizes from them.
class DryBackend final : public Backend {
 public:
  explicit DryBackend(const DryRunConfig& config)
      : config_(config), cuda_(config.device == "cuda"), cpu_({.threads = config.threads, .dry_run = true}) {
    if (cuda_) scratch_.emplace(allocator(MemoryKind::kWorkspace), cuda::kGemmWorkspaceBytes);
  }

  std::string description() const override { return "dry run of " + config_.device; }
  double measure_peak(DType, double) override { throw Bug("[dry run] nothing is computed"); }
  int64_t num_gemms() const override { return 0; }
  Allocator& allocator(MemoryKind kind) override { return cpu_.allocator(kind); }
  std::unique_ptr<Stream> make_stream() override { return cpu_.make_stream(); }
  std::unique_ptr<Event> make_event() override { return cpu_.make_event(); }
  void copy_to_host(ConstView device, void* host, Stream&) override { copy_numbers(device, device.data, host); }
  void copy_from_host(const void* host, MutView device, Stream&) override { copy_numbers(device, host, device.data); }
  DType logits_dtype(DType storage) const override { return cuda_ ? storage : cpu_.logits_dtype(storage); }
  int64_t loss_chunk_rows(int64_t N, int64_t V, DType storage) const override {
    return cuda_ ? cuda::loss_chunk_rows(N, V * size_of(logits_dtype(storage))) : cpu_.loss_chunk_rows(N, V, storage);
  }

 protected:
#define ASHLAR_DRY_LAUNCH(name, Args)                       \
  void launch(const Args& args, Stream& stream) override {  \
    if (!run_here(args) && !cuda_) cpu_.name(args, stream); \
  }
  ASHLAR_KERNELS(ASHLAR_DRY_LAUNCH)
#undef ASHLAR_DRY_LAUNCH

 private:
  static void copy_numbers(const ConstView& view, const void* from, void* to) {
    if (is_floating(view.dtype)) return;
    std::memcpy(to, from, static_cast<size_t>(view.size() * size_of(view.dtype)));
  }

  // These return true for kernels that the dry run replaces: those whose results the host reads, and those that the CPU
  // computes on one thread, which a dry run does not skip.
  template <typename Args>
  bool run_here(const Args&) {
    return false;
  }
  bool run_here(const SetStruct& args) {
    std::memcpy(args.dst.data, args.bytes.data(), static_cast<size_t>(args.size));
    return true;
  }
  bool run_here(const SortChoices& args) {
    const int64_t G = args.offsets.size() - 1, N = args.choices.rows, top_k = args.choices.cols;
    const int64_t loaded = config_.loaded_end - config_.loaded_begin, all = N * top_k;
    const auto even = static_cast<double>(all * loaded) / static_cast<double>(std::max<int64_t>(config_.experts, 1));
    const double wanted = std::min(config_.load * even, static_cast<double>(N * std::min(loaded, top_k)));
    const auto to_loaded = static_cast<int64_t>(std::ceil(wanted));
    auto* const offsets = static_cast<int32_t*>(args.offsets.data);
    // Choices of the experts before expert e: of those with the load, and of the others.
    const auto before = [&](int64_t e) {
      const int64_t of_loaded = std::clamp<int64_t>(e - config_.loaded_begin, 0, loaded);
      const int64_t others = std::max<int64_t>(config_.experts - loaded, 1);
      return (loaded == 0 ? 0 : to_loaded * of_loaded / loaded) + (all - to_loaded) * (e - of_loaded) / others;
    };
    const int64_t first = before(args.first_expert);
    for (int64_t g = 0; g <= G; ++g) offsets[g] = static_cast<int32_t>(before(args.first_expert + g) - first);
    return true;
  }
  bool run_here(const ClipGradients&) { return true; }
  bool run_here(const LossMask&) { return true; }
  bool run_here(const LossRescale&) { return true; }
  bool run_here(const LossReduce&) { return true; }
  bool run_here(const BalanceLoss&) { return true; }
  bool run_here(const BalanceUpdate&) { return true; }

  const DryRunConfig config_;
  const bool cuda_;
  cpu::CpuBackend cpu_;
  std::optional<cpu::ScopedBlock> scratch_;
};

}  // namespace

std::unique_ptr<Backend> make_dry_backend(const DryRunConfig& config) { return std::make_unique<DryBackend>(config); }

}  // namespace ashlar::kernels
