#include "parallel/zero/data_parallel.h"

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

DataParallel::DataParallel(const ShardPlan& plan, nn::ParameterStore& store, comm::Communicator& data, Stream& stream)
    : plan_(plan), store_(store), data_(data), stream_(stream) {
  for (const Bucket& bucket : plan.buckets)
    ASHLAR_CHECK(static_cast<int>(bucket.parts.size()) == data.size(), bucket.parts.size(), " parts for ", data.size(),
                 " replicas");
  if (store.flat_size() == 0) return;  // a stage without parameters
  comm::make_window(data, store.values().mut_view());
  comm::make_window(data, store.grads().mut_view());
}

void DataParallel::begin_step(int64_t micro_batches) {
  ASHLAR_CHECK(next_ == 0 && reducing_.empty() && micro_batches > 0, next_, " buckets of the step before, ",
               micro_batches, " micro-batches");
  micro_batches_ = micro_batches;
  next_ = static_cast<int64_t>(plan_.buckets.size());
  store_.begin_step();
}

bool DataParallel::complete(const Bucket& bucket) const {
  if (uses_.empty()) return false;
  for (size_t i = bucket.first_parameter; i < bucket.last_parameter; ++i)
    if (store_.parameters()[i]->weight.contributions < uses_[i] * micro_batches_) return false;
  return true;
}

void DataParallel::reduce(const Bucket& bucket) {
  const Tensor grads = store_.grads().flat_range(bucket.begin, bucket.size);
  const comm::Range& own = bucket.parts[data_.rank()];
  reducing_.push_back(data_.reduce_scatter(
      {.in = grads.view(), .out = grads.flat_range(own.begin, own.size()).mut_view(), .parts = bucket.parts}, stream_));
}

void DataParallel::poll() {
  while (next_ > 0 && complete(plan_.buckets[next_ - 1])) reduce(plan_.buckets[--next_]);
  data_.progress();
}

void DataParallel::finish() {
  std::vector<int64_t> uses;
  for (const auto& parameter : store_.parameters()) {
    const int64_t n = parameter->weight.contributions;
    ASHLAR_CHECK(n > 0 && n % micro_batches_ == 0, parameter->name, " received ", n, " contributions from ",
                 micro_batches_, " micro-batches");
    uses.push_back(n / micro_batches_);
  }
  ASHLAR_CHECK(uses_.empty() || uses_ == uses, "a parameter's number of uses changed");
  uses_ = std::move(uses);
  late_ = next_;
  while (next_ > 0) reduce(plan_.buckets[--next_]);
  for (comm::Work& work : reducing_) work.wait(stream_);
  reducing_.clear();
}

void DataParallel::start_param_sync() {
  ASHLAR_CHECK(next_ == 0 && reducing_.empty(), "weights are gathered when the gradients are done with");
  wait_param_sync();
  for (const Bucket& bucket : plan_.buckets) {  // in the order in which forward needs them
    const Tensor values = store_.values().flat_range(bucket.begin, bucket.size);
    const comm::Range& own = bucket.parts[data_.rank()];
    syncing_.push_back(std::make_unique<BucketSync>(data_.all_gather(
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
