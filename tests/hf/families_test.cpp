// The list of families: each is found by its names, and no name is another's.
#include <set>

#include "tests/hf/hf_support.h"

namespace ashlar::hf {
namespace {

TEST(Families, AreFoundByTheirNames) {
  std::set<std::string_view> classes, types;
  for (const Family& family : families()) {
    SCOPED_TRACE(family.class_name);
    EXPECT_TRUE(classes.insert(family.class_name).second) << "twice";
    EXPECT_TRUE(types.insert(family.model_type).second) << "twice";
    EXPECT_EQ(family_from_class(family.class_name), &family);
    EXPECT_EQ(family_from_model_type(family.model_type), &family);
    for (const std::string_view old : family.old_class_names) {
      EXPECT_TRUE(classes.insert(old).second) << old;
      EXPECT_EQ(family_from_class(old), &family) << old;
    }
  }
  EXPECT_EQ(family_from_class("BertForMaskedLM"), nullptr);
  EXPECT_EQ(family_from_model_type("bert"), nullptr);
  EXPECT_EQ(families().front().model_type, "llama") << "the plainest layout is tried first";
}

}  // namespace
}  // namespace ashlar::hf
