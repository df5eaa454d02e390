#include <algorithm>

#include "launch/config/resolver.h"

namespace ashlar::config {
namespace {

class CheckpointModel {
 public:
  CheckpointModel(RawValues& raw, const model::ModelConfig& stored, const std::string& where, Differing differing)
      : raw_(raw), stored_(stored), where_(where), differing_(differing) {
    if (const auto keys = raw.get<std::vector<std::string>>("run.init_change")) allowed_ = *keys;
    effective_.model = stored;
    for (const KeySpec& spec : schema())
      if (const auto& given = raw.given[index_of(spec)]; given && spec.member.set != nullptr)
        spec.member.set(effective_, *given);
  }

  std::vector<DerivedValue> run() {
    const int64_t multiple = raw_.get<int64_t>("ffn.multiple_of").value_or(1);
    const double fraction = raw_.get<double>("rope.fraction").value_or(1.0);
    settle("ffn.multiple_of", "model.d_ff", Value(model::derived_d_ff(stored_.d_model, stored_.ffn.gated, multiple)));
    settle("rope.fraction", "rope.dims", Value(model::rope_dims_of(stored_.head_dim, fraction)));
    for (const Entry& entry : model_entries(stored_)) {
      const KeySpec& spec = schema()[entry.index];
      if (is_weights_key(spec) && raw_.bad[entry.index] == 0) visit(spec, entry.value);
    }
    return std::move(applied_);
  }

 private:
  void visit(const KeySpec& spec, const Value& stored) {
    std::optional<Value>& given = raw_.given[key_index(spec.name())];
    if (given) {
      Value meant = *given;
      // A word that equals the stored word (e.g. "none") is compared as a word; other words are converted to numbers.
      if (const auto* rule = std::get_if<std::string>(&meant);
          rule != nullptr && spec.type == KeyType::kNumberOrWord && meant != stored)
        meant = value_of_rule(*rule, stored_);
      if (differing_ == Differing::kStays || same_value(meant, stored) || is_allowed(spec.name())) return;
      refuse(spec.name(), value_text(*given), stored);
      given = stored;  // so that keys derived from it give no further errors
      spec.member.set(effective_, stored);
    } else if (applies(spec, effective_)) {
      given = stored;
      applied_.push_back({spec.name(), value_text(stored), str_cat("from ", where_)});
    }
  }

  /// `rule` is a key from which resolve() would derive `key`. If `rule` is given and `key` is not, unsets `rule` and
  /// sets `key` to `value`, which the caller has derived from `rule` and the checkpoint's sizes.
  void settle(std::string_view rule, std::string_view key, const Value& value) {
    std::optional<Value>& given = raw_.given[key_index(rule)];
    if (!given || raw_.given[key_index(key)] || raw_.bad[key_index(key)] != 0) return;
    raw_.given[key_index(key)] = value;
    given.reset();
  }

  bool is_allowed(const std::string& key) const { return std::ranges::find(allowed_, key) != allowed_.end(); }

  void refuse(const std::string& key, const std::string& got, const Value& stored) {
    raw_.errors.push_back(str_cat(key, " = ", got, ": expected ", value_text(stored), ", the value in ", where_,
                                  "; remove the key to use that value, or ",
                                  key == "moe.experts"
                                      ? "make experts of a dense model with ashlar upcycle"
                                      : str_cat("allow the change with run.init_change = [\"", key, "\"]")));
  }

  RawValues& raw_;
  const model::ModelConfig& stored_;
  const std::string& where_;
  Differing differing_;
  std::vector<std::string> allowed_;
  std::vector<DerivedValue> applied_;
  /// The checkpoint's model, with the values that the run gives in place of the checkpoint's. Decides which keys apply.
  RunConfig effective_;
};

}  // namespace

std::vector<DerivedValue> apply_checkpoint_model(RawConfig& raw, const model::ModelConfig& stored,
                                                 const std::string& where, Differing differing) {
  return CheckpointModel(raw.values(), stored, where, differing).run();
}

}  // namespace ashlar::config
