#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/comm/rank_tree.h"

namespace ashlar::comm {

/// What ranks combine, element by element, in place; equal numbers of elements on all ranks, any of them zero. Sums are
/// added along the tree: of equal bits on all ranks and in all runs, not in rank order. A sum of integers beyond 64
/// bits is a Bug. NaN is the largest of maxima and the smallest of minima.
struct HostReduce {
  std::string_view label;  ///< at most 23 letters, the same on all ranks: what a mismatch is called
  std::span<double> sums, maxima, minima;
  std::span<int64_t> int_sums, int_maxima, int_minima;
};
/// The root's text on all ranks; the others' is not looked at.
struct HostBroadcast {
  std::string_view label;
  std::string& text;
  int root = 0;
  int64_t size = -1;  ///< bytes, where all ranks know; compared then
};
/// A text of each rank, by rank, on all of them or on one.
struct HostGather {
  std::string_view label;
  std::string_view mine;  ///< copied
  std::vector<std::string>& all;
  int root = -1;  ///< -1: on all; elsewhere `all` stays as it is
};
/// The texts that any rank has, each once, ascending, on all ranks.
struct HostUnite {
  std::string_view label;
  std::vector<std::string>& texts;
};

/// Host values of ranks that work together (losses, counts, errors, texts), apart from the buffers of devices: small
/// non-blocking operations over messages of their own, advanced by the engine like all others, so that whoever waits
/// keeps the data plane moving.
///   Each goes up a fixed tree of ranks and down again: 2 (p - 1) messages in all, at most 2 log2 p sent by a rank, and
/// nobody has the result before everybody came. Ranks issue the operations of a plane in one order and they run one
/// after another; when they differ (in what they issue, its label, its size), all ranks get a Bug that names both.
///   Whatever an operation refers to lives until its Work is done. One thread only. Errors as those of Communicator.
class ControlPlane {
 public:
  /// Called by all ranks of `ranks`, with nothing under way.
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
