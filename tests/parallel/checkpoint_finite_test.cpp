// A NaN or an infinity in what is loaded is an error with exit code 4 that names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "parallel/checkpoint/load.h"
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
using ::ashlar::testing::state_at;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Puts a value in one place of a flat buffer.
void plant(CheckpointModel& model, const Tensor& buffer, const std::string& name, int64_t element, float value) {
  for (const auto& ref : model.store().sharded_tensors()) {
    if (ref.tensor->name != name) continue;
    const Tensor place = buffer.flat_range(ref.flat_begin + element, 1);
    if (buffer.dtype() == DType::kFloat64) {
      const double wide = value;
      model.ctx().backend.write(&wide, place.mut_view(), model.ctx().stream);
    } else {
      model.ctx().backend.write(&value, place.mut_view(), model.ctx().stream);
    }
    return;
  }
  FAIL() << "no tensor " << name;
}

fs::path saved(CheckpointModel& model, const fs::path& run) {
  return save(model.ctx(), {.ranks = model.ranks(),
                            .run_dir = run,
                            .store = model.store(),
                            .optimizer = &model.optimizer(),
                            .state = state_at(1)})
      .path;
}

Error error_of_training(const fs::path& path, DType dtype) {
  CheckpointModel fresh(dtype);
  CheckpointReader reader(path);
  return error_of([&] {
    load_training(fresh.ctx(),
                  {.ranks = fresh.ranks(), .reader = reader, .store = fresh.store(), .optimizer = &fresh.optimizer()});
  });
}

Error error_of_weights(const fs::path& path, DType dtype) {
  CheckpointModel fresh(dtype, false);
  CheckpointReader reader(path);
  return error_of(
      [&] { load_weights(fresh.ctx(), {.ranks = fresh.ranks(), .reader = reader, .store = fresh.store()}); });
}

TEST(CheckpointFinite, TheFirstTensorByNameIsNamedWithItsPlace) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
    SCOPED_TRACE(name_of(dtype));
    const ScratchDir dir;
    CheckpointModel model(dtype);
    model.randomize_finite(1);
    const Tensor& master = model.optimizer().master().data;
    plant(model, master, "embed.weight", 12 * 5 + 3, -std::numeric_limits<float>::infinity());
    plant(model, master, "blocks.1.attn.k.bias", 4, std::numeric_limits<float>::quiet_NaN());
    const fs::path path = saved(model, dir.path());
    for (const Error& error : {error_of_weights(path, dtype), error_of_training(path, dtype)}) {
      EXPECT_EQ(error.code(), ExitCode::kNonFinite);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("'blocks.1.attn.k.bias', element [0, 4] is nan"),
                                      HasSubstr("2 tensors have such values"), HasSubstr(path.string().substr(0, 20)),
                                      Not(HasSubstr("embed.weight"))));
    }
  }
}

TEST(CheckpointFinite, TheStateOfTheOptimizerCountsWhereItIsLoaded) {
  const ScratchDir dir;
  CheckpointModel model(DType::kFloat32);
  model.randomize_finite(1);
  plant(model, model.optimizer().state("v").data, "embed.weight", 1, std::numeric_limits<float>::infinity());
  const fs::path path = saved(model, dir.path());
  const Error error = error_of_training(path, DType::kFloat32);
  EXPECT_EQ(error.code(), ExitCode::kNonFinite);
  EXPECT_THAT(error.what(), HasSubstr("'embed.weight.v', element [0, 1] is inf"));
  CheckpointModel inference(DType::kFloat32, false);
  CheckpointReader reader(path);
  load_weights(inference.ctx(), {.ranks = inference.ranks(), .reader = reader, .store = inference.store()});
}

TEST(CheckpointFinite, AValueThatTheWantedTypeCannotHoldIsNamedWithItsValue) {
  const ScratchDir dir;
  CheckpointModel model(DType::kFloat32);
  model.randomize_finite(1);
  plant(model, model.optimizer().master().data, "embed.weight", 0, std::numeric_limits<float>::max());
  const fs::path path = saved(model, dir.path());
  const Error error = error_of_weights(path, DType::kBFloat16);
  EXPECT_EQ(error.code(), ExitCode::kNonFinite);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("'embed.weight', element [0, 0] is 3.40282e+38, beyond the range of BF16"),
                                  HasSubstr("choose a dtype with a larger range")));
}

}  // namespace
}  // namespace ashlar::checkpoint
