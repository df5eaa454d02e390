// The rules held against the project itself: one test a rule, so that a failure names the rule.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/lint/rules.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::lint {
namespace {

class Tree : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_GT(read_tree(ASHLAR_SOURCE_DIR).size(), 50u) << "the tree was not found"; }

  void SetUp() override { files_ = read_tree(ASHLAR_SOURCE_DIR); }

  void hold(Rule rule) {
    std::vector<Finding> findings;
    for (const SourceFile& file : files_) {
      for (Finding& finding : rule(file)) findings.push_back(std::move(finding));
    }
    EXPECT_TRUE(findings.empty()) << describe(findings);
  }

  std::vector<SourceFile> files_;
};

TEST_F(Tree, IncludeArrows) { hold(include_arrows); }
TEST_F(Tree, KernelCalls) { hold(kernel_calls); }
TEST_F(Tree, VendorHeaders) { hold(vendor_headers); }
TEST_F(Tree, FileLength) { hold(file_length); }
TEST_F(Tree, CommentWidth) { hold(comment_width); }
TEST_F(Tree, FunctionLength) { hold(function_length); }
TEST_F(Tree, ListedViews) { hold(listed_views); }
TEST_F(Tree, AsciiOnly) { hold(ascii_only); }
TEST_F(Tree, NoLeftovers) { hold(no_leftovers); }
TEST_F(Tree, HeaderHygiene) { hold(header_hygiene); }
TEST_F(Tree, ForeignText) { hold(foreign_text); }
TEST_F(Tree, NoGlobals) { hold(no_globals); }
TEST_F(Tree, ReadmeWidth) { hold(readme_width); }

TEST_F(Tree, FolderReadmes) {
  const std::vector<Finding> findings = folder_readmes(files_);
  EXPECT_TRUE(findings.empty()) << describe(findings);
}

TEST_F(Tree, ReadmeTables) {
  const std::vector<Finding> findings = readme_tables(files_);
  EXPECT_TRUE(findings.empty()) << describe(findings);
}

TEST(Files, TopLevel) {
  const std::vector<Finding> findings = top_level(list_files(ASHLAR_SOURCE_DIR, /*untracked=*/false));
  EXPECT_TRUE(findings.empty()) << describe(findings);
}

class Walk : public ::testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) {
    const std::filesystem::path file = scratch_.path() / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  testing::ScratchDir scratch_;
};

TEST_F(Walk, WorksWithoutGitAndHonoursGitignore) {
  put(".gitignore", "/build*/\n/runs/\ncompile_commands.json\n");
  put("core/build/a.h", "");
  put("build-x/b.h", "");
  put("runs/c.h", "");
  put("core/compile_commands.json", "");
  put("docs/d.md", "");
  const std::vector<std::string> expected = {".gitignore", "core/build/a.h", "docs/d.md"};
  EXPECT_EQ(list_files(scratch_.path(), true), expected);
  EXPECT_EQ(top_level(list_files(scratch_.path(), false)).size(), 1u);
}

TEST_F(Walk, SurvivesABrokenGitFolder) {
  put(".git", "gitdir: /nowhere\n");
  put("core/a.h", "");
  EXPECT_EQ(list_files(scratch_.path(), true), std::vector<std::string>{"core/a.h"});
}

}  // namespace
}  // namespace ashlar::lint
