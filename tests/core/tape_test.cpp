// The tape's own bookkeeping, over a backend that can only copy and fill.
#include "core/autograd/tape.h"

#include <gtest/gtest.h>

#include "core/autograd/weight.h"
#include "tests/core/fake_backend.h"

namespace ashlar {
namespace {

class TapeTest : public ::testing::Test {
 protected:
  Tensor tensor(std::vector<double> values, int64_t rows) {
    const Tensor t = Tensor::allocate(backend.allocator(MemoryKind::kActivations), DType::kFloat64,
                                      {rows, static_cast<int64_t>(values.size()) / rows});
    backend.write(values.data(), t.mut_view(), stream);
    return t;
  }
  std::vector<double> host(const Tensor& t) {
    std::vector<double> values(t.size());
    backend.copy_to_host(t.view(), values.data(), stream);
    return values;
  }
  // y = x: hands its gradient over as it is.
  Var identity(Tape& tape, const Var& x) {
    const Var y = tape.output(x.value);
    tape.record(y, [x](Tape& t, const Tensor& dy) { t.add_grad(x, dy); });
    return y;
  }
  // y = c x: writes into the buffer that the tape gives it.
  Var scale(Tape& tape, const Var& x, double c) {
    const Var y = tape.output(x.value);
    tape.record(y, [x, c](Tape& t, const Tensor& dy) {
      const GradTarget d = t.target(x);
      for (int64_t i = 0; i < dy.size(); ++i) {
        double& out = testing::FakeBackend::at(d.view(), i);
        out = c * testing::FakeBackend::at(dy.view(), i) + (d.mode == GradMode::kAccumulate ? out : 0);
      }
    });
    return y;
  }

  testing::FakeBackend backend;
  SynchronousStream stream;
};

TEST_F(TapeTest, SumsOverConsumersWithoutZeroing) {
  Tape tape(backend, stream);
  const Var x = tape.leaf(tensor({1, 2}, 1));
  const Var a = scale(tape, x, 3), b = scale(tape, x, 5);
  tape.seed(a, tensor({1, 10}, 1));
  tape.seed(b, tensor({2, 20}, 1));
  tape.backward();
  EXPECT_EQ(host(tape.leaf_grad(x)), (std::vector<double>{13, 130}));
  EXPECT_EQ(backend.copies, 0);
}

TEST_F(TapeTest, SharedGradientIsCopiedBeforeItChanges) {
  Tape tape(backend, stream);
  const Var x = tape.leaf(tensor({1, 2}, 1));
  const Var a = scale(tape, x, 3);
  const Var b = identity(tape, x);
  const Tensor seed = tensor({2, 20}, 1);
  tape.seed(a, tensor({1, 10}, 1));
  tape.seed(b, seed);  // kept by the test, as queued weight work would keep it
  tape.backward();
  EXPECT_EQ(host(tape.leaf_grad(x)), (std::vector<double>{5, 50}));
  EXPECT_EQ(host(seed), (std::vector<double>{2, 20}));
  EXPECT_EQ(backend.copies, 1);
}

TEST_F(TapeTest, SplitColumnsShareOneGradientAndUnusedOnesAreZero) {
  Tape tape(backend, stream);
  const Var x = tape.leaf(tensor({1, 2, 3, 4, 5, 6}, 2));
  const Var y = identity(tape, x);
  const std::vector<Var> parts = tape.split_columns(y, {1, 2});
  EXPECT_EQ(host(parts[1].value), (std::vector<double>{2, 3, 5, 6}));
  const Var z = scale(tape, parts[1], 2);
  tape.seed(z, tensor({1, 2, 3, 4}, 2));
  tape.backward();
  EXPECT_EQ(host(tape.leaf_grad(x)), (std::vector<double>{0, 2, 4, 0, 6, 8}));
  EXPECT_EQ(backend.copies, 0);
}

TEST_F(TapeTest, NodesWithoutGradientAreSkipped) {
  Tape tape(backend, stream);
  const Var x = tape.leaf(tensor({1}, 1));
  scale(tape, x, 3);
  tape.backward();
  EXPECT_FALSE(tape.leaf_grad(x));
}

TEST_F(TapeTest, FreesGradientsAsItGoes) {
  Tape tape(backend, stream);
  const Var x = tape.leaf(tensor({1, 2}, 1));
  Var y = x;
  for (int i = 0; i < 10; ++i) y = scale(tape, y, 2);
  tape.seed(y, tensor({1, 1}, 1));
  const int64_t before = backend.allocator(MemoryKind::kActivations).used_bytes();
  tape.backward();
  EXPECT_EQ(host(tape.leaf_grad(x)), (std::vector<double>{1024, 1024}));
  EXPECT_LE(backend.allocator(MemoryKind::kActivations).used_bytes(), before);
}

/// A node like an activation: the gradients of its inputs are twice and three times dy, and may lie over their values.
class ValueMemory : public TapeTest {
 protected:
  Var node(Tape& tape, std::vector<Var> inputs) {
    const Var y = tape.output(tensor({0, 0}, 2));
    tape.record(y, [this, inputs = std::move(inputs)](Tape& t, const Tensor& dy) mutable {
      std::vector<const void*> values;
      for (const Var& input : inputs) values.push_back(input.value.view().data);
      const int64_t before = backend.allocator(MemoryKind::kActivations).used_bytes();
      t.reuse_values(inputs);
      for (size_t i = 0; i < inputs.size(); ++i) {
        const GradTarget d = t.target(inputs[i]);
        in_place.push_back(d.view().data == values[i]);
        for (int64_t k = 0; k < dy.size(); ++k) {
          testing::FakeBackend::at(d.view(), k) = (static_cast<double>(i) + 2) * testing::FakeBackend::at(dy.view(), k);
        }
      }
      taken = backend.allocator(MemoryKind::kActivations).used_bytes() - before;
    });
    return y;
  }
  // y = x with memory of its own.
  Var copy(Tape& tape, const Var& x, int64_t rows) {
    const Var y = tape.output(tensor(host(x.value), rows));
    tape.record(y, [x](Tape& t, const Tensor& dy) { t.add_grad(x, dy); });
    return y;
  }
  void run(Tape& tape, const Var& y) {
    tape.seed(y, tensor({1, 10}, 2));
    tape.backward();
  }

  std::vector<bool> in_place;
  int64_t taken = -1;  ///< blocks of memory that the gradients took
};

TEST_F(ValueMemory, OfAValueThatNothingElseNeeds) {
  Tape tape(backend, stream);
  const Var x = tape.leaf(tensor({1, 2}, 2));
  std::vector<Var> inputs;
  inputs.push_back(copy(tape, x, 2));
  run(tape, node(tape, std::move(inputs)));
  EXPECT_EQ(in_place, std::vector<bool>{true});
  EXPECT_EQ(taken, 0);
  EXPECT_EQ(host(tape.leaf_grad(x)), (std::vector<double>{2, 20}));
}

TEST_F(ValueMemory, OfAllSlicesOfAValue) {
  Tape tape(backend, stream);
  const Var x = tape.leaf(tensor({1, 2, 3, 4}, 2));
  run(tape, node(tape, tape.split_columns(copy(tape, x, 2), {1, 1})));
  EXPECT_EQ(in_place, (std::vector<bool>{true, true}));
  EXPECT_EQ(taken, 0);
  EXPECT_EQ(host(tape.leaf_grad(x)), (std::vector<double>{2, 3, 20, 30}));
}

TEST_F(ValueMemory, StaysWithAValueThatIsStillNeeded) {
  Tape tape(backend, stream);
  const Var x = tape.leaf(tensor({1, 2}, 2));
  const Var y = copy(tape, x, 2);
  run(tape, node(tape, {y}));
  EXPECT_EQ(in_place, std::vector<bool>{false});
  EXPECT_EQ(host(y.value), (std::vector<double>{1, 2}));
  EXPECT_EQ(host(tape.leaf_grad(x)), (std::vector<double>{2, 20}));
}

TEST_F(ValueMemory, StaysWithSlicesIfOneIsStillNeededOrIsNotAmongThem) {
  for (const bool keep : {false, true}) {
    Tape tape(backend, stream);
    const Var x = tape.leaf(tensor({1, 2, 3, 4, 5, 6}, 2));
    std::vector<Var> parts = tape.split_columns(copy(tape, x, 2), {1, 1, 1});
    const Tensor third = parts[2].value;
    std::vector<Var> inputs(parts.begin(), parts.begin() + (keep ? 3 : 2));
    parts.clear();
    in_place.clear();
    run(tape, node(tape, std::move(inputs)));
    EXPECT_EQ(in_place, std::vector<bool>(keep ? 3 : 2, false));
    EXPECT_EQ(host(third), (std::vector<double>{3, 6}));
    EXPECT_EQ(host(tape.leaf_grad(x)), (std::vector<double>{2, 3, keep ? 4. : 0., 20, 30, keep ? 40. : 0.}));
  }
}

TEST_F(ValueMemory, StaysWithAValueThatHasAGradientAlready) {
  Tape tape(backend, stream);
  const Var x = tape.leaf(tensor({1, 2}, 2));
  Var y = copy(tape, x, 2);
  const Var slot = y.without_value();
  const Var z = node(tape, {std::move(y)});
  tape.seed(slot, tensor({5, 5}, 2));
  run(tape, z);
  EXPECT_EQ(in_place, std::vector<bool>{false});
}

/// The order of what one node like a linear and what is recorded before it do in backward.
class WeightWorkOrder : public TapeTest {
 protected:
  std::vector<std::string> order;

  // Backward: "dx", and weight work "dw".
  Var product(Tape& tape, const Var& x) {
    const Var y = tape.output(x.value);
    tape.record(y, [this, x](Tape& t, const Tensor& dy) {
      order.emplace_back("dx");
      t.add_weight_work([this, dy] { order.emplace_back("dw"); });
      t.add_grad(x, dy);
    });
    return y;
  }
  Var exchange(Tape& tape, const Var& x) {
    const Var y = tape.output(x.value);
    tape.record_exchange(y, [this, x](const Tensor& dy) {
      order.emplace_back("start");
      return [this, x, dy](Tape& t) {
        order.emplace_back("end");
        t.add_grad(x, dy);
      };
    });
    return y;
  }
};

TEST_F(WeightWorkOrder, LiesBetweenTheHalvesOfTheExchangeThatComesNext) {
  Tape tape(backend, stream);
  const Var x = tape.leaf(tensor({1, 2}, 1));
  const Var y = product(tape, product(tape, exchange(tape, product(tape, x))));
  tape.seed(y, tensor({1, 10}, 1));
  tape.backward(nullptr, [&] { order.emplace_back("|"); });
  EXPECT_EQ(order, (std::vector<std::string>{"dx", "dw", "|", "dx", "|", "start", "dw", "end", "|", "dx", "dw", "|"}));
  EXPECT_EQ(host(tape.leaf_grad(x)), (std::vector<double>{1, 10}));
}

TEST_F(WeightWorkOrder, WaitsForNoExchangeThatDoesNotRun) {
  Tape tape(backend, stream);
  const Var x = tape.leaf(tensor({1, 2}, 1));
  const Var a = product(tape, x);
  exchange(tape, x);  // no gradient reaches it
  const Var y = product(tape, a);
  tape.seed(y, tensor({1, 10}, 1));
  tape.backward(nullptr, [&] { order.emplace_back("|"); });
  EXPECT_EQ(order, (std::vector<std::string>{"dx", "dw", "|", "dx", "dw", "|"}));
}

TEST_F(WeightWorkOrder, IsTheQueuesWhenItIsPutOff) {
  Tape tape(backend, stream);
  const Var x = tape.leaf(tensor({1, 2}, 1));
  const Var y = product(tape, exchange(tape, product(tape, x)));
  tape.seed(y, tensor({1, 10}, 1));
  WeightWork later;
  tape.backward(&later);
  EXPECT_EQ(order, (std::vector<std::string>{"dx", "start", "end", "dx"}));
  later.run();
  EXPECT_EQ(order, (std::vector<std::string>{"dx", "start", "end", "dx", "dw", "dw"}));
}

TEST_F(TapeTest, MisuseIsABug) {
  Tape tape(backend, stream);
  const Var x = tape.leaf(tensor({1, 2}, 1));
  EXPECT_THROW(tape.seed(x, tensor({1}, 1)), Bug);
  EXPECT_THROW(tape.split_columns(x, {1, 2}), Bug);
  tape.backward();
  EXPECT_THROW(tape.backward(), Bug);
  EXPECT_THROW(tape.leaf(tensor({1}, 1)), Bug);
  Tape other(backend, stream);
  EXPECT_THROW(other.seed(x, tensor({1, 2}, 1)), Bug);
}

TEST(WeightModes, FirstContributionOverwrites) {
  testing::FakeBackend backend;
  Weight w;
  EXPECT_EQ(w.next_mode(), GradMode::kSkip);
  w.main_grad = Tensor::allocate(backend.allocator(MemoryKind::kGradients), DType::kFloat64, {2, 2});
  EXPECT_EQ(w.next_mode(), GradMode::kOverwrite);
  EXPECT_EQ(w.next_mode(), GradMode::kAccumulate);
  w.contributions = 0;
  EXPECT_EQ(w.next_mode(), GradMode::kOverwrite);
}

}  // namespace
}  // namespace ashlar
