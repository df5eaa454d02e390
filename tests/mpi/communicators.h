#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <utility>

#include "kernels/make_backend.h"
#include "parallel/comm/self_comm.h"
#include "parallel/comm/staged_comm.h"
#include "tests/mpi/checked_comm.h"
#include "tests/stand_ins/over_nccl.h"
#include "tests/support/deferred/deferred_backend.h"
#include "tests/support/ranks/ranks.h"

namespace ashlar::testing {

/// The kinds of communicator that must behave alike.
enum class Kind {
  kSelf,     ///< one rank, whatever the world
  kWorld,    ///< all ranks: over MPI when started by mpirun
  kPieces,   ///< the same, cut into tiny messages: chunks of 256 bytes, messages of 96, nothing sent whole; tags soon
             ///< wrap
  kSmall,    ///< the same, every vector by the ways of small ones on many ranks
  kChecked,  ///< all ranks, checked
  kStaged,   ///< all ranks, with buffers of a device whose work comes later
  kNccl,     ///< the same device, and the stand-in for NCCL; from two ranks on, where NCCL's header is
  kHalf,     ///< the half of the ranks that this one belongs to, in reverse order
};

inline std::string name_of(Kind kind) {
  switch (kind) {
    case Kind::kSelf: return "Self";
    case Kind::kWorld: return "World";
    case Kind::kPieces: return "Pieces";
    case Kind::kSmall: return "Small";
    case Kind::kChecked: return "Checked";
    case Kind::kStaged: return "Staged";
    case Kind::kNccl: return "Nccl";
    case Kind::kHalf: return "Half";
  }
  return "";
}

inline void PrintTo(Kind kind, std::ostream* out) { *out << name_of(kind); }

inline std::unique_ptr<comm::Communicator> make_communicator(Kind kind) {
  constexpr comm::Tuning kPieces = {.chunk_bytes = 256,
                                    .chunks_in_flight = 3,
                                    .direct_bytes = 0,
                                    .small_bytes = -1,
                                    .max_message_bytes = 96,
                                    .first_number = 16380};
  constexpr comm::Tuning kSmall = {.small_bytes = 1 << 30, .small_ranks = 2};
  switch (kind) {
    case Kind::kSelf: return std::make_unique<comm::SelfComm>("self");
    case Kind::kWorld:
    case Kind::kStaged:
    case Kind::kNccl: return bootstrap().make_world("world", {});
    case Kind::kPieces: return bootstrap().make_world("pieces", kPieces);
    case Kind::kSmall: return bootstrap().make_world("small", kSmall);
    case Kind::kChecked: return std::make_unique<comm::CheckedComm>(bootstrap().make_world("checked", {}));
    case Kind::kHalf: {
      comm::Communicator& world = bootstrap().world();
      return world.split({.color = world.rank() % 2, .key = -world.rank(), .name = "half"});
    }
  }
  return nullptr;
}

/// A test on each kind.
class OnEachKind : public ::testing::TestWithParam<Kind> {
 protected:
  OnEachKind() : OnEachKind(make_communicator(GetParam())) {}
  void SetUp() override {
    if (GetParam() == Kind::kNccl && !over_nccl(ranks_))
      GTEST_SKIP() << (ranks_ == 1 ? "one rank needs no NCCL" : "no nccl.h to build the stand-in against");
  }

  /// Tiny messages are for small buffers.
  int64_t up_to(int64_t size) const { return GetParam() == Kind::kPieces ? std::min<int64_t>(size, 2000) : size; }
  /// Elements of a buffer of several chunks; the reference costs as many operands as there are ranks, on each rank.
  int64_t large() const { return up_to(40001 + (GetParam() == Kind::kWorld ? 1200000 / ranks_ : 0)); }

  std::unique_ptr<DeferredBackend> device_ =
      GetParam() == Kind::kStaged || GetParam() == Kind::kNccl ? make_device() : nullptr;
  std::unique_ptr<comm::Communicator> host_;
  std::unique_ptr<comm::Communicator> comm_;
  std::unique_ptr<Stream> owned_stream_ = device_ ? device_->make_stream() : std::make_unique<SynchronousStream>();
  Stream& stream_ = *owned_stream_;
  comm::ControlPlane control_{comm_->host(), "control"};
  const int rank_, ranks_;

 private:
  static std::unique_ptr<DeferredBackend> make_device() {
    return std::make_unique<DeferredBackend>(kernels::make_backend({.threads = 1}), std::random_device()());
  }
  static bool over_nccl(int ranks) { return GetParam() == Kind::kNccl && ranks > 1 && !stand_in_nccl().empty(); }
  std::unique_ptr<comm::Communicator> make_on_device() {
    if (over_nccl(host_->size())) return make_nccl(*host_, *device_);
    return std::make_unique<comm::StagedComm>(*host_, *device_);
  }
  explicit OnEachKind(std::unique_ptr<comm::Communicator> made)
      : host_(device_ ? std::move(made) : nullptr),
        comm_(device_ ? make_on_device() : std::move(made)),
        rank_(comm_->rank()),
        ranks_(comm_->size()) {}
};

inline auto each_kind() {
  return ::testing::Values(Kind::kSelf, Kind::kWorld, Kind::kPieces, Kind::kSmall, Kind::kChecked, Kind::kStaged,
                           Kind::kNccl, Kind::kHalf);
}
inline std::string kind_name(const ::testing::TestParamInfo<Kind>& info) { return name_of(info.param); }

}  // namespace ashlar::testing
