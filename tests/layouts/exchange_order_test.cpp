// In which order a backward over tensor ranks gives its products and its exchanges to the stream: an exchange lies
// around the weight gradient that can hide it.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "kernels/make_backend.h"
#include "parallel/comm/staged_comm.h"
#include "parallel/mesh/mesh.h"
#include "tests/layouts/axes.h"
#include "tests/parallel/model_fixture.h"
#include "tests/support/deferred/deferred_backend.h"
#include "tests/support/ranks/ranks.h"

namespace ashlar::testing {
namespace {

/// "dx" and "dw" for the gradients of a product, "start" where the tensor group issues an operation, "wait" where the
/// stream waits for one, of one layer's backward.
std::string order_of_backward(bool sequence_parallel, WeightWork* deferred) {
  DeferredBackend device(kernels::make_backend({.threads = 1}));
  const std::unique_ptr<Stream> first = device.make_stream();
  const std::unique_ptr<comm::Communicator> all = comm::make_device_comm(bootstrap().world(), device);
  model::ModelConfig config = config_of(kAxes[0]);
  config.n_layers = 1;
  mesh::Mesh mesh(*all, {{Axis::kTensor, all->size()}});
  comm::Communicator& group = mesh.group(Axis::kTensor);
  TinyModel model(config, DType::kFloat32, 2, 8, 1, 7, {.group = &group, .sequence_parallel = sequence_parallel},
                  &device);
  Tape tape(device, *first);
  Ctx ctx{.backend = device, .stream = *first, .tape = &tape, .dtype = DType::kFloat32, .scalars = model.ctx().scalars};
  model.store().begin_step();
  model.loss(ctx);

  std::string order, last = group.last_operation();
  const auto add = [&](const char* what) { order += (order.empty() ? "" : " ") + std::string(what); };
  device.observe([&](const std::string& call) {
    if (group.last_operation() != last) add("start");
    last = group.last_operation();
    if (call == "wait") add("wait");
    if (call == "linear_backward_input") add("dx");
    if (call == "linear_backward_weight") add("dw");
  });
  tape.backward(deferred);
  if (deferred != nullptr) {
    add("|");
    deferred->run();
  }
  device.observe({});
  first->synchronize();
  return order;
}

// From the loss down: the head's exchange, down, gate and up, out, qkv.

TEST(ExchangeOrder, TensorParallelHidesTheSumOfInputGradients) {
  if (bootstrap().world().size() == 1) GTEST_SKIP() << "one rank exchanges nothing";
  EXPECT_EQ(order_of_backward(false, nullptr), "start wait dx dw dx start dw wait dx dw dx start dw wait");
}

TEST(ExchangeOrder, SequenceParallelHidesTheInputComingInAndTheSumGoingOut) {
  if (bootstrap().world().size() == 1) GTEST_SKIP() << "one rank exchanges nothing";
  EXPECT_EQ(order_of_backward(true, nullptr),
            "start wait start wait dx dw start dx start wait dw wait "
            "start wait dx dw start dx start wait dw wait start wait");
}

TEST(ExchangeOrder, WeightsThatArePutOffHideNothingAndGatherLater) {
  if (bootstrap().world().size() == 1) GTEST_SKIP() << "one rank exchanges nothing";
  WeightWork later;
  EXPECT_EQ(order_of_backward(false, &later), "start wait dx dx start wait dx dx start wait | dw dw dw dw");
  EXPECT_EQ(order_of_backward(true, &later),
            "start wait start wait dx dx start wait start wait dx dx start wait start wait "
            "| dw start wait dw dw start wait dw");
}

}  // namespace
}  // namespace ashlar::testing
