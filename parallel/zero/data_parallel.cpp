#include "parallel/zero/data_parallel.h"

#include <algorithm>

#include "parallel/comm/device_comm.h"

namespace ashlar::zero {

namespace {

class BucketSync final : public ParamSync {
 public:
  explicit BucketSync(comm::Work work) : work_(std::move(work)) {}
  void wait(Stream& stream) override { work_.wait(stream); }

 private:
  comm::Work work_;
};

}  // namespace

DataParallel::DataParallel(const ShardPlan& plan, nn::ParameterStore& store, mesh::Mesh& mesh, Stream& stream)
    : plan_(plan), store_(store), all_(mesh.all()), stream_(stream) {
  std::vector<AxisSet> own;
  for (const Bucket& bucket : plan.buckets) own.push_back(bucket.replicas);
  for (const AxisSet axes : mesh.agree_on(own)) {
    comm::Communicator& replicas = mesh.group(axes);
    if (std::find(own.begin(), own.end(), axes) == own.end()) continue;  // only another stage needs this group
    queues_.emplace(axes, Queue{.replicas = &replicas, .buckets = {}});
    comm::make_window(replicas, store.values().mut_view());
    comm::make_window(replicas, store.grads().mut_view());
  }
  for (const Bucket& bucket : plan.buckets) {
    Queue& queue = queues_.at(bucket.replicas);
    ASHLAR_CHECK(static_cast<int>(bucket.parts.size()) == queue.replicas->size(), "expected one part per replica, got ",
                 bucket.parts.size(), " parts for ", queue.replicas->size(), " replicas");
    queue.buckets.push_back(&bucket);
  }
}

bool DataParallel::all_left() const {
  return reducing_.empty() &&
         std::all_of(queues_.begin(), queues_.end(), [](const auto& entry) { return entry.second.waiting == 0; });
}

void DataParallel::begin_step(int64_t micro_batches) {
  ASHLAR_CHECK(all_left() && micro_batches > 0, "expected a finished previous step and at least 1 micro-batch, got ",
               micro_batches, " micro-batches");
  micro_batches_ = micro_batches;
  for (auto& [axes, queue] : queues_) queue.waiting = queue.buckets.size();
  store_.begin_step();
}

bool DataParallel::complete(const Bucket& bucket) const {
  if (uses_.empty()) return false;
  for (size_t i = bucket.first_parameter; i < bucket.last_parameter; ++i)
    if (store_.parameters()[i]->weight.contributions < uses_[i] * micro_batches_) return false;
  return true;
}

void DataParallel::reduce_next(Queue& queue) {
  const Bucket& bucket = *queue.buckets[--queue.waiting];
  const Tensor grads = store_.grads().flat_range(bucket.begin, bucket.size);
  const comm::Range& own = bucket.parts[static_cast<size_t>(queue.replicas->rank())];
  reducing_.push_back(queue.replicas->reduce_scatter(
      {.in = grads.view(), .out = grads.flat_range(own.begin, own.size()).mut_view(), .parts = bucket.parts}, stream_));
}

void DataParallel::poll() {
  for (auto& [axes, queue] : queues_)
    while (queue.waiting > 0 && complete(*queue.buckets[queue.waiting - 1])) reduce_next(queue);
  all_.progress();
}

void DataParallel::finish() {
  std::vector<int64_t> uses;
  for (const auto& parameter : store_.parameters()) {
    const int64_t n = parameter->weight.contributions;
    ASHLAR_CHECK(n > 0 && n % micro_batches_ == 0, parameter->name, " received ", n, " contributions from ",
                 micro_batches_, " micro-batches");
    uses.push_back(n / micro_batches_);
  }
  ASHLAR_CHECK(uses_.empty() || uses_ == uses, "expected the same number of uses of each parameter in every step");
  uses_ = std::move(uses);
  late_ = 0;
  for (auto& [axes, queue] : queues_) {
    late_ += static_cast<int64_t>(queue.waiting);
    while (queue.waiting > 0) reduce_next(queue);
  }
  for (comm::Work& work : reducing_) work.wait(stream_);
  reducing_.clear();
}

void DataParallel::start_param_sync() {
  ASHLAR_CHECK(all_left(), "expected all gradients to be reduced before weights are gathered");
  wait_param_sync();
  for (const Bucket& bucket : plan_.buckets) {  // in the order in which forward reads the weights
    comm::Communicator& replicas = *queues_.at(bucket.replicas).replicas;
    const Tensor values = store_.values().flat_range(bucket.begin, bucket.size);
    const comm::Range& own = bucket.parts[static_cast<size_t>(replicas.rank())];
    syncing_.push_back(std::make_unique<BucketSync>(replicas.all_gather(
        {.in = values.flat_range(own.begin, own.size()).view(), .out = values.mut_view(), .parts = bucket.parts},
        stream_)));
    for (size_t i = bucket.first_parameter; i < bucket.last_parameter; ++i)
      store_.parameters()[i]->weight.set_sync(*syncing_.back());
  }
}

void DataParallel::wait_param_sync() {
  for (const auto& parameter : store_.parameters()) parameter->weight.read(stream_);
  syncing_.clear();
}

}  // namespace ashlar::zero
