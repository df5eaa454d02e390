#include <algorithm>

#include "core/base/philox.h"
#include "core/base/strings.h"
#include "launch/config/raw_values.h"

namespace ashlar::config {
namespace {

/// Collects entries; integers below the key's range (a size that a model-only config lacks) are left out.
class Entries {
 public:
  void add(std::string_view key, Value value) {
    const size_t index = key_index(key);
    if (const int64_t* v = std::get_if<int64_t>(&value); v && static_cast<double>(*v) < schema()[index].low) return;
    list_.push_back({index, std::move(value)});
  }
  void add(std::string_view key, const char* word) { add(key, Value(std::string(word))); }
  std::vector<Entry> sorted() {
    std::sort(list_.begin(), list_.end(), [](const Entry& a, const Entry& b) { return a.index < b.index; });
    return std::move(list_);
  }

 private:
  std::vector<Entry> list_;
};

void add_model(Entries& e, const model::ModelConfig& m) {
  using model::name_of;
  e.add("model.d_model", m.d_model);
  e.add("model.n_layers", m.n_layers);
  e.add("model.n_heads", m.n_heads);
  e.add("model.n_kv_heads", m.n_kv_heads);
  e.add("model.head_dim", m.head_dim);
  e.add("model.d_ff", m.d_ff);
  e.add("vocab.size", m.vocab_size);
  e.add("vocab.pad_to", m.vocab_pad_to);
  e.add("norm.type", name_of(m.norm.type));
  e.add("norm.affine", name_of(m.norm.affine));
  e.add("norm.eps", m.norm.eps);
  e.add("norm.final", m.norm.final);
  e.add("block.topology", name_of(m.block.topology));
  if (m.block.topology == model::Topology::kParallel) e.add("block.parallel_norms", int64_t{m.block.parallel_norms});
  e.add("bias.qkv", m.bias.qkv);
  e.add("bias.attn_out", m.bias.attn_out);
  e.add("bias.ffn", m.bias.ffn);
  e.add("bias.lm_head", m.bias.lm_head);
  e.add("ffn.act", name_of(m.ffn.act));
  e.add("ffn.gated", m.ffn.gated);
  e.add("pos.type", name_of(m.pos.type));
  if (m.pos.type == model::PosType::kLearned) e.add("pos.max_positions", m.pos.max_positions);
  if (m.pos.type == model::PosType::kRope) {
    e.add("rope.base", m.rope.base);
    e.add("rope.dims", m.rope.dims);
    e.add("rope.style", name_of(m.rope.style));
  }
  e.add("attn.scale", m.attn_scale);
  e.add("dropout.embed", m.dropout.embed);
  e.add("dropout.attn", m.dropout.attn);
  e.add("dropout.resid", m.dropout.resid);
  e.add("head.tie", m.tied);
  e.add("loss.z_coef", m.loss.z_coef);
  e.add("loss.z_kind", name_of(m.loss.z_kind));
  e.add("init.scheme", name_of(m.init.scheme));
  e.add("init.std", m.init.std);
  e.add("init.residual_scale", m.init.residual_scale);
}

std::string toml_of(const std::vector<Entry>& entries) {
  std::string text;
  std::string_view section;
  for (const Entry& entry : entries) {
    const KeySpec& spec = schema()[entry.index];
    if (spec.section != section) {
      section = spec.section;
      text += str_cat(text.empty() ? "[" : "\n[", section, "]\n");
    }
    text += str_cat(std::string_view(spec.key), " = ", value_text(entry.value), "\n");
  }
  return text;
}

}  // namespace

std::vector<Entry> model_entries(const model::ModelConfig& config) {
  Entries e;
  add_model(e, config);
  return e.sorted();
}

std::vector<Entry> config_entries(const RunConfig& c) {
  Entries e;
  e.add("run.dir", Value(c.run.dir));
  e.add("run.seed", c.run.seed);
  if (c.run.init_from) e.add("run.init_from", Value(*c.run.init_from));
  if (!c.run.init_change.empty()) e.add("run.init_change", c.run.init_change);
  e.add("run.device", name_of(c.run.device));
  e.add("run.dtype", Value(std::string(ashlar::name_of(c.run.dtype))));
  e.add("run.threads", c.run.threads);
  e.add("run.deterministic", c.run.deterministic);
  e.add("run.hang_after", c.run.hang_after);
  e.add("run.stall_after", c.run.stall_after);
  e.add("run.hang_action", name_of(c.run.hang_action));
  add_model(e, c.model);
  e.add("mesh.tensor", c.mesh.tensor);
  e.add("mesh.pipeline", c.mesh.pipeline);
  e.add("mesh.data", c.mesh.data);
  e.add("mesh.sequence_parallel", c.mesh.sequence_parallel);
  e.add("mesh.schedule", name_of(c.mesh.schedule));
  if (c.mesh.schedule == PipelineSchedule::kInterleaved) e.add("mesh.virtual_stages", c.mesh.virtual_stages);
  e.add("train.steps", c.train.steps);
  e.add("train.sequence_length", c.train.sequence_length);
  e.add("train.global_batch", c.train.global_batch);
  e.add("train.micro_batch", c.train.micro_batch);
  e.add("train.recompute", name_of(c.train.recompute));
  e.add("train.eval_every", c.train.eval_every);
  e.add("train.eval_batches", c.train.eval_batches);
  if (c.optimizer.lr > 0) e.add("optimizer.lr", c.optimizer.lr);
  e.add("optimizer.beta1", c.optimizer.beta1);
  e.add("optimizer.beta2", c.optimizer.beta2);
  e.add("optimizer.eps", c.optimizer.eps);
  e.add("optimizer.weight_decay", c.optimizer.weight_decay);
  e.add("optimizer.decay_embeddings", c.optimizer.decay_embeddings);
  e.add("optimizer.clip", c.optimizer.clip);
  e.add("schedule.kind", Value(std::string(optim::name_of(c.schedule.kind))));
  e.add("schedule.warmup_steps", c.schedule.warmup_steps);
  if (c.schedule.kind != LrKind::kConstant) e.add("schedule.min_ratio", c.schedule.min_ratio);
  if (c.schedule.kind != LrKind::kConstant && c.schedule.kind != LrKind::kInvSqrt)
    e.add("schedule.decay_steps", c.schedule.decay_steps);
  if (!c.data.sources.empty()) e.add("data.path", c.data.sources);
  e.add("data.document_mask", c.data.document_mask);
  e.add("data.restart_positions", c.data.restart_positions);
  e.add("data.allow_change", c.data.allow_change);
  e.add("checkpoint.every", c.checkpoint.every);
  e.add("checkpoint.keep", c.checkpoint.keep);
  e.add("log.every", c.log.every);
  e.add("log.stats_every", c.log.stats_every);
  return e.sorted();
}

std::string to_toml(const RunConfig& config) { return toml_of(config_entries(config)); }

std::string model_to_toml(const model::ModelConfig& config) { return toml_of(model_entries(config)); }

std::string value_line(const std::string& key, const std::string& text) {
  const KeySpec& spec = schema()[key_index(key)];
  if (const auto error = check_value(spec, text, "to be written")) throw ConfigError({*error});
  return str_cat(std::string_view(spec.key), " = ", value_text(text));
}

model::ModelConfig model_from_toml(const std::string& text, const std::string& name) {
  return resolve(parse_config(text, name, {}), {.dataset_vocab_size = std::nullopt, .purpose = Purpose::kModel})
      .config.model;
}

uint64_t config_hash(const RunConfig& config) {
  std::vector<Entry> entries = config_entries(config);
  std::erase_if(entries, [](const Entry& entry) { return entry.index == key_index("run.threads"); });
  return site_of(toml_of(entries));
}

std::vector<ConfigChange> compare_configs(const RunConfig& before, const RunConfig& after) {
  std::vector<std::string> old_values(schema().size()), new_values(schema().size());
  for (const Entry& entry : config_entries(before)) old_values[entry.index] = value_text(entry.value);
  for (const Entry& entry : config_entries(after)) new_values[entry.index] = value_text(entry.value);
  std::vector<ConfigChange> changes;
  for (size_t i = 0; i < schema().size(); ++i) {
    if (old_values[i] == new_values[i]) continue;
    const auto text = [](const std::string& value) { return value.empty() ? std::string("(none)") : value; };
    changes.push_back({schema()[i].name(), text(old_values[i]), text(new_values[i]), schema()[i].fixed});
  }
  return changes;
}

std::vector<ConfigChange> check_resume(const RunConfig& stored, const RunConfig& wanted) {
  std::vector<ConfigChange> free_changes;
  std::vector<std::string> errors;
  for (ConfigChange& change : compare_configs(stored, wanted)) {
    if (change.fixed)
      errors.push_back(str_cat(change.key, " = ", change.after, ": expected ", change.before, ", as the run in ",
                               wanted.run.dir, " has it; set it back, or choose another run.dir to begin a new run"));
    else
      free_changes.push_back(std::move(change));
  }
  if (!errors.empty()) throw ConfigError(errors);
  return free_changes;
}

}  // namespace ashlar::config
