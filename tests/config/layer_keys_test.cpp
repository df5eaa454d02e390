// Keys of some kinds of layers are refused where no layer is of that kind: they would change nothing, unsaid.
#include "tests/config/fixture.h"

namespace ashlar::config {
namespace {

using namespace testing;

TEST(LayerKeys, OfWindowsNeedOne) {
  for (const std::string key : {"rope.local_base=1e4", "attn.window_kind=chunked", "attn.last_layer_full=true"}) {
    const std::string name = key.substr(0, key.find('='));
    expect_one(errors_of({key}), name + " = ", "some layer has a window (attn.window_cycle)");
    expect_one(errors_of({key, "attn.window_cycle=[-1, -1]"}), name, "expected only when");
    EXPECT_EQ(errors_of({key, "attn.window_cycle=[16, -1]"}), std::vector<std::string>{}) << key;
  }
}

TEST(LayerKeys, OfFullLayersNeedOne) {
  for (const std::string key : {"rope.global_enabled=false", "rope.global_dims=8", "attn.global_head_dim=16",
                                "attn.global_n_kv_heads=2", "attn.k_eq_v=true"}) {
    const std::string name = key.substr(0, key.find('='));
    expect_one(errors_of({key, "attn.window_cycle=[16]"}), name + " = ", "some layer has full attention");
    EXPECT_EQ(errors_of({key, "attn.window_cycle=[16]", "attn.last_layer_full=true"}), std::vector<std::string>{})
        << key;
    EXPECT_EQ(errors_of({key, "attn.window_cycle=[16, -1]"}), std::vector<std::string>{}) << key;
    EXPECT_EQ(errors_of({key}), std::vector<std::string>{}) << key;
  }
}

/// Configurations that checkpoints hold have every key that applied when they were written.
TEST(LayerKeys, DefaultsStandAnywhere) {
  EXPECT_EQ(errors_of({"rope.local_base=none", "attn.window_kind=sliding", "attn.last_layer_full=false"}),
            std::vector<std::string>{});
  EXPECT_EQ(errors_of({"attn.window_cycle=[16]", "rope.global_enabled=true", "attn.k_eq_v=false"}),
            std::vector<std::string>{});
  // A key of another kind has no such leave.
  expect_one(errors_of({"pos.type=none", "rope.reversed=false"}), "rope.reversed = false", "expected only when");
}

TEST(LayerKeys, ABaseBesideACycleIsOneOfIt) {
  expect_one(errors_of({"rope.base=5e5", "rope.base_cycle=[1e4, 0]"}), "rope.base = 5e+05",
             "conflicts with rope.base_cycle = [10000.0, 0.0]");
  for (const std::string base : {"5e5", "10000"})
    EXPECT_EQ(errors_of({"rope.base=" + base, "rope.base_cycle=[5e5, 0]"}), std::vector<std::string>{}) << base;
  EXPECT_EQ(errors_of({"rope.base=5e5", "rope.base_cycle=[0]"}), std::vector<std::string>{});
}

}  // namespace
}  // namespace ashlar::config
