#include "launch/inference/model_loading.h"

#include <algorithm>
#include <utility>

#include "kernels/make_backend.h"
#include "launch/config/run_config.h"
#include "launch/training/engine_options.h"
#include "parallel/checkpoint/find.h"
#include "parallel/checkpoint/load.h"
#include "parallel/checkpoint/reader.h"
#include "parallel/comm/try_on_all_ranks.h"
#include "parallel/model/expert_layout.h"
#include "parallel/model/slices.h"

namespace ashlar::inference {

namespace {

DType dtype_named(const std::string& name) {
  DType dtype{};
  if (parse_enum(name, dtype) && is_floating(dtype)) return dtype;
  throw input_error("dtype", "--dtype ", name, ": expected bf16, fp32 or fp64");
}

/// Creates the requested device or, if none is requested, the device of the run.
std::unique_ptr<training::RunDevice> device_for(const LoadOptions& options, config::RunSection run,
                                                comm::Bootstrap& bootstrap, Log& log) {
  run.threads = options.threads;
  const auto make = [&](config::Device device) {
    run.device = device;
    auto made = std::make_unique<training::RunDevice>(
        training::RunDeviceArgs{.bootstrap = bootstrap, .run = run, .log = log, .make_backend = {}});
    if (device != config::Device::kCpu) log.info(made->backend().description());
    return made;
  };
  if (options.device) return make(*options.device);
  if (run.device == config::Device::kCpu) return make(run.device);
  try {
    return make(run.device);
  } catch (const Error& error) {  // all ranks catch the same error
    if (error.code() != ExitCode::kInput) throw;
    if (bootstrap.control().rank() == 0)
      log.warn(str_cat("the run was trained with run.device = ", name_of(run.device),
                       ", which cannot be used here; computing on the CPU (", error.what(), ")"));
  }
  return make(config::Device::kCpu);
}

LoadedModel load_from(checkpoint::CheckpointReader& reader, const LoadOptions& options, comm::Bootstrap& bootstrap,
                      Log& log) {
  comm::ControlPlane& ranks = bootstrap.control();
  LoadedModel m;
  m.checkpoint = reader.path();
  m.config_toml = reader.config_toml();
  m.metadata = reader.metadata();
  if (reader.state()) m.step = reader.state()->step;
  training::EngineOptions engine;
  config::RunSection run;
  mesh::MeshShape shape;
  comm::try_on_all_ranks(ranks, [&] {
    const config::RunConfig config =
        config::stored_config(m.config_toml, (m.checkpoint / checkpoint::kManifestFile).string());
    if (!reader.tokenizer_json().empty()) m.tokenizer = data::tokenizer_from_json(reader.tokenizer_json());
    shape = inference_mesh(config.model, ranks.size(), training::shape_of(config.mesh), options.mesh);
    run = config.run;
    const DType stored = reader.state() ? config.run.dtype : DType::kFloat32;
    engine = {.model = config.model,
              .dtype = options.dtype ? dtype_named(*options.dtype) : stored,
              .sequence_length = std::max(options.positions, std::max<int64_t>(config.train.sequence_length, 1))};
  });
  m.device = device_for(options, std::move(run), bootstrap, log);
  m.abort = m.device->connect();
  m.mesh = std::make_unique<mesh::Mesh>(m.device->ranks(), shape);
  m.engine = std::make_unique<training::Engine>(m.device->backend(), m.device->stream(), *m.mesh, engine);
  checkpoint::load_weights(m.engine->ctx(), {.ranks = ranks, .reader = reader, .store = m.engine->store()});
  return m;
}

}  // namespace

mesh::MeshShape inference_mesh(const model::ModelConfig& model, int64_t ranks, const mesh::MeshShape& trained,
                               const InferenceMesh& wish) {
  // Returns the ranks over which experts are divided; 0 if the mesh does not fit.
  const auto expert_ranks = [&](int64_t tensor, int64_t pipeline) -> int64_t {
    const bool fits = ranks % (tensor * pipeline) == 0 && pipeline <= model.n_layers &&
                      model::slicing_problems(model, tensor).empty() && (wish.tensor == 0 || wish.tensor == tensor) &&
                      (wish.pipeline == 0 || wish.pipeline == pipeline);
    if (!fits) return 0;
    const int64_t data = ranks / (tensor * pipeline), most = model::most_expert_ranks(model, tensor);
    std::vector<int64_t> choices = {trained[Axis::kExpert], 1};
    if (wish.expert > 0) choices = {wish.expert};
    if (wish.one_replica) choices = {data};
    for (const int64_t n : choices)
      if (n <= most && data % n == 0 && (wish.expert == 0 || n == wish.expert)) return n;
    return 0;
  };
  std::vector<std::pair<int64_t, int64_t>> candidates = {{trained[Axis::kTensor], trained[Axis::kPipeline]}};
  if (!wish.one_replica) candidates.push_back({1, 1});
  for (int64_t tensor = ranks; tensor >= 1; --tensor) {
    for (int64_t pipeline = 1; pipeline <= ranks / tensor; ++pipeline)
      if (ranks % (tensor * pipeline) == 0) candidates.push_back({tensor, pipeline});
  }
  for (const auto& [tensor, pipeline] : candidates) {
    if (const int64_t expert = expert_ranks(tensor, pipeline); expert > 0) {
      return {{Axis::kPipeline, pipeline},
              {Axis::kReplica, ranks / (tensor * pipeline * expert)},
              {Axis::kExpert, expert},
              {Axis::kTensor, tensor}};
    }
  }
  const bool experts = model.expert_layers() > 0 || wish.expert > 0;
  std::string problem;
  if (wish.tensor > 0)
    for (const std::string& text : model::slicing_problems(model, wish.tensor)) problem += text + "; ";
  throw input_error(
      "mesh", ranks, " ranks cannot share this model", wish.one_replica ? " as one replica" : "",
      wish.tensor > 0 ? str_cat(" with --tensor ", wish.tensor) : "",
      wish.pipeline > 0 ? str_cat(" with --pipeline ", wish.pipeline) : "",
      wish.expert > 0 ? str_cat(" with --expert ", wish.expert) : "", ": ", problem, "expected tensor * pipeline",
      experts ? " * expert" : "", " to ", wish.one_replica ? "equal" : "divide", " the number of ranks, and at most ",
      model.n_layers, " pipeline stages",
      experts ? str_cat(" and ", model::most_expert_ranks(model, std::max<int64_t>(1, wish.tensor)), " expert ranks")
              : "",
      "; start another number of ranks, or change --tensor", experts ? ", --pipeline or --expert" : " or --pipeline");
}

LoadedModel load_model(const LoadOptions& options, comm::Bootstrap& bootstrap, Log& log) {
  std::optional<LoadedModel> m;
  checkpoint::load_resolved(
      {.path = options.path,
       .log = log,
       .ranks = bootstrap.control(),
       .load = [&](checkpoint::CheckpointReader& reader) { m = load_from(reader, options, bootstrap, log); }});
  return std::move(*m);
}

}  // namespace ashlar::inference
