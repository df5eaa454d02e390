#include "launch/training/model_loading.h"

#include <algorithm>

#include "kernels/cpu/cpu_info.h"
#include "kernels/make_backend.h"
#include "launch/config/run_config.h"
#include "parallel/checkpoint/find.h"
#include "parallel/checkpoint/load.h"
#include "parallel/checkpoint/reader.h"

namespace ashlar::training {

namespace {

DType dtype_named(const std::string& name) {
  for (const DType d : {DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
    if (name == name_of(d)) return d;
  }
  throw input_error("dtype", "--dtype ", name, ": expected bf16, fp32 or fp64");
}

}  // namespace

LoadedModel load_model(const LoadOptions& options, Log& log) {
  LoadedModel m;
  checkpoint::CheckpointReader reader(checkpoint::resolve(options.path, log));
  m.checkpoint = reader.path();
  m.config_toml = reader.config_toml();
  if (reader.state()) m.step = reader.state()->step;
  const std::string name = (reader.path() / "manifest.json").string();
  const config::RunConfig config =
      config::resolve(config::parse_config(reader.config_toml(), name, {}),
                      {.hardware_threads = cpu::detect_cpu().cores, .purpose = config::Purpose::kModel})
          .config;
  if (!reader.tokenizer_json().empty()) m.tokenizer = data::tokenizer_from_json(reader.tokenizer_json());

  const DType stored = reader.state() ? config.run.dtype : DType::kFloat32;
  m.backend = kernels::make_cpu_backend({.threads = static_cast<int>(options.threads), .log = &log});
  m.stream = m.backend->make_stream();
  m.engine = std::make_unique<Engine>(
      *m.backend, *m.stream,
      EngineOptions{
          .model = config.model,
          .dtype = options.dtype ? dtype_named(*options.dtype) : stored,
          .sequence_length = std::max(options.positions, std::max<int64_t>(config.train.sequence_length, 1))});
  checkpoint::load_weights(m.engine->ctx(), reader, m.engine->store(), nullptr);
  return m;
}

}  // namespace ashlar::training
