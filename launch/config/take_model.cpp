#include <algorithm>
#include <cmath>

#include "launch/config/resolver.h"

namespace ashlar::config {
namespace {

/// Equal as a model reads them: two programs may have rounded the same formula differently.
bool same_value(const Value& a, const Value& b) {
  const double *x = std::get_if<double>(&a), *y = std::get_if<double>(&b);
  if (x == nullptr || y == nullptr) return a == b;
  return std::abs(*x - *y) <= 1e-12 * std::abs(*y);
}

class Taker {
 public:
  Taker(RawValues& raw, const model::ModelConfig& stored, const std::string& where, Differing differing)
      : raw_(raw), stored_(stored), where_(where), differing_(differing) {
    if (const auto& keys = raw.given[key_index("run.init_change")])
      allowed_ = std::get<std::vector<std::string>>(*keys);
  }

  std::vector<DerivedValue> run() {
    settle("ffn.multiple_of", "model.d_ff", Value(d_ff_by_rule()));
    settle("rope.fraction", "rope.dims", Value(model::rope_dims_of(stored_.head_dim, number("rope.fraction"))));
    for (const Entry& entry : model_entries(stored_)) {
      const KeySpec& spec = schema()[entry.index];
      if (is_model_key(spec) && raw_.bad[entry.index] == 0) visit(spec, entry.value);
    }
    return std::move(taken_);
  }

 private:
  void visit(const KeySpec& spec, const Value& stored) {
    std::optional<Value>& given = raw_.given[key_index(spec.name())];
    if (given) {
      Value meant = *given;
      if (const auto* rule = std::get_if<std::string>(&meant); rule != nullptr && spec.name() == "attn.scale")
        meant = attention_scale(*rule, stored_);
      if (differing_ == Differing::kStays || same_value(meant, stored) || is_allowed(spec.name())) return;
      refuse(spec.name(), value_text(*given), stored);
      given = stored;  // so that what follows from it is not wrong as well
    } else if (applies(spec)) {
      given = stored;
      taken_.push_back({spec.name(), value_text(stored), str_cat("of ", where_)});
    }
  }

  /// A key that a rule of the configuration gives the value of: taken as such a value, the rule is done with.
  void settle(std::string_view rule, std::string_view key, const Value& value) {
    std::optional<Value>& given = raw_.given[key_index(rule)];
    if (!given || raw_.given[key_index(key)] || raw_.bad[key_index(key)] != 0) return;
    raw_.given[key_index(key)] = value;
    given.reset();
  }

  int64_t d_ff_by_rule() const {
    const auto& given = raw_.given[key_index("ffn.multiple_of")];
    return model::derived_d_ff(stored_.d_model, stored_.ffn.gated, given ? std::get<int64_t>(*given) : 1);
  }
  double number(std::string_view key) const {
    const auto& given = raw_.given[key_index(key)];
    return given ? std::get<double>(*given) : 1.0;
  }

  /// False for a key that the configuration's own kind of positions or block has no use for.
  bool applies(const KeySpec& spec) const {
    const auto word = [&](std::string_view key) {
      const auto& given = raw_.given[key_index(key)];
      const auto* text = given ? std::get_if<std::string>(&*given) : nullptr;
      return text != nullptr ? *text : std::string();
    };
    const std::string positions = word("pos.type"), topology = word("block.topology");
    if (std::string_view(spec.section) == "rope") return positions.empty() || positions == "rope";
    if (spec.name() == "pos.max_positions") return positions.empty() || positions == "learned";
    if (spec.name() == "block.parallel_norms") return topology.empty() || topology == "parallel";
    return true;
  }

  bool is_allowed(const std::string& key) const {
    return std::find(allowed_.begin(), allowed_.end(), key) != allowed_.end();
  }

  void refuse(const std::string& key, const std::string& got, const Value& stored) {
    raw_.errors.push_back(str_cat(key, " = ", got, ": expected ", value_text(stored), ", as ", where_,
                                  " has it; remove the key to take that, or permit it by run.init_change = [\"", key,
                                  "\"]"));
  }

  RawValues& raw_;
  const model::ModelConfig& stored_;
  const std::string& where_;
  Differing differing_;
  std::vector<std::string> allowed_;
  std::vector<DerivedValue> taken_;
};

}  // namespace

std::vector<DerivedValue> take_model(RawConfig& raw, const model::ModelConfig& stored, const std::string& where,
                                     Differing differing) {
  return Taker(raw.values(), stored, where, differing).run();
}

}  // namespace ashlar::config
