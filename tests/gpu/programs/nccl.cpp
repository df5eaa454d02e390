// gpu_nccl: started on several ranks, each of which takes a GPU (or all of them the only one), exchanges buffers over
// NCCL and compares with formulas of rank and place: small integers, whose sums are exact in every order. Sums of other
// numbers must have the same bits twice and on all ranks. One line by rank 0. Exit codes: 0 all is right, 1 not, 2 no
// NCCL or GPU.
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/io/checksum.h"
#include "kernels/make_backend.h"
#include "parallel/comm/bootstrap.h"
#include "parallel/comm/host.h"
#include "parallel/comm/nccl_comm.h"

namespace ashlar {
namespace {

/// Of `rank` at place i; never above 8, so that sums of 16 ranks are whole numbers of bf16, too.
float number(int rank, int64_t i) { return static_cast<float>((i * 7 + rank * 3) % 9); }

class Exchange {
 public:
  Exchange(comm::Communicator& ranks, Backend& backend)
      : ranks_(ranks), backend_(backend), stream_(backend.make_stream()) {}

  void all(int64_t n) {
    const int p = ranks_.size(), me = ranks_.rank();
    const auto sum = [&](int64_t i) {
      float total = 0;
      for (int rank = 0; rank < p; ++rank) total += number(rank, i);
      return total;
    };
    const int64_t whole = n * p;
    {
      const MutView in = buffer(whole, [&](int64_t i) { return number(me, i); }), out = buffer(whole, {});
      ranks_.all_reduce({.in = in, .out = out, .op = comm::ReduceOp::kSum}, *stream_).wait(*stream_);
      expect("all_reduce", out, sum);
      const MutView part = buffer(n, {});
      ranks_.reduce_scatter({.in = in, .out = part, .parts = {}}, *stream_).wait(*stream_);
      expect("reduce_scatter", part, [&](int64_t i) { return sum(me * n + i); });
    }
    {
      const MutView part = buffer(n, [&](int64_t i) { return number(me, i); }), out = buffer(whole, {});
      ranks_.all_gather({.in = part, .out = out, .parts = {}}, *stream_).wait(*stream_);
      expect("all_gather", out, [&](int64_t i) { return number(static_cast<int>(i / n), i % n); });
    }
    {
      const MutView data = buffer(n, [&](int64_t i) { return number(me, i); });
      ranks_.broadcast({.data = data, .root = p - 1}, *stream_).wait(*stream_);
      expect("broadcast", data, [&](int64_t i) { return number(p - 1, i); });
    }
    {
      const int next = (me + 1) % p, before = (me + p - 1) % p;
      const MutView sent = buffer(n, [&](int64_t i) { return number(me, i); }), got = buffer(n, {});
      ranks_.send_recv({.send = sent, .to = next, .recv = got, .from = before}, *stream_).wait(*stream_);
      expect("send_recv", got, [&](int64_t i) { return number(before, i); });
    }
    for (int turn = 0; turn < 2; ++turn) {
      const MutView x = buffer(whole, [&](int64_t i) { return 1.0F / static_cast<float>(3 + (i * 11 + me * 5) % 97); });
      ranks_.all_reduce({.in = x, .out = x, .op = comm::ReduceOp::kSum}, *stream_).wait(*stream_);
      const std::vector<float> values = read(x);
      bits_.push_back(std::to_string(io::crc32({reinterpret_cast<const char*>(values.data()), values.size() * 4})));
      if (turn == 1 && bits_[bits_.size() - 2] != bits_.back()) fail("all_reduce twice: other bits");
    }
  }

  int64_t checks() const { return checks_; }
  const std::vector<std::string>& errors() const { return errors_; }
  /// Of the sums, for a comparison with other ranks.
  std::string bits() const {
    std::string text;
    for (const std::string& one : bits_) text += one + " ";
    return text;
  }

 private:
  MutView buffer(int64_t size, const std::function<float(int64_t)>& value) {
    const MutView view{backend_.allocator(MemoryKind::kGradients).allocate(size * 4), DType::kFloat32, 1, size, size};
    std::vector<float> host(static_cast<size_t>(size), -1);
    for (int64_t i = 0; value && i < size; ++i) host[static_cast<size_t>(i)] = value(i);
    backend_.write(host.data(), view, *stream_);
    return view;
  }
  std::vector<float> read(const MutView& view) {
    std::vector<float> host(static_cast<size_t>(view.size()));
    backend_.read(view, host.data(), *stream_);
    return host;
  }
  void expect(const std::string& name, const MutView& view, const std::function<float(int64_t)>& value) {
    const std::vector<float> got = read(view);
    ++checks_;
    for (int64_t i = 0; i < view.size(); ++i) {
      if (got[static_cast<size_t>(i)] == value(i)) continue;
      return fail(str_cat(name, " of ", view.size(), " at ", i, ": expected ", value(i), ", got ",
                          got[static_cast<size_t>(i)]));
    }
  }
  void fail(const std::string& text) { errors_.push_back(str_cat("rank ", ranks_.rank(), ": ", text)); }

  comm::Communicator& ranks_;
  Backend& backend_;
  std::unique_ptr<Stream> stream_;
  std::vector<std::string> errors_, bits_;
  int64_t checks_ = 0;
};

int run() {
  comm::Bootstrap bootstrap;
  comm::Communicator& world = bootstrap.world();
  const std::unique_ptr<Backend> backend =
      kernels::make_backend({.device = "cuda", .local_rank = bootstrap.local_rank()});
  const std::unique_ptr<comm::NcclComm> ranks =
      comm::NcclComm::make(world, bootstrap.control(), *backend, {.setup_seconds = 60});
  Exchange exchange(*ranks, *backend);
  for (const int64_t n : {int64_t{1}, int64_t{1000}, int64_t{100003}}) exchange.all(n);
  const std::vector<std::string> bits = comm::unite_texts(bootstrap.control(), {exchange.bits()});
  std::vector<std::string> errors = exchange.errors();
  if (bits.size() > 1) errors.emplace_back("sums have other bits on other ranks");
  errors = comm::unite_texts(bootstrap.control(), errors);
  if (world.rank() == 0) {
    for (const std::string& error : errors) std::printf("%s\n", error.c_str());
    std::printf("%d ranks over %s: %lld results a rank %s\n", world.size(), ranks->description().c_str(),
                static_cast<long long>(exchange.checks()), errors.empty() ? "equal" : "compared, some differ");
  }
  return errors.empty() ? 0 : 1;
}

}  // namespace
}  // namespace ashlar

int main() {
  try {
    return ashlar::run();
  } catch (const ashlar::Error& error) {
    std::fprintf(stderr, "gpu_nccl: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}
