#include "data/build/validation_split.h"

#include <algorithm>
#include <cmath>

#include "core/base/philox.h"

namespace ashlar::data {

SplitRule split_rule(double share, int64_t documents) {
  if (share <= 0) return SplitRule::kNone;
  return documents < kWholeDocumentsFrom ? SplitRule::kTail : SplitRule::kDocuments;
}

bool is_validation_document(double share, int64_t document) {
  if (share <= 0) return false;
  const auto begin_of = [&](int64_t run) { return static_cast<int64_t>(std::ceil(static_cast<double>(run) / share)); };
  auto run = static_cast<int64_t>(static_cast<double>(document) * share);
  while (begin_of(run) > document) --run;
  while (begin_of(run + 1) <= document) ++run;
  int64_t length = begin_of(run + 1) - begin_of(run);
  if (run == 0) length = std::min(length, kWholeDocumentsFrom);
  const uint32_t random = Philox::block(0, hash64("data.validation"), static_cast<uint64_t>(run))[0];
  return document == begin_of(run) + random % length;
}

int64_t tail_train_tokens(double share, int64_t total_tokens) {
  return static_cast<int64_t>(std::floor(static_cast<double>(total_tokens) * (1 - share)));
}

}  // namespace ashlar::data
