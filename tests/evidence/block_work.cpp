#include "tests/evidence/block_work.h"

#include <numeric>
#include <utility>
#include <vector>

#include "launch/training/engine.h"
#include "parallel/comm/self_comm.h"
#include "parallel/comm/staged_comm.h"
#include "tests/evidence/watched_device.h"

namespace ashlar::evidence {
namespace {

data::Batch batch_of(int64_t tokens, int64_t vocabulary) {
  data::Batch batch;
  data::resize_batch(batch, 1, tokens, {});
  for (int64_t t = 0; t < tokens; ++t) {
    const auto at = static_cast<size_t>(t);
    batch.ids[at] = static_cast<int32_t>(t * 7 % vocabulary);
    batch.targets[at] = static_cast<int32_t>((t * 7 + 7) % vocabulary);
    batch.positions[at] = static_cast<int32_t>(t);
  }
  batch.valid_targets = tokens;
  std::vector<int32_t> counts;
  data::fill_order(batch, static_cast<int32_t>(vocabulary), counts);
  return batch;
}

/// Of the step after the first.
std::map<std::string, BlockKernel> work_of_a_step(const model::ModelConfig& config, int64_t tokens) {
  WatchedDevice device;
  comm::SelfComm alone("world");
  const std::unique_ptr<comm::Communicator> world = comm::make_device_comm(alone, device.backend());
  mesh::Mesh mesh(*world, {});
  training::Engine engine(device.backend(), device.stream(), mesh,
                          {.model = config,
                           .dtype = DType::kBFloat16,
                           .optimizer = optim::OptimizerOptions{},
                           .clip = 1,
                           .seed = 3,
                           .sequence_length = tokens});
  engine.initialize();
  training::DeviceBatch batch;
  batch.upload(engine.ctx(), batch_of(tokens, config.vocab_size));
  int64_t gemms = 0;
  std::map<std::string, BlockKernel> work;
  for (int64_t step = 0; step < 2; ++step) {
    device.take();
    gemms = device.backend().num_gemms();
    engine.backward({&batch.micro_batch(), 1}, step, {.tokens = tokens, .valid_targets = tokens});
    engine.reduce_norm();
    engine.update(step, 1e-3);
    engine.take_report();
  }
  for (const auto& [kernel, measured] : device.take()) {
    const emulator::Traffic& t = measured.traffic;
    work[kernel] = {.launches = t.launches, .bytes = 32 * (t.read_sectors + t.write_sectors)};
  }
  work["gemm"].launches = device.backend().num_gemms() - gemms;
  return work;
}

model::ModelConfig narrow() {
  model::ModelConfig c;
  c.d_model = 256;
  c.n_layers = 1;
  c.n_heads = 4;
  c.n_kv_heads = 4;
  c.head_dim = 64;
  c.d_ff = 1024;
  c.vocab_size = 256;
  c.tied = true;
  c.attn.scale = 0.125;
  return c;
}

}  // namespace

std::map<std::string, BlockKernel> work_of_a_block(model::ModelConfig config, int64_t tokens) {
  config.n_layers = 1;
  const auto one = work_of_a_step(config, tokens);
  config.n_layers = 2;
  auto two = work_of_a_step(config, tokens);
  for (const auto& [kernel, work] : one) {
    two[kernel].launches -= work.launches;
    two[kernel].bytes -= work.bytes;
  }
  std::erase_if(two, [](const auto& kernel) { return kernel.second.launches == 0; });
  return two;
}

int64_t launches_of(const std::map<std::string, BlockKernel>& block) {
  return std::accumulate(block.begin(), block.end(), int64_t{0},
                         [](int64_t sum, const auto& kernel) { return sum + kernel.second.launches; });
}

model::ModelConfig narrow_gpt2() {
  model::ModelConfig c = narrow();
  c.norm.variant.type = NormType::kLayerNorm;
  c.norm.affine = model::NormAffine::kScaleBias;
  c.bias = {.qkv = true, .attn_out = true, .ffn = true, .lm_head = false};
  c.ffn = {.act = Activation::kGeluTanh, .gated = false};
  c.pos = {.type = model::PosType::kLearned, .max_positions = 1024};
  return c;
}

model::ModelConfig narrow_qwen(model::Topology topology) {
  model::ModelConfig c = narrow();
  c.n_kv_heads = 2;
  c.block.topology = topology;
  c.bias.qkv = true;
  c.rope.dims = c.head_dim;
  return c;
}

model::ModelConfig narrow_experts() {
  model::ModelConfig c = narrow();
  c.n_kv_heads = 2;
  c.qk_norm = {.kind = model::QkNorm::kHead};
  c.rope.dims = c.head_dim;
  c.moe = {.experts = 4, .top_k = 2, .d_ff = 128};
  return c;
}

}  // namespace ashlar::evidence
