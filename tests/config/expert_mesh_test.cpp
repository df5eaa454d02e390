// mesh.expert and moe.tensor against the replicas, the tensor ranks and the experts of the model.
#include "tests/config/fixture.h"

namespace ashlar::config::testing {
namespace {

TEST(ExpertMesh, RanksDivideReplicasAndAreAtMostTheExperts) {
  Facts twelve = facts();
  twelve.ranks = twelve.local_ranks = 12;
  const auto errors = [&](std::vector<std::string> changes, const std::string& text = kMinimal) {
    changes.insert(changes.begin(), {"mesh.tensor=2", "vocab.pad_to=2", "moe.experts=5", "moe.d_ff=64"});
    return errors_of(changes, text, twelve);
  };
  EXPECT_EQ(errors({"mesh.expert=3"}), std::vector<std::string>{});
  const std::string ranks = "choose from 1, 2, 3, or change mesh.data";
  expect_one(errors({"mesh.expert=4"}), "mesh.expert = 4: expected a divisor of mesh.data = 6", ranks);
  expect_one(errors({"mesh.expert=6"}), "mesh.expert = 6", "at most moe.experts = 5; " + ranks);
  expect_one(errors({"mesh.expert=3", "moe.tensor=experts"}), "mesh.expert = 3",
             "at most moe.experts / mesh.tensor = 2; choose from 1, 2, or");
  expect_one(errors({"moe.experts=1", "moe.top_k=1", "moe.tensor=experts"}), "mesh.tensor = 2: expected at most moe.",
             "set moe.tensor = \"slices\"");
  expect_one(errors({"moe.d_ff=65"}), "mesh.tensor = 2: expected a divisor of moe.d_ff = 65", "");
  EXPECT_EQ(errors({"moe.d_ff=65", "moe.tensor=experts"}), std::vector<std::string>{});
  expect_one(errors_of({"mesh.expert=2"}, kMinimal, twelve), "mesh.expert = 2: expected 1", "no layer has experts");
}

}  // namespace
}  // namespace ashlar::config::testing
