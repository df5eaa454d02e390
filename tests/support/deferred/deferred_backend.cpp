#include "tests/support/deferred/deferred_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/error.h"

namespace ashlar::testing {

namespace {

constexpr int64_t kRegionBytes = int64_t{4} << 30;
constexpr uintptr_t kPage = 4096;

void join(std::vector<uint64_t>& into, const std::vector<uint64_t>& from) {
  if (into.size() < from.size()) into.resize(from.size(), 0);
  for (size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

uint64_t checksum(const void* data, int64_t bytes) {
  uint64_t sum = 1469598103934665603ULL;
  for (int64_t i = 0; i < bytes; ++i) sum = (sum ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211ULL;
  return sum;
}

}  // namespace

class DeferredBackend::DeferredEvent final : public Event {
 public:
  explicit DeferredEvent(DeferredBackend& backend) : backend_(backend) {}
  void synchronize() override {
    if (stream >= 0) backend_.wait_of_host(stream, count, clock);
  }
  bool reached() override {
    if (stream < 0) return true;
    // Whoever asks often enough gets there: calls run meanwhile.
    backend_.run_until(stream, count);
    join(backend_.host_, clock);
    return true;
  }
  void* native() override { return this; }

  int stream = -1;  ///< nothing marked yet
  uint64_t count = 0;
  Clock clock;

 private:
  DeferredBackend& backend_;
};

class DeferredBackend::DeferredStream final : public Stream {
 public:
  DeferredStream(DeferredBackend& backend, int index) : index_(index), backend_(backend) {}
  void synchronize() override {
    const Queue& queue = backend_.queues_[static_cast<size_t>(index_)];
    backend_.wait_of_host(index_, queue.queued, queue.clock);
  }
  void record(Event& event) override {
    auto& e = static_cast<DeferredEvent&>(event);
    const Queue& queue = backend_.queues_[static_cast<size_t>(index_)];
    e.stream = index_;
    e.count = queue.queued;
    e.clock = queue.clock;
  }
  void wait_for(Event& event) override {
    const auto& e = static_cast<DeferredEvent&>(event);
    if (e.stream < 0) return;
    if (backend_.observer_ && index_ == 0) backend_.observer_("wait");
    Queue& queue = backend_.queues_[static_cast<size_t>(index_)];
    join(queue.clock, e.clock);
    queue.entries.push_back({.run = {}, .name = "wait", .wait_stream = e.stream, .wait_count = e.count});
    ++queue.queued;
  }
  void* native() override { return this; }
  int index() const { return index_; }

 private:
  const int index_;
  DeferredBackend& backend_;
};

DeferredBackend::DeferredBackend(std::unique_ptr<Backend> inner, uint64_t seed)
    : inner_(std::move(inner)),
      inner_stream_(inner_->make_stream()),
      region_(std::make_unique<GuardedRegion>(kRegionBytes, [this](const void* at) { return known_of(at); })),
      random_(seed) {
  for (auto& kind : memory_) kind = std::make_unique<GuardedAllocator>(*region_);
  // What copies use is the host's as well.
  struct Pinned final : Allocator {
    explicit Pinned(Allocator& of) : all(of) {}
    void* allocate(int64_t bytes) override { return all.allocate(bytes); }
    void release(void* block) override { all.release(block); }
    int64_t used_bytes() const override { return all.used_bytes(); }
    int64_t high_water_bytes() const override { return all.high_water_bytes(); }
    int64_t num_system_calls() const override { return 0; }
    Allocator& all;
  };
  memory_[static_cast<size_t>(MemoryKind::kPinned)] = std::make_unique<Pinned>(inner_->allocator(MemoryKind::kPinned));
}

DeferredBackend::~DeferredBackend() = default;

std::string DeferredBackend::description() const { return "deferred " + inner_->description(); }

std::unique_ptr<Stream> DeferredBackend::make_stream() {
  queues_.emplace_back();
  return std::make_unique<DeferredStream>(*this, static_cast<int>(queues_.size()) - 1);
}

std::unique_ptr<Event> DeferredBackend::make_event() { return std::make_unique<DeferredEvent>(*this); }

uint64_t DeferredBackend::take_address_hash() { return region_->take_hash(); }

int DeferredBackend::begin(const char* name, Stream& stream) {
  const int s = static_cast<DeferredStream&>(stream).index();
  if (observer_ && s == 0) observer_(name);
  Queue& queue = queues_[static_cast<size_t>(s)];
  join(queue.clock, host_);
  if (queue.clock.size() <= static_cast<size_t>(s)) queue.clock.resize(static_cast<size_t>(s) + 1, 0);
  ++queue.clock[static_cast<size_t>(s)];
  call_ = str_cat(name, " (call ", ++calls_, " on stream ", s, ")");
  return s;
}

void DeferredBackend::touch(int stream, const ConstView& view, bool writes) {
  if (view.size() == 0) return;
  const auto begin = reinterpret_cast<uintptr_t>(view.data);
  const int64_t element = size_of(view.dtype), row = view.cols * element;
  const int64_t stride = view.rows > 1 ? view.stride * element : row;
  touch(stream, Access{.begin = begin,
                       .end = begin + static_cast<uintptr_t>((view.rows - 1) * stride + row),
                       .row_bytes = row,
                       .stride_bytes = stride,
                       .writes = writes,
                       .stream = stream,
                       .time = 0,
                       .call = {}});
}

bool DeferredBackend::known_to(int stream, const Access& access) const {
  const Clock& clock = queues_[static_cast<size_t>(stream)].clock;
  const auto of = static_cast<size_t>(access.stream);
  return of < clock.size() && clock[of] >= access.time;
}

void DeferredBackend::touch(int stream, const Access& seen) {
  Access now = seen;
  now.time = queues_[static_cast<size_t>(stream)].clock[static_cast<size_t>(stream)];
  now.call = call_;
  // Column slices of one matrix lie between each other.
  const auto apart = [](const Access& a, const Access& b) {
    if (a.end <= b.begin || b.end <= a.begin) return true;
    if (a.stride_bytes != b.stride_bytes || a.row_bytes == a.stride_bytes) return false;
    const auto stride = static_cast<uintptr_t>(a.stride_bytes);
    const uintptr_t offset = a.begin < b.begin ? (b.begin - a.begin) % stride : (a.begin - b.begin) % stride;
    const Access& first = a.begin < b.begin ? a : b;
    const Access& second = a.begin < b.begin ? b : a;
    return offset >= static_cast<uintptr_t>(first.row_bytes) &&
           offset + static_cast<uintptr_t>(second.row_bytes) <= stride;
  };
  for (uintptr_t page = now.begin / kPage; page <= (now.end - 1) / kPage; ++page) {
    std::vector<Access>& accesses = pages_[page];
    for (const Access& before : accesses) {
      if ((!before.writes && !now.writes) || apart(before, now) || known_to(stream, before)) continue;
      throw Bug(str_cat("[deferred] ", now.call, now.writes ? " writes" : " reads", " what ", before.call,
                        before.writes ? " writes" : " reads", ": no event, and no wait of the host, orders them"));
    }
    // What a later access of the same kind covers says nothing more.
    std::erase_if(accesses, [&](const Access& before) {
      const bool covers = now.begin <= before.begin && before.end <= now.end && now.row_bytes == now.stride_bytes;
      return known_to(stream, before) && covers && (now.writes || (!before.writes && before.stream == now.stream));
    });
    accesses.push_back(now);
  }
}

std::string DeferredBackend::known_of(const void* at) const {
  const auto address = reinterpret_cast<uintptr_t>(at);
  const auto page = pages_.find(address / kPage);
  std::string last = "that no call has touched";
  if (page != pages_.end()) {
    for (const Access& access : page->second) {
      if (access.begin <= address && address < access.end)
        last = str_cat("that ", access.call, access.writes ? " writes" : " reads");
    }
  }
  return str_cat(last, "; the last call queued is ", call_.empty() ? "none" : call_);
}

void DeferredBackend::push(int stream, std::function<void()> run) {
  Queue& queue = queues_[static_cast<size_t>(stream)];
  queue.entries.push_back({.run = std::move(run), .name = call_});
  ++queue.queued;
  region_->close();
}

bool DeferredBackend::runnable(const Queue& queue) const {
  if (queue.entries.empty()) return false;
  const Entry& entry = queue.entries.front();
  return entry.wait_stream < 0 || queues_[static_cast<size_t>(entry.wait_stream)].run >= entry.wait_count;
}

void DeferredBackend::run_until(int stream, uint64_t count) {
  if (queues_[static_cast<size_t>(stream)].run >= count) return;
  region_->open();
  std::vector<size_t> ready;
  while (queues_[static_cast<size_t>(stream)].run < count) {
    ready.clear();
    for (size_t i = 0; i < queues_.size(); ++i) {
      if (runnable(queues_[i])) ready.push_back(i);
    }
    ASHLAR_CHECK(!ready.empty(), "streams wait for each other");
    Queue& queue = queues_[ready[random_() % ready.size()]];
    const Entry entry = std::move(queue.entries.front());
    queue.entries.pop_front();
    ++queue.run;  // whatever it throws
    if (entry.run) entry.run();
  }
  region_->close();
}

void DeferredBackend::wait_of_host(int stream, uint64_t count, const Clock& clock) {
  const Queue& queue = queues_[static_cast<size_t>(stream)];
  if (queue.run < count) {
    const Entry& last = queue.entries[count - queue.run - 1];
    host_waits_.push_back(str_cat("stream ", stream, " at ", last.name));
    run_until(stream, count);
  }
  join(host_, clock);
}

void DeferredBackend::copy_to_host(ConstView device, void* host, Stream& stream) {
  const int64_t bytes = device.size() * size_of(device.dtype);
  const int s = begin("copy_to_host", stream);
  touch(s, device, false);
  touch(s, MutView{host, DType::kUInt8, 1, bytes, bytes}, true);
  const auto* const begin_at = static_cast<const char*>(host);
  const bool still_read = std::any_of(sources_.begin(), sources_.end(), [&](const auto& source) {
    return source.first < begin_at + bytes && begin_at < source.first + source.second;
  });
  if (!still_read) std::memset(host, 0xFF, static_cast<size_t>(bytes));  // NaN, for those who do not wait
  push(s, [this, device, host] { inner_->copy_to_host(device, host, *inner_stream_); });
}

void DeferredBackend::copy_from_host(const void* host, MutView device, Stream& stream) {
  const int64_t bytes = device.size() * size_of(device.dtype);
  const int s = begin("copy_from_host", stream);
  touch(s, ConstView{host, DType::kUInt8, 1, bytes, bytes}, false);
  touch(s, device, true);
  const auto source = sources_.insert(sources_.end(), {static_cast<const char*>(host), bytes});
  push(s, [this, host, device, bytes, source, sum = checksum(host, bytes), name = call_] {
    sources_.erase(source);
    ASHLAR_CHECK(checksum(host, bytes) == sum, name, ": the host changed what is copied before the copy ran");
    inner_->copy_from_host(host, device, *inner_stream_);
  });
}

}  // namespace ashlar::testing
