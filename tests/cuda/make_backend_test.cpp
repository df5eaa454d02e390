// The emulated device as what kernels::make_backend opens: this suite links its door.
#include "kernels/make_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "core/tuning/tuner.h"

namespace ashlar::test {
namespace {

TEST(MakeBackend, MakesTheEmulatedDevice) {
  const auto backend = kernels::make_backend({.device = "cuda", .max_memory_bytes = 1 << 20});
  EXPECT_THAT(backend->description(), ::testing::StartsWith("emulated device"));
  const std::unique_ptr<Stream> stream = backend->make_stream();
  EXPECT_FALSE(stream->synchronous());
  const std::unique_ptr<Event> event = backend->make_event();
  stream->record(*event);
  event->synchronize();
  EXPECT_TRUE(event->reached());
  EXPECT_EQ(backend->num_gemms(), 0);
  auto* const tunable = dynamic_cast<Tunable*>(backend.get());
  ASSERT_NE(tunable, nullptr);
  EXPECT_EQ(tunable->tuner(), nullptr) << "its products have one algorithm";
  EXPECT_THROW(kernels::make_backend({.device = "cuda", .attention = AttentionKernels::kCudnn}), Error);
  EXPECT_THROW(backend->allocator(MemoryKind::kParameters).allocate(2 << 20), Error);
}

}  // namespace
}  // namespace ashlar::test
