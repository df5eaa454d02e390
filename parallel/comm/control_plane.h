#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/comm/rank_tree.h"

namespace ashlar::comm {

/// Values that ranks reduce element by element, in place; equal counts on all ranks, possibly zero. Sums are added
/// along the tree: bitwise equal on all ranks and in all runs, not in rank order. An integer sum that overflows 64 bits
/// is a Bug. NaN is the largest of maxima and the smallest of minima.
struct HostReduce {
  std::string_view label;  ///< at most 23 characters, the same on all ranks; names a mismatch
  std::span<double> sums, maxima, minima;
  std::span<int64_t> int_sums, int_maxima, int_minima;
};
/// Sends the text of the root to all ranks. The texts of other ranks are ignored.
struct HostBroadcast {
  std::string_view label;
  std::string& text;
  int root = 0;
  int64_t size = -1;  ///< bytes, if known on all ranks; then it is checked
};
/// Gathers the texts of all ranks, by rank, on all ranks or on one.
struct HostGather {
  std::string_view label;
  std::string_view mine;  ///< copied
  std::vector<std::string>& all;
  int root = -1;  ///< -1: on all; on other ranks `all` is unchanged
};
/// Gives all ranks the union of the texts of all ranks, ascending.
struct HostUnite {
  std::string_view label;
  std::vector<std::string>& texts;
};

/// Small non-blocking operations on host values of a group of ranks (losses, counts, errors, texts). Their messages are
/// separate from those of device buffers. The engine advances them like all other operations, so that a wait here also
/// advances the communication of buffers.
///   An operation goes up a fixed tree of ranks and down again. This takes 2 (p - 1) messages in total, of which a rank
/// sends at most 2 log2 p. No rank has the result before all ranks have joined. Ranks issue the operations of a plane
/// in one order, and they run one after another. When ranks differ (in operation, label or size), all get a Bug that
/// names both.
///   Everything an operation refers to must live until its Work is done. One thread only. Errors as those of
/// Communicator.
class ControlPlane {
 public:
  /// Called by all ranks of `ranks`, which must have no pending operations.
  ControlPlane(Communicator& ranks, std::string name);
  ~ControlPlane();
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;

  int rank() const;
  int size() const;
  const std::string& name() const;
  const std::shared_ptr<ProgressEngine>& engine() const;
  void progress() { engine()->progress(); }

  [[nodiscard]] Work reduce(const HostReduce& args);
  [[nodiscard]] Work broadcast(const HostBroadcast& args);
  [[nodiscard]] Work gather(const HostGather& args);
  [[nodiscard]] Work unite(const HostUnite& args);

 private:
  struct Shared;
  class Content;
  class ReduceContent;
  class BroadcastContent;
  class GatherContent;
  class UniteContent;
  class TreeOperation;

  Work launch(OperationInfo info, uint64_t layout, std::string_view label, std::unique_ptr<Content> content);
  void check_root(int root) const;

  std::shared_ptr<Shared> shared_;
};

}  // namespace ashlar::comm
