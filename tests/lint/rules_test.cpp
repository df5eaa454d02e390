#include "tests/lint/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/strings.h"

namespace ashlar::lint {
namespace {

// The lines that a rule complains about in `text` standing at `path`.
std::vector<int> lines_found(Rule rule, const std::string& path, const std::string& text) {
  std::vector<int> lines;
  for (const Finding& finding : rule({.path = path, .text = text})) lines.push_back(finding.line);
  return lines;
}

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(IncludeArrows, NothingSidewaysBetweenFolders) {
  EXPECT_THAT(lines_found(include_arrows, "kernels/cpu/a.cpp", "\n#include \"data/read/batch.h\"\n"), ElementsAre(2));
  EXPECT_THAT(lines_found(include_arrows, "core/ops/a.cpp", "#include \"kernels/make_backend.h\"\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(include_arrows, "parallel/model/a.h", "#include \"kernels/make_backend.h\"\n"),
              ElementsAre(1));
  EXPECT_THAT(lines_found(include_arrows, "data/a.cpp", "#include \"parallel/model/stage.h\"\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(include_arrows, "data/a.cpp", "#include \"launch/trainer.h\"\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(include_arrows, "launch/a.cpp", "#include \"tests/support/x.h\"\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(include_arrows, "launch/watch/a.h", "#include \"launch/training/trainer.h\"\n"),
              ElementsAre(1));
  EXPECT_THAT(lines_found(include_arrows, "launch/training/a.h", "#include \"launch/watch/signals.h\"\n"), IsEmpty());
  EXPECT_THAT(lines_found(include_arrows, "extra/a.cpp", ""), ElementsAre(0));
}

TEST(IncludeArrows, AllowedDirectionsPass) {
  EXPECT_THAT(lines_found(include_arrows, "kernels/cpu/a.cpp", "#include \"core/base/error.h\"\n"), IsEmpty());
  EXPECT_THAT(lines_found(include_arrows, "launch/a.cpp",
                          "#include \"data/read/batch.h\"\n#include \"kernels/make_backend.h\"\n#include <vector>\n"),
              IsEmpty());
  EXPECT_THAT(lines_found(include_arrows, "tests/core/a.cpp", "#include \"launch/trainer.h\"\n"), IsEmpty());
}

TEST(IncludeArrows, OrderOfSubFolders) {
  EXPECT_THAT(lines_found(include_arrows, "parallel/comm/a.cpp", "#include \"parallel/mesh/mesh.h\"\n"),
              ElementsAre(1));
  EXPECT_THAT(lines_found(include_arrows, "parallel/mesh/a.cpp", "#include \"parallel/comm/host.h\"\n"), IsEmpty());
  EXPECT_THAT(lines_found(include_arrows, "parallel/tensor/a.h", "#include \"parallel/model/slices.h\"\n"),
              ElementsAre(1));
  EXPECT_THAT(lines_found(include_arrows, "launch/hf/a.cpp", "#include \"launch/training/engine.h\"\n"),
              ElementsAre(1));
  EXPECT_THAT(lines_found(include_arrows, "kernels/cpu/gemm/a.cpp", "#include \"kernels/cpu/attention/items.h\"\n"),
              ElementsAre(1));
  EXPECT_THAT(lines_found(include_arrows, "kernels/cpu/gemm/a.cpp", "#include \"kernels/cpu/cpu_info.h\"\n"),
              IsEmpty());
  EXPECT_THAT(lines_found(include_arrows, "kernels/other/a.cpp", "#include \"kernels/cpu/cpu_info.h\"\n"),
              ElementsAre(1));
}

TEST(IncludeArrows, LaunchKnowsBackendsThroughOneDoor) {
  EXPECT_THAT(lines_found(include_arrows, "launch/commands/a.cpp", "#include \"kernels/cpu/cpu_info.h\"\n"),
              ElementsAre(1));
  EXPECT_THAT(lines_found(include_arrows, "launch/commands/a.cpp",
                          "#include \"kernels/memory_bandwidth.h\"\n#include \"kernels/make_backend.h\"\n"),
              IsEmpty());
}

TEST(IncludeArrows, OrderInsideCore) {
  EXPECT_THAT(lines_found(include_arrows, "core/base/a.h", "#include \"core/tensor/view.h\"\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(include_arrows, "core/backend/a.h", "#include \"core/ops/norm.h\"\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(include_arrows, "core/io/a.cpp", "#include \"core/tensor/tensor.h\"\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(include_arrows, "core/nn/a.cpp", "#include \"core/io/safetensors.h\"\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(include_arrows, "core/ops/a.cpp", "#include \"core/base/error.h\"\n"), IsEmpty());
  EXPECT_THAT(lines_found(include_arrows, "core/io/a.cpp", "#include \"core/base/error.h\"\n"), IsEmpty());
  EXPECT_THAT(lines_found(include_arrows, "core/io/a.cpp", "#include \"core/io/posix_file.h\"\n"), IsEmpty());
  EXPECT_THAT(lines_found(include_arrows, "core/io/a.cpp", "#include \"core/tuning/tuner.h\"\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(include_arrows, "core/ops/a.cpp", "#include \"core/tuning/tuner.h\"\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(include_arrows, "core/tuning/a.cpp", "#include \"core/io/json.h\"\n"), IsEmpty());
}

TEST(KernelCalls, OfAModelAreOps) {
  EXPECT_THAT(lines_found(kernel_calls, "parallel/model/a.cpp", "\nctx.backend.copy({}, ctx.stream);\n"),
              ElementsAre(2));
  EXPECT_THAT(lines_found(kernel_calls, "parallel/model/a.cpp", "m->backend->rope({}, s);\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(kernel_calls, "parallel/model/a.cpp", "// ctx.backend.copy(x)\nBackend& backend;\n"),
              IsEmpty());
  EXPECT_THAT(lines_found(kernel_calls, "core/ops/a.cpp", "ctx.backend.copy({}, ctx.stream);\n"), IsEmpty());
}

TEST(IncludeArrows, OwnHeadersByPathFromTheRootAndInQuotes) {
  EXPECT_THAT(lines_found(include_arrows, "core/io/a.cpp", "#include \"posix_file.h\"\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(include_arrows, "core/io/a.cpp", "#include \"../base/error.h\"\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(include_arrows, "core/io/a.cpp", "#include <core/base/error.h>\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(include_arrows, "core/io/a.cpp", "#include \"absl/strings/str_cat.h\"\n"), IsEmpty());
}

TEST(VendorHeaders, StayAtHome) {
  EXPECT_THAT(lines_found(vendor_headers, "data/read/token_dataset.cpp", "#include <hdf5.h>\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(vendor_headers, "data/read/token_dataset.cpp", "#include <H5Dpublic.h>\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(vendor_headers, "data/shards/hdf5_file.cpp", "#include <hdf5.h>\n"), IsEmpty());
  EXPECT_THAT(lines_found(vendor_headers, "core/ops/linear.cpp", "#include \"oneapi/dnnl/dnnl.hpp\"\n"),
              ElementsAre(1));
  EXPECT_THAT(lines_found(vendor_headers, "kernels/make_backend.cpp", "#include <dnnl.hpp>\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(vendor_headers, "kernels/cpu/gemm.cpp", "#include <dnnl.hpp>\n"), IsEmpty());
  EXPECT_THAT(lines_found(vendor_headers, "kernels/cpu/gemm.cpp", "#include <omp.h>\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(vendor_headers, "launch/trainer.cpp", "#include <omp.h>\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(vendor_headers, "tests/core/a.cpp", "#include <omp.h>\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(vendor_headers, "tests/kernels/a.cpp", "#include \"hwy/targets.h\"\n"), IsEmpty());
  EXPECT_THAT(lines_found(vendor_headers, "core/ops/a.cpp", "#include \"hwy/highway.h\"\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(vendor_headers, "parallel/mesh/mesh.cpp", "#include <mpi.h>\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(vendor_headers, "launch/main.cpp", "#include \"parallel/comm/mpi_comm.h\"\n"),
              ElementsAre(1));
  EXPECT_THAT(lines_found(vendor_headers, "parallel/comm/mpi_comm.cpp", "#include <mpi.h>\n"), IsEmpty());
  EXPECT_THAT(lines_found(vendor_headers, "parallel/comm/bootstrap.cpp", "#include <mpi.h>\n"), IsEmpty());
  EXPECT_THAT(lines_found(vendor_headers, "kernels/cpu/a.cpp", "#include <cuda_runtime.h>\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(vendor_headers, "kernels/cuda/a.cu", "#include <cublasLt.h>\n"), IsEmpty());
  EXPECT_THAT(lines_found(vendor_headers, "parallel/comm/self_comm.cpp", "#include <nccl.h>\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(vendor_headers, "launch/trainer.cpp", "#include <toml++/toml.h>\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(vendor_headers, "launch/config/load.cpp", "#include <toml++/toml.h>\n"), IsEmpty());
  EXPECT_THAT(lines_found(vendor_headers, "core/base/a.cpp", "#include <gtest/gtest.h>\n"), ElementsAre(1));
}

TEST(VendorHeaders, SlowOnesNotInHeaders) {
  EXPECT_THAT(lines_found(vendor_headers, "launch/config/a.h", "#include <toml++/toml.h>\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(vendor_headers, "core/io/a.h", "#include <nlohmann/json.hpp>\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(vendor_headers, "core/io/a.h", "#include <nlohmann/json_fwd.hpp>\n"), IsEmpty());
}

TEST(VendorHeaders, PragmasAndDeviceCodeToo) {
  EXPECT_THAT(lines_found(vendor_headers, "data/a.cpp", "void f() {\n#pragma omp parallel\n}\n"), ElementsAre(2));
  EXPECT_THAT(lines_found(vendor_headers, "kernels/cpu/a.cpp", "#pragma omp parallel\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(vendor_headers, "core/ops/a.cpp", "#ifdef ASHLAR_CUDA\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(vendor_headers, "kernels/cpu/a.cpp", "__global__ void f();\n"), ElementsAre(1));
}

TEST(FileLength, SixHundredLinesPassOneMoreFails) {
  std::string text;
  for (int i = 0; i < 600; ++i) text += "x\n";
  EXPECT_THAT(lines_found(file_length, "core/a.cpp", text), IsEmpty());
  EXPECT_THAT(lines_found(file_length, "core/a.cpp", text + "x"), ElementsAre(601));
  EXPECT_THAT(lines_found(file_length, "check", text + "x\n"), ElementsAre(601));
}

TEST(FunctionLength, SixtyLinesPassOneMoreFails) {
  const auto lines = [](int n) {
    std::string text;
    for (int i = 0; i < n; ++i) text += "  if (x) { y(); }\n";
    return text;
  };
  const auto function = [&](int n) { return "int f(int a,\n      int b = 1) {\n" + lines(n - 3) + "}\n"; };
  EXPECT_THAT(lines_found(function_length, "launch/a.cpp", function(60)), IsEmpty());
  EXPECT_THAT(lines_found(function_length, "launch/a.cpp", function(61)), ElementsAre(1));
  EXPECT_THAT(lines_found(function_length, "launch/config/a.h",
                          "namespace a {\nstruct B : C {\n" + function(61) + function(60) + function(70) + "};\n}\n"),
              ElementsAre(3, 124));
  EXPECT_THAT(
      lines_found(function_length, "launch/a.cpp", "bool A::operator==(const A& b) const {\n" + lines(60) + "}"),
      ElementsAre(1));
  EXPECT_THAT(lines_found(function_length, "launch/a.cpp", "template <typename T = int>\nT f() {\n" + lines(60) + "}"),
              ElementsAre(1));
  EXPECT_THAT(lines_found(function_length, "launch/a.cpp", "const T table[] = {\n" + lines(90) + "};\n"), IsEmpty());
  EXPECT_THAT(lines_found(function_length, "launch/a.cpp",
                          "struct T {\n" + lines(0) + "  int a = 0;\n" + function(20) + function(50) + "};"),
              IsEmpty());
  EXPECT_THAT(lines_found(function_length, "core/a.cpp", function(61)), IsEmpty());
}

TEST(CommentWidth, OneHundredAndTwentyColumns) {
  const std::string fits = "  // " + std::string(115, 'x') + "\n";
  EXPECT_THAT(lines_found(comment_width, "core/a.h", fits), IsEmpty());
  EXPECT_THAT(lines_found(comment_width, "core/a.h", "int x;\n " + fits), ElementsAre(2));
  EXPECT_THAT(lines_found(comment_width, "core/a.h", "const char* x = \"" + std::string(120, 'x') + "\";\n"),
              IsEmpty());
}

TEST(ListedViews, AreAllOfAnArgsStruct) {
  const auto found = [](const std::string& list) {
    return lines_found(listed_views, "core/backend/a.h",
                       "struct A {\n  ConstView x, y{};  ///< read\n  MutView z;\n  Mode mode;\n" + list + "};\n");
  };
  EXPECT_THAT(found("  auto views() const { return std::tie(x, y, z); }\n"), IsEmpty());
  EXPECT_THAT(found("  auto views() const { return std::tie(x, z); }\n"), ElementsAre(2));
  EXPECT_THAT(found(""), ElementsAre(2, 2, 3));
  EXPECT_THAT(lines_found(listed_views, "core/backend/a.h", "struct A {\n  DropoutArgs dropout;\n};\n"),
              ElementsAre(2));
  EXPECT_THAT(lines_found(listed_views, "core/ops/a.h", "struct A {\n  ConstView x;\n};\n"), IsEmpty());
}

TEST(AsciiOnly, NamesTheLineOfTheFirstOtherByte) {
  EXPECT_THAT(lines_found(ascii_only, "core/a.cpp", "int a;\n// \xc2\xb5s\n"), ElementsAre(2));
  EXPECT_THAT(lines_found(ascii_only, "core/a.cpp", "a\r\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(ascii_only, "core/a.cpp", "a\tb ~\n"), IsEmpty());
}

TEST(NoLeftovers, NotesToSelfSwitchedOffTestsAndForeignPaths) {
  EXPECT_THAT(lines_found(no_leftovers, "core/a.cpp", str_cat("\n// TO", "DO: later\n")), ElementsAre(2));
  EXPECT_THAT(lines_found(no_leftovers, "core/a.cpp", str_cat("// FIX", "ME\n")), ElementsAre(1));
  EXPECT_THAT(lines_found(no_leftovers, "tests/a.cpp", str_cat("TEST(A, DISAB", "LED_B) {}\n")), ElementsAre(1));
  EXPECT_THAT(lines_found(no_leftovers, "tests/a.cpp", str_cat("\"/ho", "me/me/x\"\n")), ElementsAre(1));
  EXPECT_THAT(lines_found(no_leftovers, "core/a.cpp", "// the method is hacky, homework/worked\n"), IsEmpty());
}

TEST(ForeignText, TerminalsAndParsersHaveTheirPlaces) {
  EXPECT_THAT(lines_found(foreign_text, "data/a.cpp", "void f() {\n  std::cerr << name;\n}\n"), ElementsAre(2));
  EXPECT_THAT(lines_found(foreign_text, "launch/a.cpp", "std::fprintf(stderr, \"x\");\nwrite(STDOUT_FILENO, p, n);\n"),
              ElementsAre(1, 2));
  EXPECT_THAT(lines_found(foreign_text, "launch/a.cpp", "auto j = nlohmann::json::parse(text);\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(foreign_text, "launch/a.cpp", "// std::cout\nout << \"stderr\";\nio::parse_json(text);\n"),
              IsEmpty());
  EXPECT_THAT(lines_found(foreign_text, "launch/main.cpp", "std::cout.flush();\n"), IsEmpty());
  EXPECT_THAT(lines_found(foreign_text, "tests/a.cpp", "std::cout << 1;\n"), IsEmpty());
}

TEST(HeaderHygiene, PragmaOnceAndNoUsingNamespace) {
  EXPECT_THAT(lines_found(header_hygiene, "core/a.h", "int f();\n"), ElementsAre(1));
  EXPECT_THAT(lines_found(header_hygiene, "core/a.h", "#pragma once\n\nusing namespace std;\n"), ElementsAre(3));
  EXPECT_THAT(lines_found(header_hygiene, "core/a.h", "#pragma once\n// using namespace std;\n"), IsEmpty());
  EXPECT_THAT(lines_found(header_hygiene, "kernels/cpu/simd_inl.h", "#if defined(X)\n#endif\n"), IsEmpty());
  EXPECT_THAT(lines_found(header_hygiene, "core/a.cpp", "using namespace std;\n"), IsEmpty());
}

TEST(NoGlobals, FindsWhatCanChange) {
  const auto found = [](const std::string& text) { return lines_found(no_globals, "core/a.cpp", text); };
  EXPECT_THAT(found("int counter;\n"), ElementsAre(1));
  EXPECT_THAT(found("namespace a {\nnamespace {\nstd::map<int, const char*> table = {{1, \"x\"}};\n}\n}\n"),
              ElementsAre(3));
  EXPECT_THAT(found("static std::vector<int> cache;\n"), ElementsAre(1));
  EXPECT_THAT(found("inline int64_t total = 0;\n"), ElementsAre(1));
  EXPECT_THAT(found("extern Backend* backend;\n"), ElementsAre(1));
  EXPECT_THAT(found("const char* name = \"x\";\n"), ElementsAre(1));
  EXPECT_THAT(found("float scratch[16];\n"), ElementsAre(1));
  EXPECT_THAT(found("std::mutex lock{};\n"), ElementsAre(1));
  EXPECT_THAT(found("Registry& registry() {\n  static Registry registry;\n  return registry;\n}\n"), ElementsAre(2));
  EXPECT_THAT(found("void f() {\n  static std::regex p(\"x\");\n}\n"), ElementsAre(2));
  EXPECT_THAT(found("void f() {\n  if (x) {\n    thread_local int depth = 0;\n  }\n}\n"), ElementsAre(3));
  EXPECT_THAT(found("struct A {\n  static inline int count = 0;\n};\n"), ElementsAre(2));
  EXPECT_THAT(found("ABSL_FLAG(int, x, 1, \"y\");\n"), ElementsAre(1));
}

TEST(NoGlobals, LetsConstantsTypesAndFunctionsPass) {
  const auto found = [](const std::string& text) { return lines_found(no_globals, "core/a.cpp", text); };
  EXPECT_THAT(found("constexpr int kA = 1;\ninline constexpr double kB = 2.0;\nconst std::string kC = \"c\";\n"),
              IsEmpty());
  EXPECT_THAT(found("static const std::map<int, const char*> kTable = {{1, \"x\"}};\n"), IsEmpty());
  EXPECT_THAT(found("const char* const kName = \"x\";\n"), IsEmpty());
  EXPECT_THAT(found("int f(int a = 3);\nstatic void g() { int x = 0; ++x; }\n"), IsEmpty());
  EXPECT_THAT(found("bool A::operator==(const A& other) const { return x == other.x; }\n"), IsEmpty());
  EXPECT_THAT(found("struct A {\n  int x = 0;\n  static A make(int x);\n  static const int kN = 2;\n};\n"), IsEmpty());
  EXPECT_THAT(found("class B : public A {\n public:\n  B() : a_{1}, b_{2} {}\n};\nenum class E { kX = 1 };\n"),
              IsEmpty());
  EXPECT_THAT(found("B::B() : a_{1}, b_{2} {}\nusing X = int;\ntemplate <typename T = int>\nstruct D {};\n"),
              IsEmpty());
  EXPECT_THAT(found("#define X \\\n  int y;\n// int z;\n/* int w; */\nTEST(A, B) { int v = 0; }\n"), IsEmpty());
  EXPECT_THAT(found("void f() {\n  static const std::regex p(\"x\");\n  static constexpr int kN = 3;\n}\n"), IsEmpty());
  EXPECT_THAT(found("extern \"C\" {\nvoid f(int);\n}\nauto g() -> int;\n"), IsEmpty());
}

TEST(NoGlobals, LetsTheEmulatorFindItsBlock) {
  const std::string pointer = "thread_local constinit Block* current_block = nullptr;\n";
  EXPECT_THAT(lines_found(no_globals, "tests/gpu_emulator/device_calls.cpp", pointer), IsEmpty());
  EXPECT_THAT(lines_found(no_globals, "tests/gpu_emulator/block.cpp", pointer), ElementsAre(1));
  EXPECT_THAT(lines_found(no_globals, "tests/gpu_emulator/device_calls.cpp", "thread_local Block* other = nullptr;\n"),
              ElementsAre(1));
}

TEST(BlankNonCode, KeepsLinesAndCode) {
  EXPECT_EQ(blank_non_code("a \"b;\\\"c\" d // e\nf"), "a         d     \nf");
  EXPECT_EQ(blank_non_code("x = 'y'; n = 1'000;"), "x =    ; n = 1'000;");
  EXPECT_EQ(blank_non_code("R\"(a\n;)\" b"), "    \n    b");
  EXPECT_EQ(blank_non_code("#define A \\\n  b\nc"), "           \n   \nc");
}

TEST(TopLevel, OnlyTheDocumentedEntriesAndDotfiles) {
  EXPECT_THAT(top_level({"core/base/error.h", ".ci/run", ".gitignore", "check", "LICENSE", "README.md"}), IsEmpty());
  const std::vector<Finding> found = top_level({"core/a.h", "docs/a.md", "docs/b.md", "notes.txt"});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_THAT(found[0].text, HasSubstr("'docs'"));
  EXPECT_THAT(found[1].text, HasSubstr("'notes.txt'"));
}

TEST(FolderReadmes, OneEachOrNamedAbove) {
  const SourceFile code{.path = "core/base/error.h", .text = ""};
  EXPECT_THAT(folder_readmes({code, {"core/README.md", "| `base/` | errors |\n"}}), IsEmpty());
  EXPECT_THAT(folder_readmes({code, {"core/README.md", "x\n"}, {"core/base/README.md", "x\n"}}), IsEmpty());
  const std::vector<Finding> unnamed = folder_readmes({code, {"core/README.md", "x\n"}});
  ASSERT_EQ(unnamed.size(), 1u);
  EXPECT_EQ(unnamed[0].path, "core/base");
  const std::vector<Finding> none = folder_readmes({code});
  ASSERT_EQ(none.size(), 2u);
  EXPECT_EQ(none[0].path, "core");
}

TEST(FolderReadmes, AtMostAScreen) {
  std::string text;
  for (int i = 0; i < 61; ++i) text += "x\n";
  const std::vector<Finding> found = folder_readmes({{"core/README.md", text}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].line, 61);
  EXPECT_THAT(folder_readmes({{"README.md", text}}), IsEmpty());
}

TEST(ReadmeWidth, OneHundredAndTwentyCharactersRowsToo) {
  const std::string fits(120, 'x'), row = "| `a.h` | " + std::string(109, 'x') + " |";
  EXPECT_THAT(lines_found(readme_width, "core/README.md", fits + "\n\n" + fits), IsEmpty());
  EXPECT_THAT(lines_found(readme_width, "core/README.md", "x\n" + fits + "x\n" + row + "\n"), ElementsAre(2, 3));
  EXPECT_THAT(lines_found(readme_width, "README.md", fits + "x"), ElementsAre(1));
  EXPECT_THAT(lines_found(readme_width, "core/RESULTS.md", fits + "x"), IsEmpty());
  EXPECT_THAT(lines_found(readme_width, "configs/README.md", row), IsEmpty());
}

TEST(ReadmeTables, NameWhatIsThereAndAllOfIt) {
  const SourceFile a{.path = "core/io/a.h", .text = ""}, b{.path = "core/io/b.cpp", .text = ""};
  const std::string head = "| file | what |\n|---|---|\n";
  EXPECT_THAT(readme_tables({a, b, {"core/io/README.md", head + "| `a`, `b.*` | both |\n"}}), IsEmpty());
  EXPECT_THAT(readme_tables({a, b, {"core/io/README.md", head + "| `a.h` | one |\n\n`b` is the other.\n"}}), IsEmpty());
  EXPECT_THAT(readme_tables({a, b, {"core/io/README.md", "No table, so no promise.\n"}}), IsEmpty());
  const std::vector<Finding> gone = readme_tables({a, {"core/io/README.md", head + "| `a` | |\n| `old.h` | |\n"}});
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_EQ(gone[0].line, 4);
  EXPECT_THAT(gone[0].text, HasSubstr("`old.h`"));
  const std::vector<Finding> missing = readme_tables({a, b, {"core/io/README.md", head + "| `a` | |\n"}});
  ASSERT_EQ(missing.size(), 1u);
  EXPECT_THAT(missing[0].text, HasSubstr("b.cpp"));
  EXPECT_EQ(readme_tables({a, {"core/README.md", "| where | what |\n|---|---|\n| `io/` | |\n| `ops/` | |\n"}}).size(),
            1u);
}

}  // namespace
}  // namespace ashlar::lint
