#include "parallel/model/layer_tables.h"
#include "parallel/model/position_tables.h"

namespace ashlar::model {

void LayerTables::make(const Ctx& ctx, const ModelConfig& config, int64_t first, int64_t last, int64_t positions) {
  kinds_.clear();
  kind_of_.assign(static_cast<size_t>(config.n_layers), -1);
  positions_ = positions;
  const std::vector<double> all_temperatures = query_temperatures(config, positions);
  for (int64_t layer = first; layer < last; ++layer) {
    const LayerRope rope = rope_of(config, layer);
    const bool heated = is_of_kind(config, layer, config.attn.temperature_layers);
    const std::vector<double> temperatures = heated ? all_temperatures : std::vector<double>{};
    // In a layer without rotation, queries get their temperatures from a table with angle 0.
    if (rope.base == 0 && temperatures.empty()) continue;
    int64_t kind = 0;
    while (kind < std::ssize(kinds_) && !(kinds_[kind].rope == rope)) ++kind;
    if (kind == std::ssize(kinds_)) {
      std::vector<double> frequencies = rope_frequencies(config, rope, positions);
      if (config.rope.reversed)
        for (double& f : frequencies) f = -f;
      const double factor = rope.scaled ? config.rope.attention_factor : 1.0;
      kinds_.push_back({rope, ops::RopeTables::make(ctx, positions, frequencies, factor, temperatures)});
    }
    kind_of_[layer] = kind;
  }
}

const ops::RopeTables* LayerTables::of(int64_t layer) const {
  if (kind_of_.empty()) return nullptr;
  const int64_t kind = kind_of_[layer];
  return kind < 0 ? nullptr : &kinds_[kind].tables;
}

}  // namespace ashlar::model
