#include "data/read/batch.h"

#include "core/base/error.h"

namespace ashlar::data {

void resize_batch(Batch& batch, int64_t B, int64_t T, const DocumentRule& rule) {
  ASHLAR_CHECK(B > 0 && T > 0, "B = ", B, ", T = ", T);
  const auto n = static_cast<size_t>(B * T);
  batch.B = B;
  batch.T = T;
  batch.ids.resize(n);
  batch.targets.resize(n);
  batch.positions.resize(n);
  batch.order.resize(n);
  batch.doc_start.resize(rule.mask ? n : 0);
  batch.valid_targets = 0;
}

void fill_row(Batch& batch, int64_t b, std::span<const int32_t> tokens, int32_t eod, const DocumentRule& rule) {
  const int64_t T = batch.T;
  const auto available = static_cast<int64_t>(tokens.size());
  ASHLAR_CHECK(b >= 0 && b < batch.B && available <= T + 1, "row ", b, " of ", batch.B, ", ", available, " tokens");
  int32_t* ids = batch.ids.data() + b * T;
  int32_t* targets = batch.targets.data() + b * T;
  int32_t* positions = batch.positions.data() + b * T;
  int32_t* doc_start = rule.mask ? batch.doc_start.data() + b * T : nullptr;
  int32_t start = 0;
  for (int64_t t = 0; t < T; ++t) {
    const bool inside = t < available;
    ids[t] = inside ? tokens[t] : eod;
    const bool counted = t + 1 < available && !(rule.mask && ids[t] == eod);
    targets[t] = counted ? tokens[t + 1] : kIgnoreIndex;
    batch.valid_targets += counted ? 1 : 0;
    positions[t] = static_cast<int32_t>(rule.restart_positions ? t - start : t);
    if (doc_start != nullptr) doc_start[t] = start;
    if (ids[t] == eod) start = static_cast<int32_t>(t + 1);
  }
}

void fill_order(Batch& batch, int32_t vocab_size, std::vector<int32_t>& counts) {
  counts.assign(static_cast<size_t>(vocab_size) + 1, 0);
  for (const int32_t id : batch.ids) {
    ASHLAR_CHECK(id >= 0 && id < vocab_size, "id ", id, " of ", vocab_size);
    ++counts[id + 1];
  }
  for (int32_t v = 0; v < vocab_size; ++v) counts[v + 1] += counts[v];
  for (size_t n = 0; n < batch.ids.size(); ++n) batch.order[counts[batch.ids[n]]++] = static_cast<int32_t>(n);
}

int64_t text_bytes(const Batch& batch, const TokenBytes& bytes) {
  int64_t sum = 0;
  for (size_t n = 0; n < batch.targets.size(); ++n) {
    if (batch.targets[n] == kIgnoreIndex) continue;
    sum += bytes.of(batch.targets[n], batch.ids[n] == bytes.eod_id());
  }
  return sum;
}

}  // namespace ashlar::data
