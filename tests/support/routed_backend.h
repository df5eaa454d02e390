#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/tensor/tensor.h"

namespace ashlar::testing {

/// Another backend that keeps which experts its routers choose, and makes them choose given ones instead: those of
/// another run, from which rounding may have moved some. Calls that are given choices (recomputation) and those of one
/// expert (gates) are no choices.
class RoutedBackend final : public Backend {
 public:
  /// The choices [N * k] of one call after another.
  using Choices = std::vector<std::vector<int32_t>>;

  explicit RoutedBackend(Backend& inner) : inner_(inner) {}

  /// The choices since the last call of this.
  Choices take_choices() { return std::exchange(taken_, {}); }
  /// Calls from now on choose these, one call after another, and may not be more.
  void force(Choices choices);
  int64_t num_forced_left() const { return std::ssize(forced_) - next_; }
  /// Of all choices so far: the least difference between the selection value (RouterRule) of a chosen expert and that
  /// of one that took part in vain, or between the values of such groups.
  double least_gap() const { return least_gap_; }

  std::string description() const override { return inner_.description(); }
  double measure_peak(DType dtype, double seconds) override { return inner_.measure_peak(dtype, seconds); }
  int64_t num_gemms() const override { return inner_.num_gemms(); }
  Allocator& allocator(MemoryKind kind) override { return inner_.allocator(kind); }
  std::unique_ptr<Stream> make_stream() override { return inner_.make_stream(); }
  std::unique_ptr<Event> make_event() override { return inner_.make_event(); }
  void copy_to_host(ConstView device, void* host, Stream& stream) override {
    inner_.copy_to_host(device, host, stream);
  }
  void copy_from_host(const void* host, MutView device, Stream& stream) override {
    inner_.copy_from_host(host, device, stream);
  }
  DType logits_dtype(DType storage) const override { return inner_.logits_dtype(storage); }
  int64_t loss_chunk_rows(int64_t N, int64_t V, DType storage) const override {
    return inner_.loss_chunk_rows(N, V, storage);
  }

 private:
#define ASHLAR_PASS_ON(name, Args)                         \
  void launch(const Args& args, Stream& stream) override { \
    pass_on(                                               \
        args, [&] { inner_.name(args, stream); }, stream); \
  }
  ASHLAR_KERNELS(ASHLAR_PASS_ON)
#undef ASHLAR_PASS_ON

  template <typename Args, typename Call>
  void pass_on(const Args&, const Call& call, Stream&) {
    call();
  }
  template <typename Call>
  void pass_on(const RouteForward& args, const Call& call, Stream& stream) {
    if (args.forced || args.logits.cols == 1) return call();
    choose(args, stream);
  }
  void choose(const RouteForward& args, Stream& stream);
  std::vector<double> host_values(const ConstView& view, Stream& stream);

  Backend& inner_;
  Choices taken_, forced_;
  bool forces_ = false;
  int64_t next_ = 0;
  double least_gap_ = std::numeric_limits<double>::infinity();
  Tensor given_;  ///< the choices of the last call, in device memory
};

}  // namespace ashlar::testing
