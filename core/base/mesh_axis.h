#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/base/enum_names.h"

namespace ashlar {

/// The axes of the mesh of ranks, outermost first: rank numbers increase fastest along the last axis, kTensor. An Axis
/// is only a name; parallel/mesh maps axes to ranks.
enum class Axis : uint8_t {
  kPipeline,  ///< pipeline stages, each with consecutive layers
  kReplica,   ///< model replicas, each with different samples (data parallelism)
  kContext,   ///< parts of each sequence (context parallelism)
  kExpert,    ///< different experts of each layer; all other weights are replicated (expert parallelism)
  kTensor,    ///< slices of each layer (tensor parallelism)
};
inline constexpr auto kAxisNames = enum_names<Axis>("pipeline", "replica", "context", "expert", "tensor");
constexpr auto names_of(Axis) { return kAxisNames; }
inline constexpr size_t kNumAxes = std::size(kAxisNames);

/// A set of mesh axes.
class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr AxisSet(Axis axis) : bits_(bit(axis)) {}
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (const Axis axis : axes) bits_ |= bit(axis);
  }

  constexpr bool has(Axis axis) const { return (bits_ & bit(axis)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr AxisSet operator|(AxisSet other) const { return AxisSet(bits_ | other.bits_); }
  constexpr AxisSet operator&(AxisSet other) const { return AxisSet(bits_ & other.bits_); }
  /// Returns the axes of this set that are not in `other`.
  constexpr AxisSet operator-(AxisSet other) const { return AxisSet(bits_ & ~other.bits_); }
  constexpr auto operator<=>(const AxisSet&) const = default;

  /// Returns the set as a number below 2^kNumAxes, with one bit per axis. The constructor from uint32_t converts back.
  constexpr uint32_t bits() const { return bits_; }
  constexpr explicit AxisSet(uint32_t bits) : bits_(bits) {}

 private:
  static constexpr uint32_t bit(Axis axis) { return 1U << static_cast<uint32_t>(axis); }

  uint32_t bits_ = 0;
};
std::string text_of(AxisSet axes);  ///< e.g. "replica+tensor"; "no axis" if the set is empty

inline constexpr AxisSet kAllAxes((1U << kNumAxes) - 1);
/// Axes along which ranks process different samples, or different positions of a sample. All weights except experts are
/// replicated over these axes, and their gradients are summed over these axes.
inline constexpr AxisSet kReplicaAxes{Axis::kReplica, Axis::kContext, Axis::kExpert};
/// Axes along which ranks process different samples. The configuration key mesh.data is the product of the sizes of
/// these axes.
inline constexpr AxisSet kSampleAxes{Axis::kReplica, Axis::kExpert};

/// One number for each mesh axis.
class PerAxis {
 public:
  struct Entry {
    Axis axis;
    int64_t value;
  };
  /// `unnamed` is the value of axes without an entry.
  constexpr PerAxis(int64_t unnamed, std::initializer_list<Entry> entries) {
    values_.fill(unnamed);
    for (const Entry& entry : entries) (*this)[entry.axis] = entry.value;
  }

  constexpr int64_t& operator[](Axis axis) { return values_[static_cast<size_t>(axis)]; }
  constexpr int64_t operator[](Axis axis) const { return values_[static_cast<size_t>(axis)]; }
  bool operator==(const PerAxis&) const = default;

 private:
  std::array<int64_t, kNumAxes> values_;
};

}  // namespace ashlar
