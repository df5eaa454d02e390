#include "launch/commands/subcommands.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/base/error.h"
#include "kernels/make_backend.h"
#include "launch/commands/arguments.h"
#include "launch/commands/session.h"
#include "launch/commands/timing.h"
#include "parallel/comm/device_comm.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::launch {
namespace {

constexpr std::array<int64_t, 9> kMessageBytes = {4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20,
                                                  4 << 20, 16 << 20, 64 << 20, 256 << 20};

struct CommArguments {
  DType dtype = DType::kFloat32;
  int64_t largest = 16 << 20;  // ranks on processors gain nothing above
  double seconds = 0.3;        // time budget of a line of the table
  bool json = false;
  std::string device = "cpu";
  bool deterministic = false;
  comm::Tuning tuning;
};

CommArguments parse_comm(std::span<const std::string> words) {
  Arguments args("bench comm", words);
  CommArguments options;
  const std::string dtype = args.option("--dtype").value_or("fp32");
  if (!parse_enum(dtype, options.dtype) || !is_floating(options.dtype))
    throw input_error("bench comm", "--dtype expects fp32, bf16 or fp64, got ", dtype);
  options.largest = args.integer("--largest", options.largest, kMessageBytes.front(), kMessageBytes.back());
  options.seconds = args.number("--seconds", options.seconds, 1e-4, 60);
  options.json = args.flag("--json");
  options.device = args.option("--device").value_or(options.device);
  options.deterministic = args.flag("--deterministic");
  comm::Tuning& tuning = options.tuning;
  tuning.chunk_bytes = args.integer("--chunk-bytes", tuning.chunk_bytes, 64, 1 << 30);
  tuning.chunks_in_flight = args.integer("--in-flight", tuning.chunks_in_flight, 1, 64);
  tuning.direct_bytes = args.integer("--direct-bytes", tuning.direct_bytes, 0, 1 << 30);
  args.options_only();
  return options;
}

/// Where the buffers are: on the device of `backend`, or on the host if `backend` is null.
struct Place {
  Backend* backend = nullptr;
  Stream& stream;
};

/// A block of memory for the benchmark. The constructor writes it once, so that its pages are mapped.
class Buffer {
 public:
  Buffer(int64_t bytes, const Place& place) : place_(place), bytes_(bytes) {
    if (place_.backend == nullptr) {
      memory_.assign(static_cast<size_t>(bytes), '\0');
      data_ = memory_.data();
    } else {
      data_ = static_cast<char*>(allocator().allocate(bytes));
    }
    clear();
  }
  ~Buffer() {
    if (place_.backend != nullptr) allocator().release(data_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  MutView view(DType dtype, int64_t begin_bytes, int64_t bytes) {
    const int64_t size = bytes / size_of(dtype);
    return {data_ + begin_bytes, dtype, 1, size, size};
  }
  /// Fills the block with zeros, and returns when they are written.
  void clear() {
    if (place_.backend == nullptr) {
      std::ranges::fill(memory_, '\0');
    } else {
      place_.backend->fill({.dst = view(DType::kFloat32, 0, bytes_), .value = 0}, place_.stream);
      place_.stream.synchronize();
    }
  }
  void copy_from(Buffer& other, int64_t bytes) {
    if (place_.backend == nullptr) {
      std::memcpy(data_, other.data_, static_cast<size_t>(bytes));
    } else {
      place_.backend->copy({.src = other.view(DType::kFloat32, 0, bytes), .dst = view(DType::kFloat32, 0, bytes)},
                           place_.stream);
      place_.stream.synchronize();
    }
  }

 private:
  Allocator& allocator() { return place_.backend->allocator(MemoryKind::kWorkspace); }

  const Place place_;
  const int64_t bytes_;
  std::vector<char> memory_;
  char* data_ = nullptr;
};

/// Returns the slowest rank's time of one call, in seconds: the lower quartile over repeated calls. All ranks begin
/// together, and each has just written its input. As in training, the data that a rank receives is therefore in the
/// sender's cache, not in the receiver's.
double quartile_call_seconds(comm::Communicator& host, double budget, Buffer& input,
                             const std::function<void()>& call) {
  SynchronousStream stream;  // for the barrier and the exchange of times, on the host
  const auto timed = [&] {
    input.clear();
    host.barrier(stream).wait();
    const double start = now_sec();
    call();
    return now_sec() - start;
  };
  timed();
  const auto max_all = [&](std::span<double> values) {
    const auto count = static_cast<int64_t>(values.size());
    const MutView view{values.data(), DType::kFloat64, 1, count, count};
    host.all_reduce({.in = view, .out = view, .op = comm::ReduceOp::kMax}, stream).wait();
  };
  double first = std::min(timed(), timed());
  max_all({&first, 1});
  std::vector<double> times(static_cast<size_t>(std::clamp(budget / std::max(1e-7, first), 8.0, 5000.0)));
  for (double& time : times) time = timed();
  max_all(times);
  return quantile(std::move(times), 0.25);
}

struct CommRow {
  const char* operation;
  int64_t bytes;
  double seconds, copy_seconds;
  double share;  ///< minimum number of bytes that a rank sends (or receives) / `bytes`

  double rate() const { return static_cast<double>(bytes) / seconds * 1e-9; }
  double bus_rate() const { return rate() * share; }
  double ratio() const { return copy_seconds / seconds; }
};

std::vector<CommRow> measure_collectives(const CommArguments& options, comm::Communicator& comm, const Place& place) {
  const int peer = (comm.rank() ^ 1) < comm.size() ? comm.rank() ^ 1
                                                   : comm.rank();  // the last of an odd number of ranks is its own peer
  const double others = static_cast<double>(comm.size() - 1) / comm.size();
  std::vector<CommRow> rows;
  Stream& stream = place.stream;
  for (const int64_t size : kMessageBytes) {
    if (size > options.largest) break;
    Buffer a(size, place), b(size, place);
    // The parts of all ranks have the same size, a multiple of a cache line (64 bytes).
    const int64_t part = size / comm.size() / 64 * 64, bytes = part * comm.size();
    const MutView x = a.view(options.dtype, 0, bytes), y = b.view(options.dtype, 0, bytes);
    const MutView mine = a.view(options.dtype, part * comm.rank(), part);
    const double copy = quartile_call_seconds(comm.host(), options.seconds, a, [&] { b.copy_from(a, bytes); });
    const auto add = [&](const char* name, double share, const std::function<void()>& call) {
      rows.push_back({name, bytes, quartile_call_seconds(comm.host(), options.seconds, a, call), copy, share});
    };
    add("all_reduce", 2 * others,
        [&] { comm.all_reduce({.in = x, .out = x, .op = comm::ReduceOp::kSum}, stream).wait(); });
    add("reduce_scatter", others, [&] { comm.reduce_scatter({.in = x, .out = mine}, stream).wait(); });
    add("all_gather", others, [&] { comm.all_gather({.in = mine, .out = x}, stream).wait(); });
    add("all_to_all", others,
        [&] { comm.all_to_all({.send = x, .recv = y, .send_parts = {}, .recv_parts = {}}, stream).wait(); });
    add("send_recv", 1, [&] { comm.send_recv({.send = x, .to = peer, .recv = y, .from = peer}, stream).wait(); });
  }
  return rows;
}

void print(const CommArguments& options, const std::vector<CommRow>& rows, int ranks, int local, std::ostream& out) {
  if (options.json) {
    nlohmann::json json = {
        {"ranks", ranks}, {"local_ranks", local}, {"device", options.device}, {"dtype", name_of(options.dtype)}};
    for (const CommRow& row : rows) {
      json["rows"].push_back({{"operation", row.operation},
                              {"bytes", row.bytes},
                              {"us", row.seconds * 1e6},
                              {"gb_per_sec", row.rate()},
                              {"bus_gb_per_sec", row.bus_rate()},
                              {"ratio_to_memcpy", row.ratio()}});
    }
    out << json.dump(2) << '\n';
    return;
  }
  out << ranks << " ranks, " << local << " on this machine, " << options.device << ", " << name_of(options.dtype)
      << "\n";
  out << "operation            bytes         us    GB/s     bus  of a copy\n";
  for (const CommRow& row : rows) {
    out << absl::StrFormat("%-14s %11d %10.1f %7.2f %7.2f %10.2f\n", row.operation, row.bytes, row.seconds * 1e6,
                           row.rate(), row.bus_rate(), row.ratio());
  }
}

}  // namespace

int run_bench_comm(Words words, Session& session) {
  const CommArguments options = parse_comm(words);
  comm::Bootstrap& bootstrap = session.bootstrap;
  const auto host = bootstrap.make_world("bench", options.tuning);
  std::unique_ptr<Backend> backend;
  comm::DeviceComm device;
  std::unique_ptr<Stream> stream = std::make_unique<SynchronousStream>();
  if (options.device != "cpu") {
    comm::try_on_all_ranks(bootstrap.control(), [&] {
      backend =
          kernels::make_backend({.device = options.device, .local_rank = bootstrap.local_rank(), .log = &session.log});
      stream = backend->make_stream();
    });
    device = comm::make_device_comm({.host = *host,
                                     .control = bootstrap.control(),
                                     .backend = *backend,
                                     .log = session.log,
                                     .cuda = options.device == "cuda",
                                     .deterministic = options.deterministic});
  }
  comm::Communicator& all = device.all ? *device.all : *host;
  const std::vector<CommRow> rows = measure_collectives(options, all, {.backend = backend.get(), .stream = *stream});
  if (all.rank() == 0) print(options, rows, all.size(), bootstrap.local_size(), session.out);
  return 0;
}

}  // namespace ashlar::launch
