#include "tests/reference/golden_folder.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <sstream>

#include "core/io/posix_file.h"
#include "kernels/make_backend.h"
#include "launch/hf/hf_config.h"
#include "launch/world.h"
#include "parallel/comm/host.h"
#include "parallel/model/logits.h"
#include "parallel/model/slices.h"
#include "tests/support/ranks/ranks.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::testing {

namespace fs = std::filesystem;

fs::path golden_root() {
  const char* given = std::getenv("ASHLAR_GOLDEN");
  return given != nullptr && *given != '\0' ? fs::path(given) : fs::path(ASHLAR_SOURCE_DIR) / "tests/reference/golden";
}

std::vector<std::string> folders_with(const fs::path& dir, const std::string& marker) {
  std::vector<std::string> names;
  if (!fs::is_directory(dir)) return names;
  for (const auto& entry : fs::directory_iterator(dir)) {
    if (entry.is_directory() && fs::exists(entry.path() / marker)) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

namespace {

template <typename T, typename Out>
void widen(const std::vector<std::byte>& raw, std::vector<Out>& out) {
  out.resize(raw.size() / sizeof(T));
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, raw.data() + i * sizeof(T), sizeof(T));
    if constexpr (std::is_same_v<T, BF16>) {
      out[i] = static_cast<Out>(static_cast<float>(value));
    } else {
      out[i] = static_cast<Out>(value);
    }
  }
}

template <typename Out>
std::vector<Out> convert(const std::vector<std::byte>& raw, io::FileDType dtype) {
  std::vector<Out> out;
  switch (dtype) {
    case io::FileDType::kF64: widen<double>(raw, out); return out;
    case io::FileDType::kF32: widen<float>(raw, out); return out;
    case io::FileDType::kBF16: widen<BF16>(raw, out); return out;
    case io::FileDType::kI64: widen<int64_t>(raw, out); return out;
    case io::FileDType::kI32: widen<int32_t>(raw, out); return out;
    default: throw Bug(str_cat("[reference] dtype ", io::name_of(dtype), " in a reference"));
  }
}

std::vector<std::byte> read_raw(const io::SafetensorsReader& file, const std::string& name) {
  std::vector<std::byte> raw(file.at(name).num_bytes());
  file.read(file.at(name), raw);
  return raw;
}

}  // namespace

std::vector<double> read_doubles(const io::SafetensorsReader& file, const std::string& name) {
  return convert<double>(read_raw(file, name), file.at(name).dtype);
}

std::vector<int32_t> read_integers(const io::SafetensorsReader& file, const std::string& name) {
  return convert<int32_t>(read_raw(file, name), file.at(name).dtype);
}

NamedValues read_model(hf::ImportedModel& model) {
  NamedValues values;
  for (const io::TensorSpec& spec : model.tensors()) {
    std::vector<std::byte> raw(spec.num_bytes());
    model.read(spec.name, raw);
    values[spec.name] = convert<double>(raw, spec.dtype);
  }
  return values;
}

std::vector<std::string> absent_tensors(const fs::path& config_dir, const io::SafetensorsReader& file,
                                        const std::string& prefix) {
  std::vector<std::string> names;
  const io::SafetensorsReader weights(config_dir / "model.safetensors");
  for (const io::TensorEntry& entry : weights.tensors())
    if (file.find(prefix + entry.name) == nullptr) names.push_back(entry.name);
  return names;
}

NamedValues read_as_model(const fs::path& config_dir, const io::SafetensorsReader& file, const std::string& prefix) {
  const ScratchDir scratch;
  fs::copy_file(config_dir / "config.json", scratch.path() / "config.json");
  std::vector<io::TensorSpec> specs;
  for (const io::TensorEntry& entry : file.tensors()) {
    if (entry.name.compare(0, prefix.size(), prefix) != 0) continue;
    specs.push_back({.name = entry.name.substr(prefix.size()), .dtype = entry.dtype, .shape = entry.shape});
  }
  const std::vector<std::string> absent = absent_tensors(config_dir, file, prefix);
  const io::SafetensorsReader weights(config_dir / "model.safetensors");
  for (const std::string& name : absent)
    specs.push_back({.name = name, .dtype = weights.at(name).dtype, .shape = weights.at(name).shape});
  io::SafetensorsWriter writer(scratch.path() / "model.safetensors", specs);
  for (const io::TensorSpec& spec : specs) {
    const bool stored = std::find(absent.begin(), absent.end(), spec.name) == absent.end();
    writer.write(spec.name, stored ? read_raw(file, prefix + spec.name) : read_raw(weights, spec.name));
  }
  writer.finish();
  hf::ImportedModel model = hf::import_hf(scratch.path());
  return read_model(model);
}

std::string Setting::name() const {
  if (layout.ranks() == 1) return folder;
  const int64_t expert = layout[Axis::kExpert];
  return str_cat(folder, "_", layout[Axis::kTensor], "x", layout[Axis::kPipeline], "x", layout.size(kSampleAxes),
                 expert == 1 ? "" : str_cat("x", expert));
}

namespace {

/// Whether the model of a folder runs on this layout where none is given: on tensor 2, or tensor 5 if its heads need
/// it, and on expert 2 if it has experts. A folder that cannot be read is one that fails.
bool is_usual(const fs::path& folder, const mesh::MeshShape& layout) {
  const int64_t tensor = layout[Axis::kTensor], expert = layout[Axis::kExpert];
  if (tensor == 1 && expert == 1) return true;
  const fs::path path = folder / "config.json";
  if (!fs::exists(path)) return tensor <= 2 && expert == 1;
  try {
    const model::ModelConfig config = hf::parse_hf_config(io::read_text_file(path), path.string()).model;
    const auto runs = [&](int64_t size) { return LoadedEngine::problem(config, {{Axis::kTensor, size}}).empty(); };
    if (expert > 1) return LoadedEngine::problem(config, layout).empty();
    return tensor == (!runs(2) && runs(5) ? 5 : 2);
  } catch (const Error&) {
    return tensor == 2 && expert == 1;
  }
}

}  // namespace

std::vector<Setting> settings(const fs::path& config_root, const std::vector<std::string>& folders) {
  const char* variable = std::getenv("ASHLAR_GOLDEN_LAYOUTS");
  const bool given = variable != nullptr && *variable != '\0';
  std::istringstream words(given ? variable : "1x1x1 2x1x1 1x2x1 5x1x1 1x1x2x2");
  std::vector<Setting> all;
  for (std::string word; words >> word;) {
    mesh::MeshShape layout;
    char x = 0, y = 0;
    std::istringstream fields(word);
    fields >> layout[Axis::kTensor] >> x >> layout[Axis::kPipeline] >> y >> layout[Axis::kReplica];
    ASHLAR_CHECK(!fields.fail() && x == 'x' && y == 'x', "ASHLAR_GOLDEN_LAYOUTS: expected like 2x1x1, got ", word);
    if (fields >> x >> layout[Axis::kExpert]) {
      ASHLAR_CHECK(x == 'x' && layout[Axis::kReplica] % layout[Axis::kExpert] == 0,
                   "ASHLAR_GOLDEN_LAYOUTS: expected like 2x1x2x2, replicas that the expert ranks divide, got ", word);
      layout[Axis::kReplica] /= layout[Axis::kExpert];
    }
    if (layout.ranks() != launch::world_from_environment().ranks) continue;
    for (const std::string& folder : folders)
      if (given || is_usual(config_root / folder, layout)) all.push_back({folder, layout});
  }
  return all;
}

namespace {

model::ModelConfig padded(model::ModelConfig config, int64_t tensor) {
  config.vocab_pad_to = std::lcm(config.vocab_pad_to, tensor);
  return config;
}

Tensor block_of(const nn::FlatTensor& buffer, const nn::ShardedRange& range, const nn::RangeBlock& block) {
  return buffer.of(range).flat_range(block.offset, block.rows * block.cols);
}

std::vector<double> to_host(const Ctx& ctx, const Tensor& t) {
  std::vector<std::byte> raw(t.size() * size_of(t.dtype()));
  ctx.backend.read(t.view(), raw.data(), ctx.stream);
  return convert<double>(raw, io::to_file_dtype(t.dtype()));
}

void from_host(const Ctx& ctx, const std::vector<double>& values, const Tensor& t) {
  if (t.dtype() == DType::kFloat64) {
    ctx.backend.write(values.data(), t.mut_view(), ctx.stream);
  } else {
    const std::vector<float> narrow(values.begin(), values.end());
    ctx.backend.write(narrow.data(), t.mut_view(), ctx.stream);
  }
}

}  // namespace

std::string LoadedEngine::problem(const model::ModelConfig& config, const mesh::MeshShape& layout) {
  for (const std::string& text : model::slicing_problems(padded(config, layout[Axis::kTensor]), layout[Axis::kTensor]))
    return text;
  if (layout[Axis::kPipeline] > config.n_layers)
    return str_cat(config.n_layers, " layers on ", layout[Axis::kPipeline], " stages");
  if (const int64_t most = config.expert_layers() > 0 ? config.moe.experts : 1; layout[Axis::kExpert] > most)
    return str_cat("experts on ", layout[Axis::kExpert], " ranks, of which the model has ", most > 1 ? most : 0);
  return "";
}

LoadedEngine::LoadedEngine(const LoadedEngineOptions& o, const NamedValues& weights)
    : backend_(kernels::make_backend({.threads = 1})), routes_(*backend_), stream_(routes_.make_stream()) {
  mesh_ = std::make_unique<mesh::Mesh>(bootstrap().world(), o.layout);
  engine_ =
      std::make_unique<training::Engine>(routes_, *stream_, *mesh_,
                                         training::EngineOptions{.model = padded(o.model, o.layout[Axis::kTensor]),
                                                                 .dtype = o.dtype,
                                                                 .optimizer = o.optimizer,
                                                                 .clip = o.clip,
                                                                 .sequence_length = o.sequence_length});
  const Ctx ctx = engine_->ctx();
  int64_t buffers = 0;
  for (const auto& buffer : engine_->store().buffers()) {
    if (buffer->use != nn::BufferUse::kModel) continue;
    from_host(ctx, weights.at(buffer->tensor.name), buffer->values);
    buffers += buffer->tensor.main_replica ? 1 : 0;
  }
  buffers = comm::sum_of(mesh_->control(), buffers);
  ASHLAR_CHECK(std::ssize(engine_->norms().names()) + buffers == std::ssize(weights), weights.size(), " tensors");
  for (const nn::ShardedRange& range : engine_->optimizer()->ranges()) {
    const nn::ShardedTensor& tensor = *range.ref->tensor;
    const int64_t width = tensor.global_shape.cols();
    const auto at = weights.find(tensor.name);
    ASHLAR_CHECK(at != weights.end() && static_cast<int64_t>(at->second.size()) == tensor.global_shape.size(),
                 tensor.name);
    for (const nn::RangeBlock& block : nn::blocks_of(range)) {
      std::vector<double> values;
      for (int64_t r = block.row; r < block.row + block.rows; ++r) {
        const auto row = at->second.begin() + r * width + block.col;
        values.insert(values.end(), row, row + block.cols);
      }
      from_host(ctx, values, block_of(engine_->optimizer()->master(), range, block));
    }
  }
  engine_->optimizer()->copy_master_to_params(ctx);
  engine_->start_param_sync();
}

training::DeviceBatch LoadedEngine::batch(const Tokens& tokens) {
  // Replicas compute as many samples each; the last one's may be filled up with such that do not count.
  const int64_t replicas = mesh_->size(kSampleAxes), B = (tokens.B + replicas - 1) / replicas, T = tokens.T;
  const int64_t first = mesh_->index(kSampleAxes) * B * T;
  const auto share = [&](std::span<const int32_t> all, int32_t filler) {
    std::vector<int32_t> part(B * T, filler);
    for (int64_t n = 0; n < B * T && first + n < tokens.B * T; ++n) part[n] = all[first + n];
    return part;
  };
  data::Batch host;
  data::resize_batch(host, B, T, {});
  host.ids = share(tokens.ids, 0);
  host.targets = share(tokens.targets, -1);
  host.valid_targets = std::count_if(host.targets.begin(), host.targets.end(), [](int32_t t) { return t >= 0; });
  for (int64_t n = 0; n < B * T; ++n) host.positions[n] = static_cast<int32_t>(n % T);
  std::vector<int32_t> counts;
  data::fill_order(host, static_cast<int32_t>(engine_->options().model.vocab_size), counts);
  training::DeviceBatch device;
  device.upload(engine_->ctx(), host);
  return device;
}

NamedValues LoadedEngine::gather(const nn::FlatTensor& buffer) {
  NamedValues values;
  const zero::GlobalNorm& all = engine_->norms();
  for (size_t i = 0; i < all.names().size(); ++i) values[all.names()[i]].resize(all.num_elements()[i]);
  for (const nn::ShardedRange& range : engine_->optimizer()->ranges()) {
    const nn::ShardedTensor& tensor = *range.ref->tensor;
    if (!tensor.main_replica) continue;
    for (const nn::RangeBlock& block : nn::blocks_of(range)) {
      const std::vector<double> part = to_host(engine_->ctx(), block_of(buffer, range, block));
      for (int64_t r = 0; r < block.rows; ++r) {
        const int64_t at = (block.row + r) * tensor.global_shape.cols() + block.col;
        std::copy_n(part.begin() + r * block.cols, block.cols, values.at(tensor.name).begin() + at);
      }
    }
  }
  for (auto& [name, whole] : values) comm::sum_all(mesh_->control(), whole);  // each element is one rank's
  return values;
}

NamedValues LoadedEngine::gradients() { return gather({.data = engine_->store().grads()}); }
NamedValues LoadedEngine::weights() { return gather(engine_->optimizer()->master()); }

std::vector<double> LoadedEngine::logits(const training::DeviceBatch& batch) {
  engine_->wait_param_sync();
  const Ctx ctx = engine_->ctx();
  const model::Stage& stage = *engine_->chunks().front();
  const auto at = static_cast<int>(mesh_->at()[Axis::kPipeline]);
  Var rows;
  if (stage.range().embedding) {
    rows = stage.embed(ctx, batch.view());
  } else {
    rows.value = ctx.empty(ctx.dtype, {batch.view().rows(), stage.config().d_model});
    mesh_->group(Axis::kPipeline).recv({.data = rows.value.mut_view(), .from = at - 1}, ctx.stream).wait(ctx.stream);
  }
  rows = stage.blocks(ctx, rows, batch.view());
  const int64_t N = batch.view().rows(), V = stage.config().vocab_size;
  std::vector<double> all(mesh_->size(kSampleAxes) * N * V);
  if (!stage.range().head) {
    mesh_->group(Axis::kPipeline).send({.data = rows.value.view(), .to = at + 1}, ctx.stream).wait(ctx.stream);
  } else {
    const Tensor z = stage.logits(ctx, rows.value);
    std::vector<double> mine = to_host(ctx, z);
    for (int64_t n = 0; n < N && mesh_->at()[Axis::kTensor] == 0; ++n) {
      const std::span<double> row(mine.data() + n * z.cols(), static_cast<size_t>(V));
      model::finish_logits(stage.config(), row);
      std::copy(row.begin(), row.end(), all.begin() + (mesh_->index(kSampleAxes) * N + n) * V);
    }
  }
  comm::sum_all(mesh_->control(), all);  // each row is one rank's
  return all;
}

std::vector<double> LoadedEngine::stream(const training::DeviceBatch& batch, int64_t layers) {
  engine_->wait_param_sync();
  const Ctx ctx = engine_->ctx();
  const model::Stage& stage = *engine_->chunks().front();
  std::vector<double> rows;
  stage.blocks(ctx, stage.embed(ctx, batch.view()), batch.view(), [&](int64_t behind, const Tensor& x) {
    if (behind == layers) rows = to_host(ctx, x);
  });
  return rows;
}

double norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  ASHLAR_CHECK(a.size() == b.size(), a.size(), " against ", b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

}  // namespace ashlar::testing
