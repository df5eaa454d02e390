#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/enum_names.h"

namespace ashlar::pipeline {

/// The order in which the stages of a pipeline run the micro-batches of a step. P stages, M micro-batches, V chunks per
/// stage; tf, tb: time of one micro-batch's forward and backward on a whole stage (all its chunks), tb = ti + tw (input
/// and weight part). Every P, M >= 1 is valid, including P = 1 and M < P. With equal costs and free transfers a step
/// takes
///   kind          V      time of the step                                    live on stage p         queued on stage p
///   forward_only  >= 1   (V max(M,P) + min(M,P) - 1) tf/V                    0                       0
///   gpipe         1      (M + P - 1)(tf + tb)                                M                       0
///   1f1b          1      (M + P - 1)(tf + tb)                                min(P - p, M)           0
///   interleaved   >= 1   (V max(M,P) + min(M,P) - 1)(tf + tb)/V              min(w + 1, M V)         0
///   zb-h1         1      M(tf + tb) + (P - 1)(tf + ti) - (min(M,P) - 1) tw   min(P - p, M)           min(p + 1, M)
///
/// of which M(tf + tb) is work (M tf for forward_only) and the rest is bubble: (P-1)/(M+P-1) of the time for gpipe and
/// 1f1b, the bubble of 1f1b divided by V for interleaved with M >= P, a third of the bubble of 1f1b for zb-h1 with tf =
/// ti = tw and M >= P. The time of zb-h1 holds while tw <= min(tf, ti). Live: largest number of pairs (micro-batch,
/// chunk) whose forward has run and whose (input) backward has not. Queued: largest number of pairs whose input
/// backward has run and whose weight backward has not. In zb-h1 live + queued is at most min(P, M), as many as 1f1b has
/// live on stage 0.
///
/// w = P - 1 - p for V = 1 (interleaved is then 1f1b) and 2(P - 1 - p) + (V - 1) g for V > 1: the number of warm-up
/// forwards of interleaved. The interleaved schedule runs micro-batches in groups, each group through all chunks of a
/// stage in turn. Megatron's groups have P micro-batches, so M % P must be 0 there. Here M >= P is divided into M / P
/// (rounded down) groups of nearly equal size, and M < P is one group. So any M works without extra bubble. g is the
/// size of the largest group: P when P divides M.
///
/// Sources: gpipe: Huang et al. 2019, arXiv:1811.06965. 1f1b, interleaved and its w: Narayanan et al. 2021,
/// arXiv:2104.04473, section 2.2, and Megatron-LM's schedules.py. zb-h1: Qi et al. 2023, arXiv:2401.10241, section 2.
enum class PipelineSchedule : uint8_t { kForwardOnly, kGpipe, k1F1B, kInterleaved, kZbH1 };
constexpr auto names_of(PipelineSchedule) {
  return enum_names<PipelineSchedule>("forward_only", "gpipe", "1f1b", "interleaved", "zb-h1");
}
using ashlar::name_of;

struct ScheduleSpec {
  PipelineSchedule kind = PipelineSchedule::k1F1B;
  int64_t stages = 1;
  int64_t micro_batches = 1;
  int64_t virtual_stages = 1;  ///< chunks per stage

  int64_t chunks() const { return stages * virtual_stages; }  ///< chunks of the model
  bool operator==(const ScheduleSpec&) const = default;
};

/// Converts chunk c of a stage to its index in the model, and back. Adjacent chunks of the model are on adjacent
/// stages; the last stage is followed by stage 0 with its next chunk.
inline int64_t model_chunk(int64_t stage, int64_t chunk, int64_t stages) { return chunk * stages + stage; }
inline int64_t stage_of(int64_t model_chunk, int64_t stages) { return model_chunk % stages; }
inline int64_t chunk_of(int64_t model_chunk, int64_t stages) { return model_chunk / stages; }

enum class Payload : uint8_t {
  kActivation,  ///< hidden rows, sent to the next chunk of the model
  kGradient,    ///< gradient of hidden rows, sent to the previous chunk
};
constexpr auto names_of(Payload) { return enum_names<Payload>("activation", "gradient"); }

/// A tensor in transfer. `chunk` is a chunk of the stage whose list has the message: the chunk that produces the tensor
/// if the stage sends it, or the chunk that consumes it if the stage receives it.
struct Message {
  Payload payload = Payload::kActivation;
  int64_t micro_batch = 0;
  int64_t chunk = 0;
  bool operator==(const Message&) const = default;
};

enum class ActionKind : uint8_t {
  kForward,
  kBackward,        ///< input and weight gradients
  kBackwardInput,   ///< input gradients; defers weight gradients: Tape::backward with a WeightWork
  kBackwardWeight,  ///< the deferred weight gradients of this chunk and micro-batch
  kTransfer,        ///< a send, a receive, or both at once
};
constexpr auto names_of(ActionKind) {
  return enum_names<ActionKind>("forward", "backward", "input backward", "weight backward", "transfer");
}

/// One entry of a stage's list; entries run in order. A transfer is one exchange between two stages, and is complete on
/// both at once. If both send, both must post their receive before they wait. If two adjacent chunks are on one stage,
/// `peer` is the stage itself, and the sent tensor is the received one.
struct Action {
  ActionKind kind = ActionKind::kForward;
  int64_t micro_batch = 0;               ///< compute only
  int64_t chunk = 0;                     ///< compute only: chunk of this stage, 0 .. virtual_stages - 1
  int64_t peer = 0;                      ///< transfer only: the other stage
  std::optional<Message> send, receive;  ///< transfer only: one or both are set
  bool operator==(const Action&) const = default;
};

std::string describe(const Action& action);  ///< "forward of micro-batch 3 on chunk 0", for errors and logs

using ActionList = std::vector<Action>;

/// Returns the action lists of all stages, indexed by stage. The result depends only on `spec`. Each chunk runs its
/// backwards, and its weight backwards, in ascending order of micro-batches. So gradients are summed in the same order
/// for all schedules. A stage receives a tensor right before the round (add_transfers) that needs the tensor. All lists
/// follow the order of one global list, so there is no deadlock, whether or not the transport buffers messages. Throws
/// an input error for sizes below 1, and for V > 1 with a schedule for which the table above has V = 1.
std::vector<ActionList> make_schedules(const ScheduleSpec& spec);
/// Returns the action list of one stage, equal to its list in make_schedules.
ActionList make_schedule(const ScheduleSpec& spec, int64_t stage);

/// The lists of one stage for several specs. Each list is computed at its first use. After that a step costs only a
/// look-up, for any number of stages and micro-batches.
class StageSchedules {
 public:
  explicit StageSchedules(int64_t stage) : stage_(stage) {}

  /// Returns the list for `spec`. The reference stays valid. Throws the errors of make_schedule.
  const ActionList& of(const ScheduleSpec& spec);
  int64_t made() const { return static_cast<int64_t>(lists_.size()); }  ///< number of computed lists

 private:
  int64_t stage_;
  std::list<std::pair<ScheduleSpec, ActionList>> lists_;
};

}  // namespace ashlar::pipeline
