// launch/scripts/archive.sh: an archive of the built program, run from another path in an empty environment.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "tests/support/file_bytes.h"
#include "tests/support/scratch_dir.h"
#include "tests/support/shell.h"

namespace ashlar::packaging {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::run_shell;
using testing::shell_quote;
using testing::ShellResult;

ShellResult make_archive(const std::string& words, const std::string& build) {
  return run_shell("ASHLAR_BUILD_DIR=" + shell_quote(build) + " " +
                   shell_quote(ASHLAR_SOURCE_DIR "/launch/scripts/archive.sh") + " " + words);
}

// The archive of the program under test, unpacked into another folder, and a folder to run it in.
class Archive {
 public:
  Archive() {
    const std::string file = scratch_.file("ashlar.tar"), folder = shell_quote(scratch_.file("another place"));
    const ShellResult made = make_archive("--out " + shell_quote(file), fs::path(ASHLAR_BINARY).parent_path().string());
    EXPECT_EQ(made.code, 0) << made.err;
    said_ = made.out;
    run_shell("mkdir " + folder + " && tar -xf " + shell_quote(file) + " -C " + folder + " && rm " + shell_quote(file));
    for (const auto& entry : fs::directory_iterator(scratch_.path() / "another place")) top_ = entry.path();
    fs::create_directory(work());
  }
  const fs::path& top() const { return top_; }       // of what was unpacked
  const std::string& said() const { return said_; }  // what the script printed
  fs::path work() const { return scratch_.path() / "work"; }
  // Runs the archive's program in work(), with no variables but these.
  ShellResult ashlar(const std::string& words, const std::string& variables = "") const {
    return run_shell("cd " + shell_quote(work().string()) + " && env -i " + variables + " " +
                     shell_quote((top_ / "bin/ashlar").string()) + " " + words);
  }
  bool has_library(const std::string& name) const {
    return fs::exists(top_ / "lib" / name) || fs::exists(top_ / "mpi/lib" / name);
  }

 private:
  testing::ScratchDir scratch_;
  fs::path top_;
  std::string said_;
};

bool belongs_to_the_machine(const std::string& library) {
  static const std::regex c_library(R"((ld-linux.*|linux-vdso|lib(c|m|dl|pthread|rt|resolv|util))\.so[.0-9]*)");
  return std::regex_match(library, c_library);
}

void needs_nothing_but_the_c_library(const Archive& archive) {
  std::set<std::string> needed;
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(archive.top())) {
    if (!entry.is_regular_file() || testing::slurp(entry.path()).compare(0, 4, "\177ELF") != 0) continue;
    ++files;
    const std::string dynamic = run_shell("readelf -d " + shell_quote(entry.path().string())).out;
    EXPECT_EQ(dynamic.find("(RUNPATH)"), std::string::npos) << entry.path() << ": LD_LIBRARY_PATH would come first";
    static const std::regex name(R"(\(NEEDED\).*\[(.*)\])");
    for (std::sregex_iterator at(dynamic.begin(), dynamic.end(), name), end; at != end; ++at) needed.insert((*at)[1]);
  }
  EXPECT_GT(files, 50);
  EXPECT_TRUE(needed.contains("libmpi.so.40"));
  for (const std::string& library : needed)
    EXPECT_TRUE(archive.has_library(library) != belongs_to_the_machine(library)) << library;
  EXPECT_THAT(archive.said(), ::testing::ContainsRegex("needs glibc 2\\.[0-9]+ or newer"));
}

// Broken libraries on the search path of the machine's linker change nothing.
void takes_its_own_libraries_first(const Archive& archive) {
  for (const char* library : {"libmpi.so.40", "libz.so.1", "libopen-pal.so.40", "libstdc++.so.6"})
    testing::spit(archive.work() / library, "no library");
  const ShellResult version = archive.ashlar("--version", "LD_LIBRARY_PATH=" + shell_quote(archive.work().string()));
  EXPECT_EQ(version.code, 0) << version.err;
  EXPECT_EQ(version.out, run_shell(shell_quote(ASHLAR_BINARY) + " --version").out);
}

// The linker writes what each process loads.
void trains_on_one_rank_and_on_two(const Archive& archive) {
  testing::spit(archive.work() / "text.txt", std::string(3000, 'a') + "bcd" + std::string(3000, 'e'));
  testing::spit(archive.work() / "tiny.toml", R"(
[run]
threads = 1
[model]
d_model = 16
n_layers = 1
n_heads = 2
[train]
steps = 2
sequence_length = 16
global_batch = 4
micro_batch = 2
[optimizer]
lr = 1e-2
[data]
path = "data"
)");
  const ShellResult built = archive.ashlar("data build text.txt --out data");
  ASSERT_EQ(built.code, 0) << built.err;
  const ShellResult alone = archive.ashlar("train tiny.toml run.dir=one");
  EXPECT_EQ(alone.code, 0) << alone.out << alone.err;
  const std::string log = (archive.work() / "loaded").string();
  const ShellResult launched =
      archive.ashlar("launch -np 2 train tiny.toml run.dir=two", "LD_DEBUG=files LD_DEBUG_OUTPUT=" + shell_quote(log));
  EXPECT_EQ(launched.code, 0) << launched.out << launched.err;
  EXPECT_THAT(launched.err, HasSubstr((archive.top() / "mpi/bin/mpirun").string()));
  EXPECT_EQ(std::count(launched.err.begin(), launched.err.end(), '\n'), 1) << launched.err;  // no complaint of Open MPI
  EXPECT_THAT(testing::slurp(archive.work() / "two/metrics.jsonl"), HasSubstr("\"step\":2"));

  const ShellResult loaded = run_shell("cat " + shell_quote(archive.work().string()) + "/loaded.*");
  int programs = 0;
  std::istringstream lines(loaded.out);
  std::set<std::string> own;  // processes that run a program of the archive
  for (std::string line; std::getline(lines, line);) {
    const std::string process = line.substr(0, line.find(':'));
    if (line.find("initialize program: " + archive.top().string()) != std::string::npos) {
      ++programs;
      own.insert(process);
    }
    const size_t at = line.find("calling init: ");
    if (at == std::string::npos) continue;
    const fs::path library = line.substr(at + 14);
    const bool inside = library.lexically_normal().string().starts_with(archive.top().string());
    if (!own.contains(process) && !inside) continue;  // a shell
    EXPECT_TRUE(inside || belongs_to_the_machine(library.filename())) << line;
  }
  EXPECT_GE(programs, 4) << "launch, mpirun and two ranks";
}

TEST(ArchiveScript, MakesAProgramThatRunsAnywhere) {
  const Archive archive;
  ASSERT_TRUE(fs::exists(archive.top() / "bin/ashlar"));
  needs_nothing_but_the_c_library(archive);
  takes_its_own_libraries_first(archive);
  trains_on_one_rank_and_on_two(archive);
}

TEST(ArchiveScript, RefusesWhatItCannotArchive) {
  const testing::ScratchDir scratch;
  const std::string build = scratch.path().string();
  const auto refused = [&](const std::string& words, const std::string& folder, const char* text) {
    const ShellResult result = make_archive(words, folder);
    EXPECT_EQ(result.code, 2) << words;
    EXPECT_THAT(result.err, HasSubstr(text));
  };
  refused("", build, "expected the program");
  refused("--to x", build, "unknown argument '--to'");
  refused("--out", build, "--out needs a file name");
  const std::string real = fs::path(ASHLAR_BINARY).parent_path().string();
  refused("--out " + shell_quote(scratch.file("x.zip")), real, "expected a name that ends in .tar, .tar.gz or .tar.xz");
  refused("--out /no/such/folder/x.tar", real, "there is no such folder");
  testing::write_program(scratch.file("ashlar"), "exit 0");
  testing::spit(scratch.path() / "CMakeCache.txt", "ASHLAR_NATIVE:BOOL=ON\n");
  refused("", build, "built for this machine's processor alone");
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch.path()), {}), 2) << "nothing is left behind";
}

}  // namespace
}  // namespace ashlar::packaging
