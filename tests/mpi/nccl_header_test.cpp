// What this program declares of NCCL against the vendor's header, where it is.
#include <gtest/gtest.h>

#include "parallel/comm/nccl_api.h"

#if __has_include(<nccl.h>)
#include <nccl.h>

#include <cstddef>
#include <type_traits>

namespace ashlar::testing {
namespace {

namespace ours = comm::nccl;

template <typename Ours, typename Theirs>
constexpr bool same(Ours a, Theirs b) {
  return static_cast<int>(a) == static_cast<int>(b);
}

static_assert(sizeof(ours::UniqueId) == sizeof(ncclUniqueId));
static_assert(same(ours::Result::kSuccess, ncclSuccess) && same(ours::Result::kInProgress, ncclInProgress));
static_assert(same(ours::Result::kUnhandledCudaError, ncclUnhandledCudaError));
static_assert(same(ours::Result::kSystemError, ncclSystemError));
static_assert(same(ours::Result::kInternalError, ncclInternalError));
static_assert(same(ours::Result::kInvalidArgument, ncclInvalidArgument));
static_assert(same(ours::Result::kInvalidUsage, ncclInvalidUsage));
static_assert(same(ours::Result::kRemoteError, ncclRemoteError));
static_assert(same(ours::Type::kUint8, ncclUint8) && same(ours::Type::kInt32, ncclInt32));
static_assert(same(ours::Type::kInt64, ncclInt64) && same(ours::Type::kFloat32, ncclFloat32));
static_assert(same(ours::Type::kFloat64, ncclFloat64) && same(ours::Type::kBfloat16, ncclBfloat16));
static_assert(same(ours::RedOp::kSum, ncclSum) && same(ours::RedOp::kMax, ncclMax));
static_assert(ours::kNoColor == NCCL_SPLIT_NOCOLOR && ours::kUndefined == NCCL_CONFIG_UNDEF_INT);
static_assert(ours::kSymmetricWindow == NCCL_WIN_COLL_SYMMETRIC);
#ifdef NCCL_WIN_REQUIRED_ALIGNMENT
static_assert(ours::kWindowAlignment == NCCL_WIN_REQUIRED_ALIGNMENT);
#endif

// A later header may have more members behind these; the library takes a config of an earlier version.
static_assert(sizeof(ours::Config) <= sizeof(ncclConfig_t));
static_assert(offsetof(ours::Config, size) == offsetof(ncclConfig_t, size));
static_assert(offsetof(ours::Config, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(ours::Config, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(ours::Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(ours::Config, split_share) == offsetof(ncclConfig_t, splitShare));
static_assert(offsetof(ours::Config, comm_name) == offsetof(ncclConfig_t, commName));
static_assert(offsetof(ours::Config, nvlink_centric_sched) == offsetof(ncclConfig_t, nvlinkCentricSched));

// Calls pass the same words: each argument is of one size and kind, or a pointer, on both sides.
template <typename A, typename B>
constexpr bool alike() {
  return sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B> &&
         std::is_class_v<A> == std::is_class_v<B>;
}
template <typename R1, typename... A1, typename R2, typename... A2>
constexpr bool called_alike(R1 (*)(A1...), R2 (*)(A2...)) {
  if constexpr (sizeof...(A1) != sizeof...(A2)) {
    return false;
  } else {
    return alike<R1, R2>() && (alike<A1, A2>() && ...);
  }
}
#define SAME_CALL(name) static_assert(called_alike(decltype(ours::Api::name)(nullptr), decltype (&nccl##name)(nullptr)))
SAME_CALL(GetVersion);
SAME_CALL(GetUniqueId);
SAME_CALL(GetErrorString);
SAME_CALL(GetLastError);
SAME_CALL(CommInitRankConfig);
SAME_CALL(CommSplit);
SAME_CALL(CommFinalize);
SAME_CALL(CommDestroy);
SAME_CALL(CommAbort);
SAME_CALL(CommGetAsyncError);
SAME_CALL(AllReduce);
SAME_CALL(ReduceScatter);
SAME_CALL(Reduce);
SAME_CALL(AllGather);
SAME_CALL(Broadcast);
SAME_CALL(Send);
SAME_CALL(Recv);
SAME_CALL(GroupStart);
SAME_CALL(GroupEnd);
SAME_CALL(MemAlloc);
SAME_CALL(MemFree);
SAME_CALL(CommWindowRegister);
SAME_CALL(CommWindowDeregister);
#undef SAME_CALL

TEST(NcclHeader, HasTheSameInitialConfig) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const ours::Config config;
  EXPECT_EQ(config.magic, theirs.magic);
  EXPECT_LE(config.size, theirs.size);
  EXPECT_EQ(config.blocking, theirs.blocking);
  EXPECT_EQ(config.net_name, theirs.netName);
  EXPECT_EQ(config.nvlink_centric_sched, theirs.nvlinkCentricSched);
}

}  // namespace
}  // namespace ashlar::testing

#else

TEST(NcclHeader, HasTheSameInitialConfig) { GTEST_SKIP() << "no nccl.h here"; }

#endif
