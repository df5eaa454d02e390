#include "parallel/model/logits.h"

#include <cmath>
#include <limits>

namespace ashlar::model {

void finish_logits(const ModelConfig& c, std::span<double> row) {
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  for (double& logit : row) {
    logit *= c.logit_scale;
    if (c.softcap) logit = *c.softcap * std::tanh(logit / *c.softcap);
  }
  for (const int64_t id : c.masked_ids) row[static_cast<size_t>(id)] = kNever;
}

}  // namespace ashlar::model
