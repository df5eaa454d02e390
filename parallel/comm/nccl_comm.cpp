// 1. On issue: an event records the position of the caller's stream, and the operation joins the rank's launch queue.
// 2. At the head of the queue: the communicator's stream waits for that event, and NCCL's calls are made, several as
// one group.
// 3. When NCCL no longer reports these calls as in progress, an event is recorded after them, which marks the
// operation's completion. The next operation of the queue starts.
// 4. While operations run on the device, a Watch polls NCCL for asynchronous errors in each round of progress.
#include "parallel/comm/nccl_comm.h"

#include <sched.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "parallel/comm/host.h"
#include "parallel/comm/nccl_plan.h"
#include "parallel/comm/nccl_windows.h"
#include "parallel/comm/staged_comm.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::comm {

/// State shared by all communicators of this rank.
struct NcclComm::Rank {
  Backend& backend;
  std::shared_ptr<ProgressEngine> engine;
  NcclOptions options;
  std::shared_ptr<NcclLibrary> library;
  std::deque<const Launch*> launches;  ///< operations not yet queued on the device, in order of issue
  std::vector<const Shared*> comms;
  std::deque<std::shared_ptr<Launch>> under_way;  ///< operations queued on the device, not complete there
  bool watched = false;                           ///< true while a Watch exists
  bool warned_no_windows = false;
  std::vector<std::unique_ptr<Event>> free_events;

  Rank(Backend& on, std::shared_ptr<ProgressEngine> with, const NcclOptions& how)
      : backend(on), engine(std::move(with)), options(how) {}

  std::unique_ptr<Event> acquire_event() {
    if (free_events.empty()) return backend.make_event();
    std::unique_ptr<Event> event = std::move(free_events.back());
    free_events.pop_back();
    return event;
  }
  void release_event(std::unique_ptr<Event> event) {
    if (event != nullptr) free_events.push_back(std::move(event));
  }
  static void idle() { sched_yield(); }
};

/// Matches the two sides of messages that this rank sends to itself.
class NcclComm::Mailbox {
 public:
  struct Message {
    ConstView sent;
    MutView received;
    std::unique_ptr<Event> begun;
    std::shared_ptr<Launch> launch;
    bool matched = false;
  };
  std::deque<std::shared_ptr<Message>> sent, received;
};

struct NcclComm::Shared {
  std::shared_ptr<Rank> rank;
  std::shared_ptr<Communicator> host;
  std::string name;
  nccl::Comm comm = nullptr;
  std::unique_ptr<Stream> stream;
  void* barrier_word = nullptr;
  Mailbox mailbox;
  NcclWindows windows{rank->library, *host, [this](nccl::Comm on) { settle(on); }};

  Shared(std::shared_ptr<Rank> of, std::shared_ptr<Communicator> on, std::string called)
      : rank(std::move(of)), host(std::move(on)), name(std::move(called)), stream(rank->backend.make_stream()) {}
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() { end(); }  // ends the communicator also if `adopt` has thrown

  NcclLibrary& library() { return *rank->library; }
  void settle(nccl::Comm on) { library().settle(on, name, rank->options.setup_seconds, Rank::idle); }
  /// Takes ownership of a communicator, which may still be in progress.
  void adopt(nccl::Comm made) {
    comm = made;
    library().add(comm);
    settle(comm);
    barrier_word = rank->backend.allocator(MemoryKind::kWorkspace).allocate(sizeof(int32_t));
    rank->comms.push_back(this);
  }
  /// Ends the communicator; a second call does nothing. Operations may outlive the communicator.
  void end() noexcept;

 private:
  void finalize(nccl::Comm ending);
};

class NcclComm::Launch final : public Operation, public std::enable_shared_from_this<Launch> {
 public:
  Launch(std::shared_ptr<Shared> shared, std::vector<NcclCall> calls, std::unique_ptr<Event> begun)
      : shared_(std::move(shared)), calls_(std::move(calls)), queued_(rank().acquire_event()) {
    begun_.push_back(std::move(begun));
    rank().launches.push_back(this);
  }
  ~Launch() override {
    std::erase(rank().launches, this);
    for (auto& event : begun_) rank().release_event(std::move(event));
    rank().release_event(std::move(queued_));
  }

  bool belongs_to(const Shared& shared) const { return shared_.get() == &shared; }
  void also_after(std::unique_ptr<Event> begun) { begun_.push_back(std::move(begun)); }

  bool advance() override {
    if (stage_ == Stage::kWaiting) {
      if (rank().launches.front() != this) return false;  // an earlier operation has not completed its calls
      make_calls();
      stage_ = Stage::kCalled;
    }
    if (stage_ == Stage::kCalled) {
      if (!library().settled(shared_->comm, shared_->name)) return false;
      shared_->stream->record(*queued_);
      rank().launches.pop_front();
      stage_ = Stage::kQueued;
      watch(shared_from_this());
    }
    return true;
  }
  bool received() const override { return stage_ == Stage::kQueued; }
  Event* completion() override { return stage_ == Stage::kQueued ? queued_.get() : nullptr; }

 private:
  enum class Stage : uint8_t { kWaiting, kCalled, kQueued };

  Rank& rank() { return *shared_->rank; }
  NcclLibrary& library() { return shared_->library(); }
  static void watch(std::shared_ptr<Launch> launch);

  void make_calls() {
    for (const auto& event : begun_) shared_->stream->wait_for(*event);
    library().call(shared_->name, shared_->comm, [&](const nccl::Api& api) {
      if (calls_.size() == 1) return make_call(api, calls_.front(), shared_->comm, shared_->stream->native());
      nccl::Result result = api.GroupStart();
      if (result != nccl::Result::kSuccess) return result;
      for (const NcclCall& call : calls_) {
        result = make_call(api, call, shared_->comm, shared_->stream->native());
        if (result != nccl::Result::kSuccess && result != nccl::Result::kInProgress) break;
      }
      const nccl::Result ended = api.GroupEnd();  // always ends the group, also after an error
      return result == nccl::Result::kSuccess || result == nccl::Result::kInProgress ? ended : result;
    });
  }

  std::shared_ptr<Shared> shared_;
  std::vector<NcclCall> calls_;
  std::vector<std::unique_ptr<Event>> begun_;  ///< events recorded on the callers' streams at issue
  std::unique_ptr<Event> queued_;
  Stage stage_ = Stage::kWaiting;
};

/// A pending operation that exists while operations run on the device, so that each round of progress polls NCCL for
/// their errors.
class NcclComm::Watch final : public Operation {
 public:
  explicit Watch(std::shared_ptr<Rank> rank) : rank_(std::move(rank)) { rank_->watched = true; }
  bool advance() override {
    for (const Shared* shared : rank_->comms) rank_->library->settled(shared->comm, shared->name);
    std::deque<std::shared_ptr<Launch>>& launches = rank_->under_way;
    while (!launches.empty() && launches.front()->completion()->reached()) launches.pop_front();
    if (!launches.empty()) return false;
    rank_->watched = false;
    return true;
  }

 private:
  std::shared_ptr<Rank> rank_;
};

void NcclComm::Launch::watch(std::shared_ptr<Launch> launch) {
  const std::shared_ptr<Rank> rank = launch->shared_->rank;
  rank->under_way.push_back(std::move(launch));
  if (!rank->watched)
    rank->engine->submit(std::make_shared<Watch>(rank), {}, std::make_shared<const std::string>("nccl"));
}

// Finalizes the communicator if the ranks end normally. Otherwise aborts it, since peers may never arrive and NCCL
// would wait for them.
void NcclComm::Shared::end() noexcept {
  if (const nccl::Comm ending = std::exchange(comm, nullptr)) {
    std::erase(rank->comms, this);
    try {
      if (rank->engine->abandoned() || std::uncaught_exceptions() > 0) {
        library().abort(ending);
      } else {
        finalize(ending);
      }
    } catch (const std::exception& e) {
      library().abort(ending);
      if (Log* const log = rank->options.log)
        log->info(str_cat("NCCL's communicator ", name, " was aborted, since it could not be finalized: ", e.what()));
    }
    std::erase_if(rank->under_way, [this](const auto& launch) { return launch->belongs_to(*this); });
    if (rank->comms.empty()) rank->free_events.clear();  // after the last communicator, the backend may be destroyed
  }
  if (barrier_word != nullptr)
    rank->backend.allocator(MemoryKind::kWorkspace).release(std::exchange(barrier_word, nullptr));
}

void NcclComm::Shared::finalize(nccl::Comm ending) {
  const std::string what = str_cat("the end of ", name);
  stream->synchronize();
  settle(ending);
  windows.remove_all(ending, what);
  library().call(what, ending, [&](const nccl::Api& api) { return api.CommFinalize(ending); });
  settle(ending);
  library().remove(ending);
  library().call(what, nullptr, [&](const nccl::Api& api) { return api.CommDestroy(ending); });
}

/// One side, or both sides, of a message of this rank to itself. It starts when both sides are issued.
class NcclComm::SelfMessage final : public Operation {
 public:
  explicit SelfMessage(std::vector<std::shared_ptr<Mailbox::Message>> sides) : sides_(std::move(sides)) {}
  bool advance() override {
    bool done = true;
    for (const auto& side : sides_) done &= side->matched && (side->launch == nullptr || side->launch->advance());
    return done;
  }
  // The two sides of one send_recv may belong to different launches. The stream runs the launches in order.
  Event* completion() override {
    Event* last = nullptr;
    for (const auto& side : sides_) {
      if (side->matched && side->launch != nullptr) last = side->launch->completion();
    }
    return last;
  }
  bool stuck() const override {
    return std::any_of(sides_.begin(), sides_.end(), [](const auto& side) { return !side->matched; });
  }

 private:
  std::vector<std::shared_ptr<Mailbox::Message>> sides_;
};

namespace {

std::pair<int, int> peers_of(const DeviceOperation& args) {
  return std::visit(
      Cases{[](const Send& a) { return std::pair(a.to, -1); }, [](const Recv& a) { return std::pair(-1, a.from); },
            [](const SendRecv& a) { return std::pair(a.to, a.from); }, [](const auto&) { return std::pair(-1, -1); }},
      args);
}

}  // namespace

NcclComm::NcclComm(std::shared_ptr<Shared> shared)
    : Communicator(shared->host->rank(), shared->host->size(), shared->name, shared->host->engine()),
      shared_(std::move(shared)) {}

NcclComm::~NcclComm() { shared_->end(); }

Sums sums_of(const Communicator& communicator) {
  return dynamic_cast<const NcclComm*>(&communicator) != nullptr ? Sums::kBounded : Sums::kRankOrder;
}

Communicator& NcclComm::host() { return *shared_->host; }

std::string NcclComm::description() const { return shared_->library().description(); }

std::function<void()> NcclComm::abort_function() const {
  return [library = shared_->rank->library] { library->abort(); };
}

std::shared_ptr<MemorySource> NcclComm::memory_for_windows() const {
  const Rank& rank = *shared_->rank;
  if (rank.options.deterministic || !rank.library->has_windows()) return nullptr;
  return std::make_shared<NcclMemory>(rank.library);
}

size_t NcclComm::num_windows() const { return shared_->windows.size(); }

bool NcclComm::make_window(const MutView& buffer) {
  const NcclOptions& options = shared_->rank->options;
  if (options.deterministic) return false;
  ASHLAR_CHECK(buffer.contiguous(), "expected a contiguous buffer for a window");
  shared_->stream->synchronize();
  const std::string problem = shared_->windows.add(shared_->comm, name(), buffer);
  if (!problem.empty() && options.log != nullptr && !std::exchange(shared_->rank->warned_no_windows, true))
    options.log->info(
        str_cat("collectives over ", name(), " copy through NCCL's buffers, without symmetric windows: ", problem));
  return problem.empty();
}

std::unique_ptr<NcclComm> NcclComm::make(Communicator& host, ControlPlane& control, Backend& backend,
                                         const NcclOptions& options) {
  ASHLAR_CHECK(host.size() > 1, "expected at least 2 ranks for NCCL");
  auto rank = std::make_shared<Rank>(backend, host.engine(), options);
  set_nccl_environment(options.deterministic);
  nccl::UniqueId id{};
  try_on_all_ranks(control, [&] {
    rank->library = std::make_shared<NcclLibrary>();
    if (host.rank() != 0) return;
    rank->library->call("ncclGetUniqueId", nullptr, [&](const nccl::Api& api) { return api.GetUniqueId(&id); });
  });
  id = broadcast_value(control, id, 0);
  auto shared = std::make_shared<Shared>(rank, std::shared_ptr<Communicator>(&host, [](Communicator*) {}), host.name());
  try_on_all_ranks(control, [&] {
    nccl::Config config;
    config.blocking = 0;
    config.comm_name = shared->name.c_str();
    nccl::Comm made = nullptr;
    rank->library->call("ncclCommInitRankConfig", nullptr, [&](const nccl::Api& api) {
      return api.CommInitRankConfig(&made, host.size(), id, host.rank(), &config);
    });
    shared->adopt(made);
  });
  return std::unique_ptr<NcclComm>(new NcclComm(std::move(shared)));
}

std::unique_ptr<Communicator> NcclComm::make_split(const Split& args) {
  shared_->stream->synchronize();  // NCCL requires that the parent has no pending work
  std::unique_ptr<Communicator> host = shared_->host->split(args);
  const bool member = host != nullptr && host->size() > 1;  // one rank needs no NCCL
  NcclLibrary& library = shared_->library();
  const double seconds = shared_->rank->options.setup_seconds;
  library.settle(shared_->comm, shared_->name, seconds, Rank::idle);
  // NCCL keeps the pointer to the name as long as the communicator: it must be that of the state, not of `args`.
  std::shared_ptr<Shared> part;
  if (member) part = std::make_shared<Shared>(shared_->rank, std::move(host), args.name);
  nccl::Config config;
  config.blocking = 0;
  config.comm_name = member ? part->name.c_str() : shared_->name.c_str();
  nccl::Comm made = nullptr;
  library.call(str_cat("the split of ", shared_->name, " into ", args.name), shared_->comm, [&](const nccl::Api& api) {
    return api.CommSplit(shared_->comm, member ? args.color : nccl::kNoColor, args.key, &made, &config);
  });
  library.settle(shared_->comm, shared_->name, seconds, Rank::idle);  // the parent may be in progress after a split
  if (member) {
    part->adopt(made);
    return std::unique_ptr<Communicator>(new NcclComm(std::move(part)));
  }
  if (host == nullptr) return nullptr;
  return std::make_unique<StagedComm>(std::move(host), shared_->rank->backend);
}

Communicator::OperationPtr NcclComm::make(const DeviceOperation& args, Stream& stream) {
  Rank& rank = *shared_->rank;
  const auto begun = [&] {
    std::unique_ptr<Event> event = rank.acquire_event();
    stream.record(*event);
    return event;
  };
  if (std::holds_alternative<Barrier>(args)) {
    const NcclCall call{.kind = NcclCall::Kind::kAllReduce,
                        .send = shared_->barrier_word,
                        .recv = shared_->barrier_word,
                        .count = 1,
                        .dtype = DType::kInt32,
                        .op = ReduceOp::kMax};
    return std::make_shared<Launch>(shared_, std::vector{call}, begun());
  }
  const auto [to, from] = peers_of(args);
  if (to != this->rank() && from != this->rank()) {
    std::vector<NcclCall> calls = plan_nccl_calls(args, this->rank());
    if (calls.empty()) return nullptr;
    return std::make_shared<Launch>(shared_, std::move(calls), begun());
  }
  ASHLAR_CHECK((to < 0 || to == this->rank()) && (from < 0 || from == this->rank()), name(), ": a send_recv to rank ",
               to, " and from rank ", from, " on rank ", this->rank(),
               "; NCCL needs both sides of a message to oneself in one group");
  Mailbox& mailbox = shared_->mailbox;
  std::vector<std::shared_ptr<Mailbox::Message>> sides;
  const auto send = [&](const ConstView& data) {
    mailbox.sent.push_back(sides.emplace_back(std::make_shared<Mailbox::Message>(data, MutView{}, begun())));
  };
  const auto receive = [&](const MutView& data) {
    mailbox.received.push_back(sides.emplace_back(std::make_shared<Mailbox::Message>(ConstView{}, data, begun())));
  };
  std::visit(Cases{[&](const Send& a) { send(a.data); }, [&](const Recv& a) { receive(a.data); },
                   [&](const SendRecv& a) {
                     send(a.send);
                     receive(a.recv);
                   },
                   [](const auto&) {}},
             args);
  while (!mailbox.sent.empty() && !mailbox.received.empty()) {
    const std::shared_ptr<Mailbox::Message> out = mailbox.sent.front(), in = mailbox.received.front();
    mailbox.sent.pop_front();
    mailbox.received.pop_front();
    ASHLAR_CHECK(out->sent.dtype == in->received.dtype && out->sent.size() == in->received.size(), "rank ",
                 this->rank(), " sends itself ", ashlar::name_of(out->sent.dtype), "[", out->sent.size(),
                 "] and receives ", ashlar::name_of(in->received.dtype), "[", in->received.size(), "]");
    out->matched = in->matched = true;
    const SendRecv both{.send = out->sent, .to = this->rank(), .recv = in->received, .from = this->rank()};
    std::vector<NcclCall> calls = plan_nccl_calls(both, this->rank());
    if (calls.empty()) continue;
    out->launch = in->launch = std::make_shared<Launch>(shared_, std::move(calls), std::move(out->begun));
    out->launch->also_after(std::move(in->begun));
  }
  return std::make_shared<SelfMessage>(std::move(sides));
}

}  // namespace ashlar::comm
