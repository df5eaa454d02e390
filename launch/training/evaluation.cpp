#include "launch/training/evaluation.h"

#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::training {

std::vector<pipeline::MicroBatch> micro_batches(std::span<const DeviceBatch> slots) {
  std::vector<pipeline::MicroBatch> batches;
  for (const DeviceBatch& slot : slots) batches.push_back(slot.micro_batch());
  return batches;
}

// With 4 p - 3 micro-batches per round, the p pipeline stages are idle for less than a fifth of the time.
int64_t batches_per_round(const mesh::Mesh& mesh) { return 4 * mesh.size(Axis::kPipeline) - 3; }

bool counts_text(const mesh::Mesh& mesh) { return mesh.first_stage() && mesh.at()[Axis::kTensor] == 0; }

std::optional<Evaluation> evaluate(Engine& engine, data::BatchSource& stream, const data::TokenBytes* bytes,
                                   const std::function<int64_t()>& stop) {
  const bool counts = counts_text(engine.mesh());
  int64_t text_bytes = 0;
  std::vector<DeviceBatch> slots(batches_per_round(engine.mesh()));
  data::Batch batch;
  LossStats own;
  bool more = true, held = false;  // held: `batch` has another shape and waits for the next round
  // Replicas exchange the rows of experts, so all take part in every round.
  const bool together = stop || engine.mesh().size(Axis::kExpert) > 1;
  while (true) {
    // Replicas may have different numbers of batches. A replica without more batches still takes part in every
    // exchange.
    double asked[] = {more || held ? 1.0 : 0.0, stop ? static_cast<double>(stop()) : 0.0};
    if (together) comm::max_all(engine.mesh().control(), asked);
    if (asked[1] != 0) return std::nullopt;
    if (asked[0] == 0) break;
    size_t n = 0;
    comm::try_on_all_ranks(engine.mesh().control(), [&] {  // damaged data on one rank is an error on all
      while (n < slots.size() && (held || (more = stream.next(batch)))) {
        held = n > 0 && batch.B * batch.T != slots[0].view().rows();  // stages exchange tensors of one shape per round
        if (held) break;
        slots[n++].upload(engine.ctx(), batch, engine.options().model.masked_ids);
        if (counts) text_bytes += data::text_bytes(batch, *bytes);
      }
    });
    engine.evaluate(micro_batches(std::span(slots).first(n)), own);
  }
  const LossStats losses = engine.total(own);
  return Evaluation{.losses = losses, .text_bytes = comm::sum_of(engine.mesh().control(), text_bytes)};
}

}  // namespace ashlar::training
