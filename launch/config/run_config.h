#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/autograd/ctx.h"
#include "core/backend/attention.h"
#include "core/base/dtype.h"
#include "core/base/enum_names.h"
#include "core/base/error.h"
#include "core/optim/lr_schedule.h"
#include "core/optim/update_rules.h"
#include "parallel/model/model_config.h"
#include "parallel/pipeline/schedule.h"

/// The typed, fully resolved configuration of a run, and the functions that make it:
///
///   RawConfig raw = read_config("configs/quickstart.toml", {"train.steps=40"});   // never throws for wrong values
///   ... raw.data_sources() lists the datasets to open; add_error() reports what is wrong with them ...
///   Resolved r = resolve(raw, {.dataset_vocab_size = 256, .hardware_threads = 2});   // throws all errors at once
///
/// The keys, their defaults and ranges are in schema.h.
namespace ashlar::config {

enum class Device : uint8_t { kCpu, kCuda };
constexpr auto names_of(Device) { return enum_names<Device>("cpu", "cuda"); }

enum class HangAction : uint8_t { kStop, kReport };
constexpr auto names_of(HangAction) { return enum_names<HangAction>("stop", "report"); }

/// What a line of a step has.
enum class StepLine : uint8_t { kShort, kFull };
constexpr auto names_of(StepLine) { return enum_names<StepLine>("short", "full"); }

using ashlar::name_of;
using LrScheduleKind = optim::LrScheduleKind;

struct RunSection {
  std::string dir;
  int64_t seed = 0;
  std::optional<std::string> init_from;  ///< checkpoint to take weights from
  std::vector<std::string> init_change;  ///< model keys whose values may differ from the checkpoint's (init_from)
  Device device = Device::kCpu;
  DType dtype = DType::kBFloat16;  ///< storage type: bf16, fp32 or fp64
  int64_t threads = 1;             ///< threads of each rank
  double hang_after = 60;          ///< a hang: no progress for this many seconds beyond the longest step; 0 = off
  double stall_after = 600;        ///< replaces hang_after, if longer, while a rank waits for a file system; 0 = off
  HangAction hang_action = HangAction::kStop;
  bool operator==(const RunSection&) const = default;
};

struct MeshSection {
  int64_t tensor = 1;
  int64_t pipeline = 1;
  int64_t data = 1;
  int64_t expert = 1;           ///< divides data
  double expert_reserve = 1.5;  ///< load of a rank's experts that memory is reserved for; 0: none is
  bool sequence_parallel = false;
  pipeline::PipelineSchedule schedule = pipeline::PipelineSchedule::k1F1B;
  int64_t virtual_stages = 1;
  bool operator==(const MeshSection&) const = default;
};

struct TrainSection {
  int64_t steps = 0;
  int64_t sequence_length = 0;  ///< tokens
  int64_t global_batch = 0;     ///< sequences per step, over all ranks
  int64_t micro_batch = 0;      ///< sequences per forward pass of a rank
  Recompute recompute = Recompute::kNone;
  AttentionKernels attention = AttentionKernels::kAuto;
  int64_t eval_every = 0;               ///< steps between evaluations; 0 = only after the last step
  int64_t eval_sequences = 0;           ///< validation sequences per evaluation and dataset; 0 = all
  std::vector<std::string> eval_tasks;  ///< names of tasks to evaluate; empty = none
  int64_t eval_tasks_every = 0;         ///< steps between evaluations on tasks; 0 = only after the last step
  int64_t eval_tasks_limit = 0;         ///< records of each task; 0 = all
  std::string eval_tasks_data;          ///< folder of the tasks' files
  bool operator==(const TrainSection&) const = default;
};

struct OptimizerSection {
  optim::OptimizerOptions rule;
  double lr = 0;      ///< peak learning rate
  double clip = 1.0;  ///< largest global gradient norm; 0 = off
  bool operator==(const OptimizerSection&) const = default;
};

/// The parameters of optim::LrSchedule except the peak learning rate, which is optimizer.lr.
struct ScheduleSection {
  LrScheduleKind kind = LrScheduleKind::kCosine;
  int64_t warmup_steps = 0;
  double min_ratio = 0.1;   ///< lowest learning rate divided by the peak; 1 for kind constant
  int64_t decay_steps = 0;  ///< length of the decay; 0 for constant and inv_sqrt
  bool operator==(const ScheduleSection&) const = default;
};

struct DataSource {
  std::string path;
  double weight = 1;
  bool operator==(const DataSource&) const = default;
};

struct DataSection {
  std::vector<DataSource> sources;  ///< one source of weight 1, or a mixture; weights as given, not normalized
  bool document_mask = false;       ///< no attention across documents, no target across an end of document
  bool restart_positions = false;   ///< positions count from the start of the document
  bool allow_change = false;        ///< data that differs from the checkpoint's is reported, not refused
  bool operator==(const DataSection&) const = default;
};

struct CheckpointSection {
  int64_t every = 0;  ///< steps between checkpoints; 0 = only after the last step
  int64_t keep = 2;
  int64_t keep_every = 0;  ///< checkpoints at multiples of this step stay; 0 = none
  int64_t keep_best = 0;   ///< number of checkpoints with the lowest validation loss that stay
  bool operator==(const CheckpointSection&) const = default;
};

struct LogSection {
  int64_t every = 1;  ///< steps between lines on the terminal
  StepLine line = StepLine::kShort;
  int64_t stats_every = 0;            ///< steps between layer statistics; 0 = off
  std::vector<int64_t> trace_steps;   ///< steps whose trace is written
  int64_t trace_every = 0;            ///< steps between further traces; 0 = off
  bool tensorboard = true;            ///< writes an event file of TensorBoard
  std::optional<std::string> sample;  ///< prompt of a text that is generated at each validation
  int64_t sample_tokens = 64;         ///< number of its tokens
  bool verbose = false;               ///< a new run logs derived values and the table of parameters
  bool operator==(const LogSection&) const = default;
};

struct RunConfig {
  RunSection run;
  model::ModelConfig model;
  MeshSection mesh;
  TrainSection train;
  OptimizerSection optimizer;
  ScheduleSection schedule;
  DataSection data;
  CheckpointSection checkpoint;
  LogSection log;
  bool operator==(const RunConfig&) const = default;
};

/// Purpose of the configuration. It decides which keys must be given, and whether the mesh must fit the ranks. kModel
/// (e.g. commands params and eval) needs only the model sections. kStep (command bench step) needs the model sections
/// and a mesh. With kModel and kStep, fields of train, optimizer and data that have no default are 0 or empty unless
/// the configuration gives them.
enum class Purpose : uint8_t { kTrain, kStep, kModel };

/// Facts outside the configuration that resolve() needs.
struct Facts {
  std::optional<int64_t> dataset_vocab_size;  ///< from the dataset's manifest; absent: vocab.size must be given
  int64_t ranks = 1;
  int64_t local_ranks = 1;       ///< ranks on this machine
  int64_t hardware_threads = 1;  ///< cores that the ranks of this machine may use together
  Purpose purpose = Purpose::kTrain;
};

/// A derived value with its rule. Printed as `derived: KEY = VALUE (RULE)`.
struct DerivedValue {
  std::string key, value, rule;
  bool told = false;  ///< logged when a run starts, because it replaces a value that was given
};

struct Resolved {
  RunConfig config;
  std::vector<DerivedValue> derived;
};

/// All errors of a configuration. what() has one line per error, each `[config] section.key = got: expected ...; fix`.
/// Exit code 2.
class ConfigError : public Error {
 public:
  explicit ConfigError(const std::vector<std::string>& errors);
  const std::vector<std::string>& errors() const { return errors_; }  ///< without the `[config] ` prefix

 private:
  std::vector<std::string> errors_;
};

struct RawValues;

/// A configuration as the user has written it: values by key, and the errors found so far.
class RawConfig {
 public:
  explicit RawConfig(const std::string& name);

  /// Returns the sources of data.path, to open the datasets before resolve(). Empty if the key is absent or invalid.
  std::vector<DataSource> data_sources() const;
  std::string run_dir() const;                   ///< run.dir, given or derived; empty if invalid
  std::optional<std::string> init_from() const;  ///< run.init_from; absent if not given or invalid
  bool allow_change() const;                     ///< data.allow_change
  /// Adds an error about the dataset of data.path to the errors of the configuration. A `[where] ` before the text is
  /// dropped.
  void add_error(std::string_view text);
  const std::vector<std::string>& errors() const;
  /// True when a key ("vocab.size") is given in the file or by an override.
  bool given(std::string_view key) const;
  /// True when an override names the key, even with `default`.
  bool overridden(std::string_view key) const;
  /// Adapts the configuration of a run in `dir` that is resumed on `ranks` ranks: sets run.dir to `dir`, makes
  /// mesh.data a derived value, sets mesh.expert to the largest divisor of mesh.data that is at most the old value, and
  /// likewise train.micro_batch to a divisor of a replica's batch. Keys that an override names are not changed; if an
  /// override names mesh.data, mesh.expert and train.micro_batch are not changed either.
  void found_in_run(const std::string& dir, int64_t ranks);

  RawValues& values() { return *values_; }
  const RawValues& values() const { return *values_; }

 private:
  std::unique_ptr<RawValues, void (*)(RawValues*)> values_;
};

/// Reads a TOML file and overrides of the form `section.key=value`. A later override wins; `section.key=default` unsets
/// a key of the file. Wrong keys and values become errors of the result. Throws Error(kInput) only when the file cannot
/// be read or is larger than 16 MiB, which is far more than any configuration needs.
RawConfig read_config(const std::string& path, const std::vector<std::string>& overrides);

/// Reads a configuration from text; `name` replaces the file name in messages and in the default of run.dir.
RawConfig parse_config(const std::string& text, const std::string& name, const std::vector<std::string>& overrides);

/// What happens if the value given for a key differs from the value in the checkpoint.
enum class Differing : uint8_t {
  kError,  ///< an error with both values, unless run.init_change lists the key
  kStays,  ///< no error here; check_resume() compares the values later
};

/// `stored` is the model of the checkpoint `where`. Copies to `raw` each key of `stored` that describes the weights
/// (is_weights_key() in schema.h) and is absent in `raw`. Returns the copied keys, for printing. Used when a run starts
/// from a checkpoint (run.init_from), and again when that run is resumed.
std::vector<DerivedValue> apply_checkpoint_model(RawConfig& raw, const model::ModelConfig& stored,
                                                 const std::string& where, Differing differing);

/// `stored` is the configuration of the checkpoint `where`. Copies to `raw` each key that keeps its value on resume
/// (KeySpec::kept) and is absent in `raw`. Returns the copied keys, for printing. schedule.decay_steps is copied only
/// if schedule.kind is unchanged.
std::vector<DerivedValue> apply_run_values(RawConfig& raw, const RunConfig& stored, const std::string& where);

/// Fills in defaults and derived values and checks everything. Throws ConfigError with every error, including the
/// errors found while reading.
Resolved resolve(const RawConfig& raw, const Facts& facts);

/// Returns the configuration as TOML. parse_config() and resolve() turn this text into an equal RunConfig.
std::string to_toml(const RunConfig& config);

/// Parses `text`, which to_toml() or model_to_toml() returned when the checkpoint `name` was written. A run.device that
/// this version does not support is dropped, because the command that reads a checkpoint chooses the device. Throws
/// ConfigError.
RunConfig stored_config(const std::string& text, const std::string& name);

/// Returns the model sections as TOML, for the manifest of a checkpoint or an import. stored_config() reads them back.
std::string model_to_toml(const model::ModelConfig& config);

/// Returns the keys of the model sections that apply, with their values as TOML.
std::vector<std::pair<std::string, std::string>> model_values(const model::ModelConfig& config);

struct ModelDifference {
  std::string key, left, right;
};
/// Returns the keys in which two models differ. Numbers differ if their relative difference exceeds 1e-12. A key that
/// applies to only one of the models is left out, since the key that decides whether it applies differs too and is in
/// the list: if only one model has pos.type = "rope", pos.type is in the list, and rope.base is not. Exception: an
/// optional key or a list of numbers that has a value in only one model is in the list, with "none" for the other
/// model.
std::vector<ModelDifference> compare_models(const model::ModelConfig& left, const model::ModelConfig& right);

/// Returns a line `KEY = "TEXT"` to write in the section of the key. `key` is "section.KEY". Throws ConfigError if the
/// schema refuses the text.
std::string value_line(const std::string& key, const std::string& text);

/// A stable 64-bit hash of all keys and values, equal on all ranks with the same configuration. run.threads is left
/// out, since the machines of a job may differ.
uint64_t config_hash(const RunConfig& config);

struct ConfigChange {
  std::string key, before, after;  ///< `(none)` when absent
  bool fixed = false;              ///< may not change on resume
};
/// Returns the keys whose values differ, in schema order.
std::vector<ConfigChange> compare_configs(const RunConfig& before, const RunConfig& after);

/// Throws ConfigError if keys differ that may not change on resume; the error of each key has the run's value and the
/// new value. Otherwise returns the other keys that differ, for printing.
std::vector<ConfigChange> check_resume(const RunConfig& stored, const RunConfig& wanted);

}  // namespace ashlar::config
