#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/base/strings.h"
#include "core/io/convert.h"
#include "core/io/safetensors.h"
#include "parallel/checkpoint/find.h"
#include "parallel/checkpoint/load.h"
#include "parallel/checkpoint/manifest.h"
#include "parallel/checkpoint/reader.h"
#include "parallel/checkpoint/save.h"
#include "tests/parallel/checkpoint_fixture.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::ashlar::testing::CheckpointModel;
using ::ashlar::testing::error_of;
using ::ashlar::testing::ScratchDir;
using ::ashlar::testing::slurp;
using ::ashlar::testing::spit;
using ::ashlar::testing::state_at;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Saved save_at(CheckpointModel& model, const fs::path& run, int64_t step, bool with_optimizer = true) {
  return save(model.ctx(), {.ranks = model.ranks(),
                            .run_dir = run,
                            .store = model.store(),
                            .optimizer = with_optimizer ? &model.optimizer() : nullptr,
                            .state = state_at(step),
                            .config_toml = "[run]\nseed = 1\n",
                            .tokenizer_json = R"({"type":"bytes"})",
                            .metadata = {{"key", "value"}}});
}

template <typename T>
std::string bytes_from(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

class CheckpointRoundTrip : public ::testing::TestWithParam<DType> {};

TEST_P(CheckpointRoundTrip, EveryBitOfEveryPieceComesBack) {
  const ScratchDir dir;
  CheckpointModel before(GetParam());
  before.randomize(1);
  const Saved saved = save_at(before, dir.path(), 1234);
  EXPECT_EQ(saved.path, dir.path() / "checkpoints" / "step-00001234");
  EXPECT_TRUE(saved.removed.empty());
  int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(saved.path)) bytes += static_cast<int64_t>(entry.file_size());
  EXPECT_EQ(saved.bytes, bytes);

  CheckpointModel after(GetParam());
  CheckpointReader reader(saved.path);
  reader.verify();
  EXPECT_EQ(reader.config_toml(), "[run]\nseed = 1\n");
  EXPECT_EQ(reader.tokenizer_json(), R"({"type":"bytes"})");
  EXPECT_EQ(reader.metadata().at("key"), "value");
  EXPECT_EQ(load_training(
                after.ctx(),
                {.ranks = after.ranks(), .reader = reader, .store = after.store(), .optimizer = &after.optimizer()}),
            state_at(1234));
  EXPECT_EQ(after.all_bytes(), before.all_bytes());
  EXPECT_NE(after.bytes_of(after.optimizer().state("m").data), after.bytes_of(after.optimizer().state("v").data));
}

TEST_P(CheckpointRoundTrip, FilesAreOrdinarySafetensorsOfUnpaddedMasterWeights) {
  const ScratchDir dir;
  CheckpointModel model(GetParam());
  model.randomize(2);
  const Saved saved = save_at(model, dir.path(), 5);
  const io::SafetensorsReader weights(saved.path / "weights-00000.safetensors");
  const io::SafetensorsReader moments(saved.path / "optimizer-00000.safetensors");
  const io::FileDType expected = GetParam() == DType::kFloat64 ? io::FileDType::kF64 : io::FileDType::kF32;
  EXPECT_EQ(weights.tensors().size(), model.store().sharded_tensors().size());
  EXPECT_EQ(moments.tensors().size(), 2 * model.store().sharded_tensors().size());
  EXPECT_THAT(weights.at("embed.weight").shape, ElementsAre(37, 12)) << "padding is not stored";
  EXPECT_THAT(weights.at("blocks.1.attn.k.bias").shape, ElementsAre(6));
  for (const auto& ref : model.store().sharded_tensors()) {
    const std::string& name = ref.tensor->name;
    const auto check = [&](const io::SafetensorsReader& file, const std::string& stored, const Tensor& buffer) {
      const io::TensorEntry& entry = file.at(stored);
      EXPECT_EQ(entry.dtype, expected) << stored;
      std::string bytes(static_cast<size_t>(entry.num_bytes()), '\0');
      file.read(entry, std::as_writable_bytes(std::span(bytes)));
      EXPECT_EQ(bytes, model.bytes_of(buffer, name)) << stored;
    };
    check(weights, name, model.optimizer().master().data);
    check(moments, name + ".m", model.optimizer().state("m").data);
    check(moments, name + ".v", model.optimizer().state("v").data);
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, CheckpointRoundTrip,
                         ::testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat64),
                         [](const auto& param) { return std::string(name_of(param.param)); });

TEST(CheckpointLoad, InferenceValuesEqualWhatTrainingPublished) {
  const ScratchDir dir;
  CheckpointModel trained(DType::kBFloat16);
  trained.randomize_finite(3);
  CheckpointReader reader(save_at(trained, dir.path(), 1).path);
  CheckpointModel inference(DType::kBFloat16, false);
  load_weights(inference.ctx(), {.ranks = inference.ranks(), .reader = reader, .store = inference.store()});
  EXPECT_EQ(inference.bytes_of(inference.store().values()), trained.bytes_of(trained.store().values()));
}

TEST(CheckpointLoad, WeightsOnlyLeaveTheMomentsAndPublish) {
  const ScratchDir dir;
  CheckpointModel trained(DType::kBFloat16);
  trained.randomize_finite(4);
  CheckpointReader reader(save_at(trained, dir.path(), 1).path);
  CheckpointModel fresh(DType::kBFloat16);
  fresh.randomize(9);
  const std::string m = fresh.bytes_of(fresh.optimizer().state("m").data);
  const std::string v = fresh.bytes_of(fresh.optimizer().state("v").data);
  load_weights(fresh.ctx(),
               {.ranks = fresh.ranks(), .reader = reader, .store = fresh.store(), .optimizer = &fresh.optimizer()});
  EXPECT_EQ(fresh.bytes_of(fresh.optimizer().master().data), trained.bytes_of(trained.optimizer().master().data));
  EXPECT_EQ(fresh.bytes_of(fresh.store().values()), trained.bytes_of(trained.store().values()));
  EXPECT_EQ(fresh.bytes_of(fresh.optimizer().state("m").data), m);
  EXPECT_EQ(fresh.bytes_of(fresh.optimizer().state("v").data), v);
}

TEST(CheckpointLoad, AStoreWithoutOptimizerSavesItsOwnDType) {
  const ScratchDir dir;
  CheckpointModel model(DType::kBFloat16, false);
  model.randomize_finite(5);
  CheckpointReader reader(save_at(model, dir.path(), 1, false).path);
  EXPECT_EQ(reader.at("embed.weight").dtype, io::FileDType::kBF16);
  EXPECT_FALSE(reader.has_optimizer_state());
  CheckpointModel other(DType::kBFloat16, false);
  load_weights(other.ctx(), {.ranks = other.ranks(), .reader = reader, .store = other.store()});
  EXPECT_EQ(other.bytes_of(other.store().values()), model.bytes_of(model.store().values()));
}

/// A checkpoint made by write_tensors from one vector "x" in any dtype.
Saved write_vector(const fs::path& path, io::FileDType dtype, const std::string& bytes) {
  const TensorSource source{
      .tensors = {{.name = "x", .dtype = dtype, .shape = {static_cast<int64_t>(bytes.size()) / io::size_of(dtype)}}},
      .produce = [&](const io::TensorSpec&, const TensorSource::Emit& emit) {
        emit(std::as_bytes(std::span(bytes)).first(1));
        emit(std::as_bytes(std::span(bytes)).subspan(1));
      }};
  return write_tensors(
      {.dir = path, .source = source, .config_toml = "c", .tokenizer_json = "t", .metadata = {{"a", "b"}}});
}

std::string load_vector(const fs::path& path, DType dtype, int64_t size) {
  CheckpointModel model(dtype, {{.name = "x", .global_shape = Shape{size}, .rows = 1, .cols = size}});
  CheckpointReader reader(path);
  load_weights(model.ctx(), {.ranks = model.ranks(), .reader = reader, .store = model.store()});
  return model.bytes_of(model.store().values(), "x");
}

TEST(CheckpointLoad, EveryFloatingTypeIsConvertedWithOneRounding) {
  const ScratchDir dir;
  // binary16 values by hand: 1, the smallest subnormal, the largest subnormal, the largest number, the least, -0, -2.
  const std::vector<uint16_t> half = {0x3c00, 0x0001, 0x03ff, 0x7bff, 0xfbff, 0x8000, 0xc000};
  write_vector(dir.path() / "f16", io::FileDType::kF16, bytes_from(half));
  const std::vector<float> half_as_float = {1.0F, 0x1p-24F, 1023 * 0x1p-24F, 65504.0F, -65504.0F, -0.0F, -2.0F};
  EXPECT_EQ(load_vector(dir.path() / "f16", DType::kFloat32, 7), bytes_from(half_as_float));
  write_vector(dir.path() / "nan", io::FileDType::kF16, bytes_from(std::vector<uint16_t>{0x7e01}));
  EXPECT_EQ(error_of([&] { load_vector(dir.path() / "nan", DType::kFloat32, 1); }).code(), ExitCode::kNonFinite);

  const std::vector<double> wide = {1.0 / 3, 1e-300, 1 + 0x1p-8, 1 + 0x1p-8 + 0x1p-20, -1e30};
  write_vector(dir.path() / "f64", io::FileDType::kF64, bytes_from(wide));
  EXPECT_EQ(load_vector(dir.path() / "f64", DType::kFloat64, 5), bytes_from(wide));
  std::string same(bytes_from(wide).size(), '\0');
  io::convert(io::FileDType::kF64, std::as_bytes(std::span(wide)), io::FileDType::kF64,
              std::as_writable_bytes(std::span(same)));
  EXPECT_EQ(same, bytes_from(wide)) << "loading does not convert what has the right type already";
  const std::vector<float> narrow = {1.0F / 3, 0.0F, 1 + 0x1p-8F, 1 + 0x1p-8F + 0x1p-20F, -1e30F};
  EXPECT_EQ(load_vector(dir.path() / "f64", DType::kFloat32, 5), bytes_from(narrow));

  // Ties go to even in bf16 (8 bits of precision): 1 + 2^-8 falls to 1, a little more rises to 1 + 2^-7.
  write_vector(dir.path() / "f32", io::FileDType::kF32,
               bytes_from(std::vector<float>{1 + 0x1p-8F, 1 + 0x1p-8F + 0x1p-20F, 3.0F}));
  const std::vector<uint16_t> bf16 = {0x3f80, 0x3f81, 0x4040};
  EXPECT_EQ(load_vector(dir.path() / "f32", DType::kBFloat16, 3), bytes_from(bf16));
  write_vector(dir.path() / "bf16", io::FileDType::kBF16, bytes_from(bf16));
  EXPECT_EQ(load_vector(dir.path() / "bf16", DType::kFloat32, 3),
            bytes_from(std::vector<float>{1.0F, 1.0078125F, 3.0F}));
  EXPECT_EQ(load_vector(dir.path() / "bf16", DType::kBFloat16, 3), bytes_from(bf16));
  EXPECT_EQ(load_vector(dir.path() / "bf16", DType::kFloat64, 3), bytes_from(std::vector<double>{1.0, 1.0078125, 3.0}));

  write_vector(dir.path() / "i32", io::FileDType::kI32, bytes_from(std::vector<int32_t>{1, 2}));
  const Error error = error_of([&] { load_vector(dir.path() / "i32", DType::kFloat32, 2); });
  EXPECT_EQ(error.code(), ExitCode::kInput);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("'x'"), HasSubstr("I32")));
}

TEST(CheckpointWriteTensors, KeepsTheSourceAndRefusesWhatIsThere) {
  const ScratchDir dir;
  const std::string bytes = bytes_from(std::vector<uint16_t>{1, 2, 3});
  const Saved saved = write_vector(dir.path() / "a" / "b", io::FileDType::kBF16, bytes);
  CheckpointReader reader(saved.path);
  EXPECT_FALSE(reader.state().has_value());
  EXPECT_EQ(reader.config_toml(), "c");
  EXPECT_EQ(reader.tokenizer_json(), "t");
  EXPECT_EQ(reader.metadata().at("a"), "b");
  ASSERT_EQ(reader.tensors().size(), 1U);
  EXPECT_EQ(reader.tensors()[0].dtype, io::FileDType::kBF16);
  std::string got(6, '\0');
  reader.read("x", std::as_writable_bytes(std::span(got)));
  EXPECT_EQ(got, bytes);
  EXPECT_FALSE(fs::exists(saved.path / "optimizer-00000.safetensors"));

  const Error full = error_of([&] { write_vector(dir.path() / "a" / "b", io::FileDType::kBF16, bytes); });
  EXPECT_EQ(full.code(), ExitCode::kInput);
  EXPECT_THAT(full.what(), HasSubstr("is not empty"));
  testing::spit(dir.file("plain"), "x");
  const Error plain = error_of([&] { write_vector(dir.file("plain"), io::FileDType::kBF16, bytes); });
  EXPECT_EQ(plain.code(), ExitCode::kInput);
  EXPECT_THAT(plain.what(), HasSubstr("is a file"));

  // An empty directory, also written with a slash, is filled.
  fs::create_directories(dir.path() / "empty");
  write_vector(dir.path() / "empty" / "", io::FileDType::kBF16, bytes);
  CheckpointReader(dir.path() / "empty").verify();
  EXPECT_FALSE(fs::exists(dir.path() / "empty.partial"));
}

TEST(CheckpointWriteTensors, APartialDirectoryOfSomebodyElseStays) {
  const ScratchDir dir;
  const std::string bytes = bytes_from(std::vector<uint16_t>{1, 2, 3});
  // Names such as ours prove nothing: only the marker does.
  for (const char* name : {"thesis.txt", "weights-00000.safetensors", "manifest.json"}) {
    fs::create_directories(dir.path() / "mine.partial");
    testing::spit(dir.path() / "mine.partial" / name, "years");
    const Error mine = error_of([&] { write_vector(dir.path() / "mine", io::FileDType::kBF16, bytes); });
    EXPECT_EQ(mine.code(), ExitCode::kInput);
    EXPECT_THAT(mine.what(), AllOf(HasSubstr("mine.partial"), HasSubstr("rename or remove it")));
    EXPECT_EQ(testing::slurp(dir.path() / "mine.partial" / name), "years");
    EXPECT_FALSE(fs::exists(dir.path() / "mine"));
    fs::remove_all(dir.path() / "mine.partial");
  }
  testing::spit(dir.file("mine.partial"), "a file");
  EXPECT_EQ(error_of([&] { write_vector(dir.path() / "mine", io::FileDType::kBF16, bytes); }).code(), ExitCode::kInput);
  EXPECT_EQ(testing::slurp(dir.file("mine.partial")), "a file");
}

TEST(CheckpointWriteTensors, KilledAtAnyMomentAndRunAgainIsWhole) {
  const ScratchDir dir;
  const fs::path out = dir.path() / "out";
  const std::string bytes(4000, 'b');
  // A source that is killed at each of its steps, and once before the first file.
  for (int kill_at = 0; kill_at <= 4; ++kill_at) {
    const pid_t child = ::fork();
    if (child == 0) {
      int part = 0;
      const TensorSource source{.tensors = {{.name = "x", .dtype = io::FileDType::kU8, .shape = {4000}}},
                                .produce = [&](const io::TensorSpec&, const TensorSource::Emit& emit) {
                                  for (size_t at = 0; at < 4000; at += 1000) {
                                    if (part++ == kill_at) ::kill(::getpid(), SIGKILL);
                                    emit(std::as_bytes(std::span(bytes)).subspan(at, 1000));
                                  }
                                }};
      write_tensors({.dir = out, .source = source});
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(fs::exists(out), kill_at == 4);
    if (kill_at < 4) {
      EXPECT_TRUE(fs::exists(dir.path() / "out.partial"));
    }
  }
  CheckpointReader(out).verify();
  EXPECT_FALSE(fs::exists(dir.path() / "out.partial"));
  // Killed between making the directory and marking it.
  fs::create_directories(dir.path() / "again.partial");
  write_vector(dir.path() / "again", io::FileDType::kBF16, bytes_from(std::vector<uint16_t>{1, 2, 3}));
  for (const auto& entry : fs::directory_iterator(dir.path() / "again")) {
    EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << "the marker stays behind";
  }
}

TEST(CheckpointWriteTensors, ASourceThatFailsLeavesNothing) {
  const ScratchDir dir;
  const TensorSource source{
      .tensors = {{.name = "x", .shape = {4}}},
      .produce = [](const io::TensorSpec&, const TensorSource::Emit&) { throw damaged_error("source", "broken"); }};
  const Error error = error_of([&] { write_tensors({.dir = dir.path() / "out", .source = source}); });
  EXPECT_EQ(error.code(), ExitCode::kDamagedData);
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

TEST(CheckpointLoad, ACheckpointOfAnotherModelListsEveryDifference) {
  const ScratchDir dir;
  CheckpointModel saved(DType::kFloat32, {{.name = "gone.bias", .global_shape = Shape{3}, .rows = 1, .cols = 3},
                                          {.name = "gone.too", .global_shape = Shape{4}, .rows = 1, .cols = 4},
                                          {.name = "same", .global_shape = {2, 3}, .rows = 2, .cols = 3},
                                          {.name = "turned", .global_shape = {2, 5}, .rows = 2, .cols = 5}});
  saved.randomize(1);
  CheckpointReader reader(save_at(saved, dir.path(), 1).path);
  CheckpointModel other(DType::kFloat32, {{.name = "new", .global_shape = {7, 2}, .rows = 7, .cols = 2},
                                          {.name = "same", .global_shape = {2, 3}, .rows = 2, .cols = 3},
                                          {.name = "turned", .global_shape = {5, 2}, .rows = 5, .cols = 2}});
  other.randomize(2);
  const std::string before = other.all_bytes();
  for (const bool training : {false, true}) {
    const Error error = error_of([&] {
      if (training) {
        load_training(
            other.ctx(),
            {.ranks = other.ranks(), .reader = reader, .store = other.store(), .optimizer = &other.optimizer()});
      } else {
        load_weights(
            other.ctx(),
            {.ranks = other.ranks(), .reader = reader, .store = other.store(), .optimizer = &other.optimizer()});
      }
    });
    EXPECT_EQ(error.code(), ExitCode::kInput);
    EXPECT_THAT(error.what(), HasSubstr("checkpoint of another model"));
    EXPECT_THAT(error.what(), HasSubstr("'turned' is [2, 5] instead of [5, 2]"));
    EXPECT_THAT(error.what(), HasSubstr("missing in the checkpoint: 'new' [7, 2]"));
    EXPECT_THAT(error.what(), HasSubstr("not in this model: 'gone.bias' [3], 'gone.too' [4]"));
    EXPECT_THAT(error.what(), Not(HasSubstr("'same'")));
  }
  EXPECT_EQ(other.all_bytes(), before) << "nothing is loaded from another model";
}

TEST(CheckpointLoad, WhatCannotBeContinuedIsRefused) {
  const ScratchDir dir;
  CheckpointModel fp32(DType::kFloat32);
  fp32.randomize_finite(1);
  CheckpointModel fp64(DType::kFloat64);

  CheckpointReader training(save_at(fp32, dir.path() / "a", 1).path);
  const Error dtype = error_of([&] {
    load_training(fp64.ctx(),
                  {.ranks = fp64.ranks(), .reader = training, .store = fp64.store(), .optimizer = &fp64.optimizer()});
  });
  EXPECT_EQ(dtype.code(), ExitCode::kInput);
  EXPECT_THAT(dtype.what(), AllOf(HasSubstr("F32"), HasSubstr("F64"), HasSubstr("run.dtype")));
  load_weights(fp64.ctx(), {.ranks = fp64.ranks(),
                            .reader = training,
                            .store = fp64.store(),
                            .optimizer = &fp64.optimizer()});  // as weights it serves

  CheckpointReader weights(save_at(fp32, dir.path() / "b", 1, false).path);
  const Error only = error_of([&] {
    load_training(fp32.ctx(),
                  {.ranks = fp32.ranks(), .reader = weights, .store = fp32.store(), .optimizer = &fp32.optimizer()});
  });
  EXPECT_EQ(only.code(), ExitCode::kInput);
  EXPECT_THAT(only.what(), AllOf(HasSubstr("weights but no optimizer state"), HasSubstr("run.init_from")));
}

// The file has the tensor, the manifest does not tell of it.
TEST(CheckpointLoad, ATensorThatTheManifestLeavesOutIsMissed) {
  const ScratchDir dir;
  CheckpointModel model(DType::kFloat32);
  model.randomize_finite(1);
  const fs::path path = save_at(model, dir.path(), 1).path;
  Manifest manifest = parse_manifest(slurp(path / "manifest.json"), path);
  const auto left_out = std::find_if(manifest.tensors.begin(), manifest.tensors.end(),
                                     [](const TensorRecord& t) { return t.group == Group::kOptimizer; });
  const std::string name = left_out->name;
  manifest.tensors.erase(left_out);
  spit(path / "manifest.json", manifest_text(manifest));

  CheckpointReader reader(path);
  const Error missing = error_of([&] {
    load_training(model.ctx(),
                  {.ranks = model.ranks(), .reader = reader, .store = model.store(), .optimizer = &model.optimizer()});
  });
  EXPECT_EQ(missing.code(), ExitCode::kDamagedData);
  EXPECT_THAT(missing.what(), HasSubstr("has no optimizer state tensor '" + name + "'"));

  const auto other = std::find_if(reader.tensors().begin(), reader.tensors().end(),
                                  [](const TensorRecord& t) { return t.group == Group::kOptimizer; });
  std::vector<std::byte> element(static_cast<size_t>(io::size_of(other->dtype)));
  const Error beside =
      error_of([&] { reader.read_block(*other, {.row = 0, .col = 0, .rows = 1, .cols = 1}, element); });
  EXPECT_EQ(beside.code(), ExitCode::kDamagedData);
  const size_t left = 2 * model.store().sharded_tensors().size() - 1;
  EXPECT_THAT(beside.what(), AllOf(HasSubstr(str_cat("holds ", left + 1, " tensors")),
                                   HasSubstr(str_cat("the manifest lists ", left))));
}

TEST(CheckpointLoad, TheStateOfAnotherUpdateRuleIsRefused) {
  const ScratchDir dir;
  CheckpointModel model(DType::kFloat32);
  model.randomize_finite(1);
  const auto lion =
      optim::make_optimizer(model.ctx(), model.store(), optim::rule_of(optim::OptimizerKind::kLion).defaults,
                            nn::FlatRanges::whole(model.store()));
  const auto refusal = [&](const fs::path& path, optim::Optimizer& optimizer) {
    CheckpointReader reader(path);
    const Error error = error_of([&] {
      load_training(model.ctx(),
                    {.ranks = model.ranks(), .reader = reader, .store = model.store(), .optimizer = &optimizer});
    });
    EXPECT_EQ(error.code(), ExitCode::kDamagedData);
    return std::string(error.what());
  };
  const size_t tensors = model.store().sharded_tensors().size();
  EXPECT_THAT(
      refusal(save_at(model, dir.path(), 1).path, *lion),
      HasSubstr(str_cat("has ", 2 * tensors, " optimizer state tensors, expected ", tensors, ": lion keeps 1")));
  const Saved of_lion = checkpoint::save(model.ctx(), {.ranks = model.ranks(),
                                                       .run_dir = dir.path() / "lion",
                                                       .store = model.store(),
                                                       .optimizer = lion.get(),
                                                       .state = state_at(1)});
  EXPECT_THAT(refusal(of_lion.path, model.optimizer()),
              AllOf(HasSubstr(".v' of shape"), HasSubstr("the second moments of adamw")));
}

// bf16 moments are stored as they are. Those in fp32 are rounded to nearest on the way to bf16; the way back is exact.
TEST(CheckpointLoad, MomentsOfTheOtherTypeAreConverted) {
  const ScratchDir dir;
  CheckpointModel wide(DType::kFloat32);
  wide.randomize_finite(1);
  uint64_t stream = 0;
  for (const auto& [name, state] : wide.optimizer().state())
    wide.ctx().backend.random_fill({.dst = state.data.mut_view(),
                                    .scale = 1e-3,
                                    .seed = 1,
                                    .rng_stream = ++stream,
                                    .global_cols = state.data.size()},
                                   wide.ctx().stream);
  const auto narrow_of = [](CheckpointModel& model) {
    return optim::make_optimizer(model.ctx(), model.store(), {.state_dtype = optim::StateDType::kBFloat16},
                                 nn::FlatRanges::whole(model.store()));
  };
  const auto load = [&](CheckpointModel& model, const fs::path& path, optim::Optimizer& optimizer) {
    CheckpointReader reader(path);
    load_training(model.ctx(),
                  {.ranks = model.ranks(), .reader = reader, .store = model.store(), .optimizer = &optimizer});
  };
  const auto of_tensors = [](CheckpointModel& model, const optim::Optimizer& optimizer) {  // without padding
    std::vector<float> all;
    for (const auto& [name, state] : optimizer.state()) {
      for (const nn::ShardedRange& range : optimizer.ranges()) {
        std::vector<float> part(static_cast<size_t>(range.size));
        std::vector<BF16> stored(part.size());
        const Tensor tensor = state.of(range);
        const bool narrow = tensor.dtype() == DType::kBFloat16;
        model.ctx().backend.read(tensor.view(), narrow ? static_cast<void*>(stored.data()) : part.data(),
                                 model.ctx().stream);
        for (size_t i = 0; narrow && i < part.size(); ++i) part[i] = static_cast<float>(stored[i]);
        all.insert(all.end(), part.begin(), part.end());
      }
    }
    return all;
  };
  std::vector<float> expected = of_tensors(wide, wide.optimizer());
  for (float& x : expected) x = static_cast<float>(BF16(x));
  ASSERT_NE(expected, of_tensors(wide, wide.optimizer()));

  CheckpointModel model(DType::kFloat32);
  const auto narrow = narrow_of(model);
  const fs::path from_wide = save_at(wide, dir.path() / "wide", 1).path;
  load(model, from_wide, *narrow);
  EXPECT_EQ(of_tensors(model, *narrow), expected);
  EXPECT_EQ(model.bytes_of(narrow->master().data), wide.bytes_of(wide.optimizer().master().data));

  const fs::path from_narrow = checkpoint::save(model.ctx(), {.ranks = model.ranks(),
                                                              .run_dir = dir.path() / "narrow",
                                                              .store = model.store(),
                                                              .optimizer = narrow.get(),
                                                              .state = state_at(1)})
                                   .path;
  int64_t bytes = 0;
  const CheckpointReader saved(from_narrow);
  for (const TensorRecord& tensor : saved.tensors())
    if (tensor.group == Group::kOptimizer)
      bytes += tensor.matrix_rows() * tensor.matrix_cols() * io::size_of(tensor.dtype);
  int64_t elements = 0;
  for (const auto& ref : model.store().sharded_tensors()) elements += ref.tensor->size();
  EXPECT_EQ(bytes, 2 * 2 * elements) << "two moments of two bytes";
  const auto file_size_of = [](const fs::path& path) {
    return static_cast<int64_t>(fs::file_size(path / "optimizer-00000.safetensors"));
  };
  EXPECT_NEAR(static_cast<double>(file_size_of(from_wide) - file_size_of(from_narrow)),
              static_cast<double>(2 * 2 * elements), 512)
      << "but for the header";

  CheckpointModel again(DType::kFloat32), back(DType::kFloat32);
  const auto same = narrow_of(again);
  load(again, from_narrow, *same);
  EXPECT_EQ(of_tensors(again, *same), expected);
  load(back, from_narrow, back.optimizer());
  EXPECT_EQ(of_tensors(back, back.optimizer()), expected);
}

TEST(CheckpointReaderTest, UnknownTensorsAndWrongDirectoriesAreInputErrors) {
  const ScratchDir dir;
  CheckpointModel model(DType::kFloat32);
  model.randomize(1);
  CheckpointReader reader(save_at(model, dir.path(), 1).path);
  EXPECT_EQ(reader.find("nothing"), nullptr);
  const Error error = error_of([&] { reader.at("nothing"); });
  EXPECT_EQ(error.code(), ExitCode::kInput);
  EXPECT_THAT(error.what(), HasSubstr("'nothing'"));
  for (const char* path : {"", "absent", "checkpoints"}) {
    const Error wrong = error_of([&] { CheckpointReader(dir.path() / path); });
    EXPECT_EQ(wrong.code(), ExitCode::kInput);
    EXPECT_THAT(wrong.what(), HasSubstr("manifest.json"));
  }
}

}  // namespace
}  // namespace ashlar::checkpoint
