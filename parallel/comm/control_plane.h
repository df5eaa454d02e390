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

/// Reduces values over all ranks, element by element and in place. All ranks give equal counts of values, possibly
/// zero. Sums are added along the tree of ranks, not in rank order; they are bitwise equal on all ranks, and in all
/// runs with the same number of ranks. An integer sum that overflows 64 bits is a Bug. A maximum or minimum is NaN if
/// one of its operands is NaN.
struct HostReduce {
  std::string_view label;  ///< name of the operation in errors; at most 23 characters, the same on all ranks
  std::span<double> sums, maxima, minima;
  std::span<int64_t> int_sums, int_maxima, int_minima;
};
/// Sends the text of the root to all ranks. The texts of other ranks are ignored.
struct HostBroadcast {
  std::string_view label;
  std::string& text;
  int root = 0;
  int64_t size = -1;  ///< size of the text in bytes if all ranks know it (it is then checked), else -1
};
/// Gathers the texts of all ranks into `all`, indexed by rank, on all ranks or on one.
struct HostGather {
  std::string_view label;
  std::string_view mine;  ///< this rank's text; copied
  std::vector<std::string>& all;
  int root = -1;  ///< rank that gets the texts (`all` is unchanged elsewhere); -1: all ranks get them
};
/// Replaces `texts` on all ranks with the union of the texts of all ranks, in ascending order.
struct HostUnite {
  std::string_view label;
  std::vector<std::string>& texts;
};

/// Small non-blocking collectives of host values (losses, counts, errors, texts) over a group of ranks. Their messages
/// use a separate communicator. ProgressEngine advances them like all other operations, so that a wait here also
/// advances the communication of buffers.
///   In an operation the contributions go up a fixed tree of ranks, and the result goes down. With p ranks an operation
/// takes 2 (p - 1) messages in total, of which a rank sends at most ceil(log2 p); a payload that does not fit into a
/// message of fixed size takes one message more. No rank has the result before all ranks have issued the operation. All
/// ranks issue the operations of a control plane in the same order, and the operations run one after another. When
/// ranks issue different operations (in kind, label or size), all ranks throw a Bug that names both operations.
///   All objects to which an operation refers must live until its Work is done. Only one thread may call a control
/// plane. Throws the same errors as Communicator.
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
