#include "launch/training/run.h"

#include "core/device/device_facts.h"
#include "launch/training/engine_options.h"
#include "launch/training/layout.h"
#include "launch/training/step_batches.h"
#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::training {

Run::Run(TrainerArgs& args)
    : config(args.resolved.config),
      bootstrap(args.bootstrap),
      ranks(args.bootstrap.control()),
      first_rank(ranks.rank() == 0),
      signals(args.signals),
      watch(args.watch),
      log(args.log),
      status(args.status),
      sample(args.sample),
      memory(std::move(args.memory)),
      directory(config.run.dir) {
  const mesh::MeshShape shape = shape_of(config.mesh);
  const mesh::Coordinates at = mesh::coordinates_of(shape, ranks.rank());
  recorder().place(at);
  for (const auto& d : args.resolved.derived)
    if (d.told) log.info(str_cat("derived: ", d.key, " = ", d.value, " (", d.rule, ")"));
  open_directory();
  make_device(args);
  make_engine(args);
  log_layout();
  make_tracer();
  auto* const tunable = dynamic_cast<Tunable*>(&device->backend());
  if (Tuner* const tuner = tunable != nullptr ? tunable->tuner() : nullptr)
    tuning.emplace(*tuner, ranks, log, directory.choices(), [this] { recorder().tick(); });
}

Run::~Run() = default;

bool Run::is_known_to_all(const Error& error) const {
  return ranks.size() == 1 || dynamic_cast<const comm::AllRanksError*>(&error) != nullptr;
}

void Run::open_directory() {
  comm::try_on_all_ranks(ranks, [&] {
    const std::string note = first_rank ? directory.lock([&](const std::string& line) { log.warn(line); }) : "";
    if (!note.empty()) log.warn(note);
  });
  comm::try_on_all_ranks(ranks, [&] { directory.check_visible(); });
}

void Run::make_device(TrainerArgs& args) {
  device = std::make_unique<RunDevice>(RunDeviceArgs{.bootstrap = bootstrap,
                                                     .run = config.run,
                                                     .attention = config.train.attention,
                                                     .log = log,
                                                     .memory = &memory,
                                                     .make_backend = args.make_backend});
  if (auto* const facts = dynamic_cast<DeviceFacts*>(&device->backend()); facts != nullptr && first_rank) {
    try {
      gpu = std::make_unique<GpuMonitor>(facts->id());
    } catch (const Error& error) {
      log.info(str_cat("clock, power and throttling are not reported: ", error.what()));
    }
  }
  log.info(device->backend().description());
  watch.watchdog().before_end(device->connect());
}

void Run::make_engine(const TrainerArgs& args) {
  EngineOptions options = watched_options();
  if (args.change_engine) args.change_engine(options);
  mesh.emplace(device->ranks(), shape_of(config.mesh));
  engine.emplace(device->backend(), device->stream(), *mesh, options);
  hosts = comm::gather_texts_at(ranks, comm::Bootstrap::host_name(), 0);
}

pipeline::ScheduleSpec Run::schedule() const {
  return {.kind = engine->options().schedule,
          .stages = config.mesh.pipeline,
          .micro_batches = num_micro_batches(config),
          .virtual_stages = config.mesh.virtual_stages};
}

void Run::log_layout() {
  const config::MeshSection& m = config.mesh;
  const pipeline::Partition partition = partition_of(
      config.model,
      {.sequence_length = config.train.sequence_length, .stages = m.pipeline, .virtual_stages = m.virtual_stages});
  if (first_rank) {
    for (const std::string& line : layout_picture({.model = config.model,
                                   .mesh = mesh->shape(),
                                   .partition = partition,
                                   .schedule = schedule(),
                                   .sequence_parallel = m.sequence_parallel,
                                   .hosts = hosts}))
      log.info(line);
  }
}

void Run::make_tracer() {
  if (config.log.trace_steps.empty() && config.log.trace_every == 0) return;
  tracer.emplace(trace::TracedRun{.ranks = ranks,
                                  .log = log,
                                  .run_dir = config.run.dir,
                                  .check_owned = [this] { directory.check_owned(); },
                                  .steps = config.log.trace_steps,
                                  .every = config.log.trace_every,
                                  .mesh = mesh->shape(),
                                  .schedule = schedule(),
                                  .asynchronous = !device->stream().synchronous(),
                                  .same_machine = bootstrap.local_root() == 0,
                                  .host = comm::Bootstrap::host_name()});
}

EngineOptions Run::watched_options() {
  EngineOptions options = engine_options(config);
  options.after_node = [this] { recorder().tick(); };
  options.before_action = [this](const pipeline::Action& action) {
    if (tracer) tracer->before_action();
    const watch::Phase phase = recorder().page().phase;
    if (phase == watch::Phase::kValidating || phase == watch::Phase::kStatistics) return recorder().tick();
    using enum pipeline::ActionKind;
    recorder().enter(action.kind == kForward          ? watch::Phase::kForward
                     : action.kind == kBackwardWeight ? watch::Phase::kBackwardWeight
                     : action.kind == kTransfer       ? watch::Phase::kTransfer
                                                      : watch::Phase::kBackward,
                     action.kind == kTransfer ? -1 : action.micro_batch);
  };
  options.after_action = [this](const pipeline::Action& action) {
    if (tracer) tracer->after_action(action);
  };
  return options;
}

}  // namespace ashlar::training
