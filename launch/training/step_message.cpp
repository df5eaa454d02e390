#include "launch/training/step_message.h"

namespace ashlar::training {

StepExchange::StepExchange(comm::ControlPlane& ranks, const StepMessage& mine)
    : sums_{mine.losses.loss, mine.losses.z_loss, mine.losses.log_z},
      maxima_{mine.losses.max_log_z, mine.losses.max_logit, mine.next_data_wait_ms},
      int_sums_{mine.losses.valid, mine.next.tokens, mine.next.valid_targets},
      int_maxima_{mine.stop, static_cast<int64_t>(mine.save), mine.peak_memory_bytes, mine.unread},
      work_(ranks.reduce({.label = "message of a step",
                          .sums = sums_,
                          .maxima = maxima_,
                          .int_sums = int_sums_,
                          .int_maxima = int_maxima_})) {}

StepMessage StepExchange::wait() {
  work_.wait();
  return {.losses = {.loss = sums_[0],
                     .z_loss = sums_[1],
                     .log_z = sums_[2],
                     .max_log_z = maxima_[0],
                     .max_logit = maxima_[1],
                     .valid = int_sums_[0]},
          .stop = int_maxima_[0],
          .save = static_cast<SaveState>(int_maxima_[1]),
          .peak_memory_bytes = int_maxima_[2],
          .next = {.tokens = int_sums_[1], .valid_targets = int_sums_[2]},
          .next_data_wait_ms = maxima_[2],
          .unread = int_maxima_[3]};
}

}  // namespace ashlar::training
