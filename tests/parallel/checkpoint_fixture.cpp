#include "tests/parallel/checkpoint_fixture.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>

#include "kernels/make_backend.h"

namespace ashlar::checkpoint {

std::optional<Found> newest_good(const std::filesystem::path& run_dir, Log& log) {
  comm::SelfComm self("ranks");
  comm::ControlPlane ranks(self, "ranks");
  return newest_good(run_dir, log, ranks);
}

std::filesystem::path resolve(const std::filesystem::path& path, Log& log) {
  comm::SelfComm self("ranks");
  comm::ControlPlane ranks(self, "ranks");
  return resolve(path, log, ranks);
}

}  // namespace ashlar::checkpoint

namespace ashlar::testing {
namespace {

nn::ShardedTensor matrix(const std::string& name, int64_t rows, int64_t cols, int64_t storage_row) {
  return {.name = name,
          .role = nn::Role::kMatrix,
          .global_shape = {rows, cols},
          .rows = rows,
          .cols = cols,
          .storage_row = storage_row};
}

nn::ShardedTensor vector(const std::string& name, int64_t size, int64_t storage_begin) {
  return {.name = name,
          .role = nn::Role::kNorm,
          .global_shape = Shape{size},
          .rows = 1,
          .cols = size,
          .storage_row = storage_begin};
}

}  // namespace

CheckpointModel::CheckpointModel(DType dtype, bool training) : CheckpointModel(dtype, training, Size{}) {}

CheckpointModel::CheckpointModel(DType dtype, bool training, const Size& size) {
  const int64_t C = size.width;
  store_.add("embed", {size.padded, C}, {matrix("embed.weight", size.vocab, C, 0)});
  for (int64_t layer = 0; layer < size.layers; ++layer) {
    const std::string block = str_cat("blocks.", layer, ".");
    store_.add(block + "qkv", {C + C / 2 + C / 2, C},
               {matrix(block + "attn.q.weight", C, C, 0), matrix(block + "attn.k.weight", C / 2, C, C),
                matrix(block + "attn.v.weight", C / 2, C, C + C / 2)});
    store_.add(block + "qkv_bias", Shape{2 * C},
               {vector(block + "attn.q.bias", C, 0), vector(block + "attn.k.bias", C / 2, C),
                vector(block + "attn.v.bias", C / 2, C + C / 2)});
    store_.add(block + "norm", Shape{C}, {vector(block + "norm.gain", C, 0)});
  }
  build(dtype, training);
}

CheckpointModel::CheckpointModel(DType dtype, const std::vector<nn::ShardedTensor>& tensors) {
  for (const nn::ShardedTensor& p : tensors) {
    store_.add(p.name + ".storage", p.vector() ? Shape{p.cols} : Shape{p.rows, p.cols}, {p});
  }
  build(dtype, true);
}

void CheckpointModel::build(DType dtype, bool training) {
  backend_ = kernels::make_backend({.threads = 1});
  stream_ = backend_->make_stream();
  ctx_ = std::make_unique<Ctx>(Ctx{.backend = *backend_, .stream = *stream_, .dtype = dtype});
  store_.allocate(*ctx_, training);
  if (training) optimizer_ = optim::make_optimizer(*ctx_, store_, {}, nn::FlatRanges::whole(store_));
}

void CheckpointModel::set(const Tensor& buffer, const nn::ParameterStore::ShardedTensorRef& ref,
                          const std::string& bytes) const {
  ctx_->backend.write(bytes.data(), buffer.flat_range(ref.flat_begin, ref.tensor->size()).mut_view(), *stream_);
}

namespace {

/// Random bits that are a finite number as fp64 and as two of fp32: an exponent of ones loses its highest bit.
uint64_t finite_bits(uint64_t word) {
  for (const int half : {0, 32}) {
    const uint64_t exponent = uint64_t{0x7f800000} << half;
    if ((word & exponent) == exponent) word ^= uint64_t{0x40000000} << half;
  }
  return word;
}

}  // namespace

void CheckpointModel::randomize(uint64_t seed) {
  std::mt19937_64 random(seed);
  for (const nn::FlatTensor& buffer : {optimizer_->master(), optimizer_->state("m"), optimizer_->state("v")}) {
    for (const auto& ref : store_.sharded_tensors()) {
      std::string bytes(static_cast<size_t>(ref.tensor->size() * size_of(buffer.data.dtype())), '\0');
      for (size_t i = 0; i < bytes.size(); i += 8) {
        const uint64_t word = finite_bits(random());
        std::memcpy(bytes.data() + i, &word, std::min<size_t>(8, bytes.size() - i));
      }
      set(buffer.data, ref, bytes);
    }
  }
  optimizer_->copy_master_to_params(*ctx_);
}

void CheckpointModel::randomize_finite(uint64_t seed) {
  store_.initialize(*ctx_, seed, store_.values());
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  const Tensor& buffer = optimizer_ ? optimizer_->master().data : store_.values();
  for (const auto& ref : store_.sharded_tensors()) {
    std::string bytes;
    for (int64_t i = 0; i < ref.tensor->size(); ++i) {
      const float x = normal(random);
      if (buffer.dtype() == DType::kFloat32) bytes.append(reinterpret_cast<const char*>(&x), sizeof(x));
      if (buffer.dtype() == DType::kFloat64) {
        const double wide = static_cast<double>(x) / 3;
        bytes.append(reinterpret_cast<const char*>(&wide), sizeof(wide));
      }
      if (buffer.dtype() == DType::kBFloat16) {
        const BF16 narrow(x);
        bytes.append(reinterpret_cast<const char*>(&narrow), sizeof(narrow));
      }
    }
    set(buffer, ref, bytes);
  }
  if (optimizer_) optimizer_->copy_master_to_params(*ctx_);
}

std::string CheckpointModel::bytes_of(const Tensor& buffer, const std::string& name) const {
  const auto* ref = store_.find(name);
  EXPECT_NE(ref, nullptr) << name;
  return bytes_of(buffer.flat_range(ref->flat_begin, ref->tensor->size()));
}

std::string CheckpointModel::bytes_of(const Tensor& buffer) const {
  std::string bytes(static_cast<size_t>(buffer.size() * size_of(buffer.dtype())), '\0');
  ctx_->backend.read(buffer.view(), bytes.data(), *stream_);
  return bytes;
}

std::string CheckpointModel::all_bytes() const {
  return bytes_of(optimizer_->master().data) + bytes_of(optimizer_->state("m").data) +
         bytes_of(optimizer_->state("v").data) + bytes_of(store_.values());
}

checkpoint::TrainingState state_at(int64_t step) {
  return {.step = step,
          .position_samples = 12 * step + 5,
          .tokens = 768 * step + 1,
          .seed = 0xfedcba9876543210ULL,
          .philox_step = static_cast<uint64_t>(step) + 2};
}

void patch(const std::string& path, int64_t offset, const std::string& bytes) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(offset);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(file.good()) << path;
}

std::string resealed(std::string text) {
  const size_t line = text.find('\n') + 1;
  const auto crc =
      ::crc32(0, reinterpret_cast<const Bytef*>(text.data() + line), static_cast<uInt>(text.size() - line));
  char hex[9];
  std::snprintf(hex, sizeof(hex), "%08lx", static_cast<unsigned long>(crc));
  return text.replace(text.find(":\"") + 2, 8, hex);
}

int exit_code_of_child(const std::string& message_file, const std::function<void()>& action) {
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 0;
    try {
      action();
    } catch (const Error& error) {
      spit(message_file, error.what());
      code = static_cast<int>(error.code());
    } catch (const std::exception& other) {
      spit(message_file, other.what());
      code = static_cast<int>(ExitCode::kBug);
    }
    ::_exit(code);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

checkpoint::Saved save_step(CheckpointModel& model, const std::filesystem::path& run, int64_t step) {
  return checkpoint::save(model.ctx(), {.ranks = model.ranks(),
                                        .run_dir = run,
                                        .store = model.store(),
                                        .optimizer = &model.optimizer(),
                                        .state = state_at(step),
                                        .keep = 1});
}

}  // namespace ashlar::testing
