#include "tests/reference/golden_folder.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "kernels/make_backend.h"
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

NamedValues read_as_model(const fs::path& config_dir, const io::SafetensorsReader& file, const std::string& prefix) {
  const ScratchDir scratch;
  fs::copy_file(config_dir / "config.json", scratch.path() / "config.json");
  std::vector<io::TensorSpec> specs;
  for (const io::TensorEntry& entry : file.tensors()) {
    if (entry.name.compare(0, prefix.size(), prefix) != 0) continue;
    specs.push_back({.name = entry.name.substr(prefix.size()), .dtype = entry.dtype, .shape = entry.shape});
  }
  io::SafetensorsWriter writer(scratch.path() / "model.safetensors", specs);
  for (const io::TensorSpec& spec : specs) writer.write(spec.name, read_raw(file, prefix + spec.name));
  writer.finish();
  hf::ImportedModel model = hf::import_hf(scratch.path());
  return read_model(model);
}

LoadedEngine::LoadedEngine(const model::ModelConfig& config, DType dtype, const NamedValues& weights,
                           const optim::AdamWOptions& optimizer, double clip, int64_t sequence_length)
    : backend_(kernels::make_cpu_backend({.threads = 1})), stream_(backend_->make_stream()) {
  engine_ = std::make_unique<training::Engine>(
      *backend_, *stream_,
      training::EngineOptions{
          .model = config, .dtype = dtype, .optimizer = optimizer, .clip = clip, .sequence_length = sequence_length});
  const Tensor& master = engine_->optimizer()->master().data;
  for (const auto& ref : engine_->store().pieces()) {
    const auto at = weights.find(ref.piece->name);
    ASHLAR_CHECK(at != weights.end() && static_cast<int64_t>(at->second.size()) == ref.piece->size(), ref.piece->name);
    const Tensor t = nn::ParameterStore::of(master, ref);
    if (t.dtype() == DType::kFloat64) {
      backend_->copy_from_host(at->second.data(), t.mut_view(), *stream_);
    } else {
      const std::vector<float> narrow(at->second.begin(), at->second.end());
      backend_->copy_from_host(narrow.data(), t.mut_view(), *stream_);
    }
  }
  engine_->optimizer()->publish(engine_->ctx());
}

training::DeviceBatch LoadedEngine::batch(const std::vector<int32_t>& ids, const std::vector<int32_t>& targets,
                                          int64_t B, int64_t T) {
  data::Batch host;
  data::resize_batch(host, B, T, {});
  host.ids = ids;
  host.targets = targets;
  host.valid_targets = std::count_if(targets.begin(), targets.end(), [](int32_t t) { return t >= 0; });
  for (int64_t n = 0; n < B * T; ++n) host.positions[n] = static_cast<int32_t>(n % T);
  std::vector<int32_t> counts;
  data::fill_order(host, static_cast<int32_t>(engine_->options().model.vocab_size), counts);
  training::DeviceBatch device;
  device.upload(engine_->ctx(), host);
  return device;
}

NamedValues LoadedEngine::read(const Tensor& slab) {
  NamedValues values;
  for (const auto& ref : engine_->store().pieces()) {
    const Tensor t = nn::ParameterStore::of(slab, ref);
    std::vector<std::byte> raw(t.size() * size_of(t.dtype()));
    backend_->copy_to_host(t.view(), raw.data(), *stream_);
    values[ref.piece->name] = convert<double>(raw, io::to_file_dtype(t.dtype()));
  }
  return values;
}

NamedValues LoadedEngine::gradients() { return read(engine_->store().grads()); }
NamedValues LoadedEngine::weights() { return read(engine_->optimizer()->master().data); }

std::vector<double> LoadedEngine::logits(const training::DeviceBatch& batch) {
  const Ctx ctx = engine_->ctx();
  const auto& stage = engine_->stage();
  const Tensor z = stage.logits(ctx, stage.blocks(ctx, stage.embed(ctx, batch.view()), batch.view()).value);
  std::vector<std::byte> raw(z.size() * size_of(z.dtype()));
  backend_->copy_to_host(z.view(), raw.data(), *stream_);
  return convert<double>(raw, io::to_file_dtype(z.dtype()));
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
