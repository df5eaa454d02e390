#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <utility>

#include "parallel/comm/checked_comm.h"
#include "parallel/comm/self_comm.h"
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
  kHalf,     ///< the half of the ranks that this one belongs to, in reverse order
};

inline std::string name_of(Kind kind) {
  switch (kind) {
    case Kind::kSelf: return "Self";
    case Kind::kWorld: return "World";
    case Kind::kPieces: return "Pieces";
    case Kind::kSmall: return "Small";
    case Kind::kChecked: return "Checked";
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
    case Kind::kWorld: return bootstrap().make_world("world", {});
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
  OnEachKind() : comm_(make_communicator(GetParam())), rank_(comm_->rank()), ranks_(comm_->size()) {}

  /// Tiny messages are for small buffers.
  int64_t up_to(int64_t size) const { return GetParam() == Kind::kPieces ? std::min<int64_t>(size, 2000) : size; }
  /// Elements of a buffer of several chunks; the reference costs as many operands as there are ranks, on each rank.
  int64_t large() const { return up_to(40001 + (GetParam() == Kind::kWorld ? 1200000 / ranks_ : 0)); }

  std::unique_ptr<comm::Communicator> comm_;
  comm::ControlPlane control_{*comm_, "control"};
  const int rank_, ranks_;
};

inline auto each_kind() {
  return ::testing::Values(Kind::kSelf, Kind::kWorld, Kind::kPieces, Kind::kSmall, Kind::kChecked, Kind::kHalf);
}
inline std::string kind_name(const ::testing::TestParamInfo<Kind>& info) { return name_of(info.param); }

}  // namespace ashlar::testing
