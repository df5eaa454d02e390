#pragma once

#include <cstdint>
#include <memory>

#include "core/io/safetensors.h"
#include "data/tokenizer/tokenizer.h"
#include "launch/tasks/evaluation.h"
#include "parallel/comm/control_plane.h"

namespace ashlar::launch {

/// Default of --task-data and of data fetch.
inline constexpr const char* kTaskData = "task-data";

/// What `eval --tasks` and train.eval_tasks open an evaluation with.
struct TaskSetup {
  tasks::EvaluationOptions options;
  const data::Tokenizer& tokenizer;
  const io::Metadata& metadata;  ///< of the checkpoint
  int64_t max_length = 0;        ///< tokens of the longest sequence
  int64_t tokens = 0;            ///< of a micro-batch
  int64_t rows = 0;              ///< of a micro-batch; 0: as many as `tokens` allow
  bool with_template = false;    ///< adds the tokenizer's template; set for Gemma, as in lm-evaluation-harness
};

std::unique_ptr<tasks::Evaluation> open_tasks(TaskSetup setup);

/// (all ranks) Throws the same input error on all ranks unless all have read the same texts.
void check_same_texts(comm::ControlPlane& ranks, const training::TaskEvaluation& evaluation);

}  // namespace ashlar::launch
