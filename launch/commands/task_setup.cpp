#include "launch/commands/task_setup.h"

#include "launch/hf/hf_checkpoint.h"
#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::launch {

std::unique_ptr<tasks::Evaluation> open_tasks(TaskSetup setup) {
  const auto found = setup.metadata.find(hf::kClassKey);
  const bool gemma = found != setup.metadata.end() && found->second.starts_with("Gemma");
  training::ScoreLimits limits{.tokens = setup.tokens, .longest = setup.max_length};
  if (setup.rows > 0) {
    limits.tokens = setup.rows * setup.max_length;
    limits.rows = setup.rows;
  }
  const int64_t begin = hf::begin_id(setup.metadata).value_or(setup.tokenizer.eod_id());
  return std::make_unique<tasks::Evaluation>(setup.options,
                                             tasks::EncodeRule{.tokenizer = setup.tokenizer,
                                                               .max_length = setup.max_length,
                                                               .with_template = setup.with_template || gemma,
                                                               .prefix_id = static_cast<int32_t>(begin)},
                                             limits);
}

void check_same_texts(comm::ControlPlane& ranks, const training::TaskEvaluation& evaluation) {
  const auto mine = static_cast<int64_t>(evaluation.fingerprint() >> 1);
  const int64_t largest = comm::max_of(ranks, mine), smallest = -comm::max_of(ranks, -mine);
  if (largest != smallest)
    throw comm::AllRanksError(ExitCode::kInput, "tasks",
                              "the ranks have read different task files; give every node the same ones");
}

}  // namespace ashlar::launch
