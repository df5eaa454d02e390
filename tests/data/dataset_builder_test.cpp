#include "data/build/dataset_builder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "data/build/validation_split.h"
#include "data/read/dataset_verify.h"
#include "data/read/token_dataset.h"
#include "tests/data/dataset_fixture.h"
#include "tests/data/tokenizer_fixture.h"
#include "tests/support/long_form.h"
#include "tests/support/sanitizers.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Random text of 1- to 4-byte characters and newlines.
std::string random_text(int64_t characters, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text;
  for (int64_t i = 0; i < characters; ++i) {
    constexpr char32_t kBases[] = {'a', 'a', 'a', 0xe0, 0x4e00, 0x1f600};
    append_utf8(kBases[random() % 6] + static_cast<char32_t>(random() % 26), text);
    if (random() % 40 == 0) text.push_back('\n');
  }
  return text;
}

Ids part_ids(const std::string& directory, Part part) {
  TokenDataset dataset(directory);
  Ids ids(static_cast<size_t>(dataset.tokens(part)));
  dataset.read(part, 0, ids);
  return ids;
}

class Builds : public ::testing::Test {
 protected:
  BuildOptions options(const std::vector<std::string>& inputs, const std::string& out = "set") {
    BuildOptions o;
    o.inputs = inputs;
    o.out = dir_.file(out);
    o.threads = 2;
    return o;
  }
  std::string put(const std::string& name, const std::string& text) {
    fs::create_directories(fs::path(dir_.file(name)).parent_path());
    write_all(dir_.file(name), text);
    return dir_.file(name);
  }
  std::string error_of(const BuildOptions& o, ExitCode code = ExitCode::kInput) {
    try {
      build_dataset(o);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      EXPECT_THAT(e.what(), ::testing::Not(HasSubstr("\n")));
      return e.what();
    }
    return "nothing was thrown";
  }

  testing::ScratchDir dir_;
};

TEST_F(Builds, OneTextIsSplitAtItsEnd) {
  const std::string text = random_text(50'000, 1);
  const std::string file = put("one.txt", text);
  for (const char* kind : {"bytes", "characters"}) {
    for (const int64_t block : {int64_t{1000}, int64_t{1} << 20}) {
      for (const int threads : {1, 3}) {
        BuildOptions o = options({file}, str_cat(kind, block, threads));
        o.tokenizer = kind;
        o.block_bytes = block;
        o.threads = threads;
        build_dataset(o);
        const TokenDataset dataset(o.out);
        Ids expected = dataset.tokenizer().encode(text);
        expected.push_back(dataset.tokenizer().eod_id());
        const auto cut = static_cast<int64_t>(std::floor(static_cast<double>(expected.size()) * 0.9));
        EXPECT_EQ(part_ids(o.out, Part::kTrain), Ids(expected.begin(), expected.begin() + cut));
        EXPECT_EQ(part_ids(o.out, Part::kValidation), Ids(expected.begin() + cut, expected.end()));
        EXPECT_TRUE(verify_dataset(o.out).damage.empty());
        EXPECT_EQ(dataset.manifest().validation_rule, "tail");
        EXPECT_EQ(files_of(o.out).size(), 3U) << "manifest, two shards, nothing left over";
      }
    }
  }
}

/// Documents of text files, folders and JSONL, cut at every kind of place, against a plain reconstruction.
TEST_F(Builds, WholeDocumentsInOrder) {
  std::vector<std::string> documents;
  std::mt19937_64 random(3);
  for (int i = 0; i < 30; ++i) {
    documents.push_back(random_text(static_cast<int64_t>(random() % 3000) + 1, 100 + static_cast<uint64_t>(i)));
    put(str_cat("folder/", i / 10, "/", absl::Dec(i, absl::kZeroPad3), ".txt"), documents.back());
  }
  put("folder/2/zz-empty", "");
  std::string lines;
  for (int i = 0; i < 300; ++i) {
    const std::string text =
        i % 50 == 7 ? "" : random_text(static_cast<int64_t>(random() % 200) + 1, 500 + static_cast<uint64_t>(i));
    lines += nlohmann::json({{"id", i}, {"text", text}, {"more", {1, 2}}}).dump(-1, ' ', i % 2 == 0) +
             (i % 3 == 0 ? "\r\n" : "\n");
    if (i % 40 == 0) lines += "  \n\n";
    if (!text.empty()) documents.push_back(text);
  }
  lines.pop_back();  // the last line without its newline
  const std::string jsonl = put("lines.jsonl", lines);
  std::string reference;
  for (const char* kind : {"bytes", "characters"}) {
    for (const int64_t block : {int64_t{17}, int64_t{1000}, int64_t{1} << 20}) {
      BuildOptions o = options({dir_.file("folder"), jsonl}, str_cat(kind, block));
      o.tokenizer = kind;
      o.block_bytes = block;
      o.threads = static_cast<int>(1 + block % 3);
      const BuildReport report = build_dataset(o);
      EXPECT_EQ(report.manifest.source_empty_documents, 7);
      const TokenDataset dataset(o.out);
      Ids parts[2];
      std::vector<int64_t> starts[2];
      for (size_t d = 0; d < documents.size(); ++d) {
        const int p = is_validation_document(0.1, static_cast<int64_t>(d)) ? 1 : 0;
        starts[p].push_back(static_cast<int64_t>(parts[p].size()));
        dataset.tokenizer().encode(documents[d], parts[p]);
        parts[p].push_back(dataset.tokenizer().eod_id());
      }
      EXPECT_EQ(part_ids(o.out, Part::kTrain), parts[0]) << kind << block;
      EXPECT_EQ(part_ids(o.out, Part::kValidation), parts[1]) << kind << block;
      TokenDataset again(o.out);
      EXPECT_EQ(document_starts(again, Part::kTrain, 0), starts[0]);
      EXPECT_EQ(document_starts(again, Part::kValidation, 0), starts[1]);
      EXPECT_TRUE(verify_dataset(o.out).damage.empty());
    }
  }
}

TEST_F(Builds, ManyShardsReadAsOneStream) {
  const std::string text = random_text(400'000, 4);
  BuildOptions o = options({put("one.txt", text)});
  o.shard_tokens = kChunkTokens;
  o.validation = 0.25;
  const Manifest m = build_dataset(o).manifest;
  EXPECT_GT(m.part(Part::kTrain).shards.size(), 5U);
  EXPECT_GT(m.part(Part::kValidation).shards.size(), 2U);
  Ids all = part_ids(o.out, Part::kTrain);
  const Ids validation = part_ids(o.out, Part::kValidation);
  all.insert(all.end(), validation.begin(), validation.end());
  TokenDataset dataset(o.out);
  Ids expected = dataset.tokenizer().encode(text);
  expected.push_back(256);
  EXPECT_EQ(all, expected);
  EXPECT_EQ(document_starts(dataset, Part::kTrain, 0), std::vector<int64_t>({0}));
  EXPECT_EQ(document_starts(dataset, Part::kTrain, 1), std::vector<int64_t>());
}

TEST_F(Builds, StandardInput) {
  const std::string text = random_text(30'000, 5);
  BuildOptions o = options({"-"});
  o.stdin_descriptor = ::open(put("in", text).c_str(), O_RDONLY);
  build_dataset(o);
  BuildOptions same = options({dir_.file("in")}, "from_file");
  build_dataset(same);
  EXPECT_EQ(part_ids(o.out, Part::kTrain), part_ids(same.out, Part::kTrain));
  EXPECT_EQ(files_of(o.out).size(), 3U);
  ::close(o.stdin_descriptor);
}

TEST_F(Builds, AgainIsNothingToDoAndOtherInputsAreRefused) {
  BuildOptions o = options({put("one.txt", random_text(3000, 6))});
  EXPECT_FALSE(build_dataset(o).already_complete);
  const auto before = files_of(o.out);
  EXPECT_TRUE(build_dataset(o).already_complete);
  EXPECT_EQ(files_of(o.out), before);
  BuildOptions other = options({put("two.txt", random_text(3000, 7))});
  EXPECT_THAT(error_of(other), AllOf(HasSubstr(o.out), HasSubstr("--overwrite")));
  EXPECT_EQ(files_of(o.out), before);
  other.overwrite = true;
  EXPECT_FALSE(build_dataset(other).already_complete);
  EXPECT_NE(files_of(o.out), before);
  EXPECT_TRUE(verify_dataset(o.out).damage.empty());
}

TEST_F(Builds, BadInputIsNamedWithItsPlace) {
  BuildOptions bad_utf8 = options({put("good.txt", "abc"), put("bad.txt", "line one\nline \xff two")});
  bad_utf8.tokenizer = "characters";
  EXPECT_THAT(error_of(bad_utf8), AllOf(HasSubstr("bad.txt, line 2, byte offset 14"), HasSubstr("0xff")));
  // The same far into a file of many blocks, and a sequence cut by the end of the file.
  bad_utf8.inputs = {put("far.txt", random_text(5000, 8) + "\n\xc3")};
  bad_utf8.block_bytes = 64;
  const auto size = fs::file_size(dir_.file("far.txt"));
  EXPECT_THAT(error_of(bad_utf8), HasSubstr(str_cat("byte offset ", size - 1, ":")));
  EXPECT_THAT(error_of(options({put("a.jsonl", "{\"text\":\"x\"}\n\n{\"body\":\"y\"}\n")})),
              AllOf(HasSubstr("a.jsonl, line 3"), HasSubstr("\"text\""), HasSubstr("body")));
  EXPECT_THAT(error_of(options({put("b.jsonl", "{\"text\":\"x\"}\n{\"text\":")})), HasSubstr("b.jsonl, line 2"));
  EXPECT_THAT(error_of(options({dir_.file("absent.txt")})), HasSubstr("absent.txt"));
  EXPECT_THAT(error_of(options({})), HasSubstr("no input"));
  EXPECT_THAT(error_of(options({put("empty.txt", "")})), HasSubstr("no text"));
  EXPECT_THAT(error_of(options({put("e.jsonl", "{\"text\":\"\"}\n")})), HasSubstr("no text"));
  EXPECT_THAT(error_of(options({"/dev/null"})), HasSubstr("/dev/null"));
  EXPECT_THAT(error_of(options({"-", "-"})), HasSubstr("2 times"));
  BuildOptions kind = options({dir_.file("good.txt")});
  kind.tokenizer = "sentences";
  EXPECT_THAT(error_of(kind), AllOf(HasSubstr("sentences"), HasSubstr("bytes, characters")));
  BuildOptions inside = options({put("folder/x.txt", "abc"), dir_.file("folder")}, "folder/set");
  EXPECT_THAT(error_of(inside), HasSubstr("lies inside"));
  BuildOptions unwritable = options({dir_.file("good.txt")}, "good.txt/set");
  EXPECT_THAT(error_of(unwritable), HasSubstr("good.txt/set"));
}

TEST_F(Builds, AFailureLeavesNoFolderThatItMade) {
  const std::string good = put("good.txt", "abc"), bad = put("bad.txt", "abc \xff");
  const auto fail = [&](BuildOptions o, const char* word) {
    o.tokenizer = "characters";
    EXPECT_THAT(error_of(o), HasSubstr(word));
  };
  fail(options({dir_.file("absent.txt")}), "absent.txt");
  EXPECT_FALSE(fs::exists(dir_.file("set")));
  fail(options({good, bad}), "0xff");
  EXPECT_FALSE(fs::exists(dir_.file("set")));
  fail(options({good, bad}, "a/b/set"), "0xff");
  EXPECT_FALSE(fs::exists(dir_.file("a"))) << "parents that it made";

  // Standard input that is no text, and that cannot be read: a folder has no bytes.
  for (const auto& [input, word] : {std::pair(bad, "0xff"), std::pair(dir_.file(""), "standard input")}) {
    BuildOptions o = options({"-"});
    o.stdin_descriptor = ::open(input.c_str(), O_RDONLY);
    fail(o, word);
    ::close(o.stdin_descriptor);
    EXPECT_FALSE(fs::exists(dir_.file("set"))) << word;
  }

  // Not its own, or not empty.
  fs::create_directories(dir_.file("mine"));
  fail(options({bad}, "mine"), "0xff");
  fail(options({bad}, "mine/set"), "0xff");
  EXPECT_TRUE(fs::is_empty(dir_.file("mine")));
  put("other/notes.txt", "mine too");
  fail(options({bad}, "other"), "0xff");
  EXPECT_EQ(read_all(dir_.file("other/notes.txt")), "mine too");
  put("link/target/file", "");
  fs::create_directory_symlink(dir_.file("link/target"), dir_.file("link/set"));
  fail(options({bad}, "link/set"), "0xff");
  EXPECT_TRUE(fs::exists(dir_.file("link/set/file")));
}

/// Whatever a full disk leaves that the next run can use is still there, in a folder that the failed build made.
TEST_F(Builds, AFailureKeepsWhatTheNextRunGoesOnFrom) {
  BuildOptions o = options({put("one.txt", random_text(300'000, 45))});
  o.shard_tokens = kChunkTokens;
  o.block_bytes = 4096;
  o.progress = [](const BuildProgress& p) {
    if (p.phase == BuildProgress::Phase::kWrite && p.bytes_done > p.bytes_total / 2)
      throw resource_error("test", "the disk is full");
  };
  EXPECT_THAT(error_of(o, ExitCode::kResource), HasSubstr("the disk is full"));
  EXPECT_TRUE(fs::exists(o.out + "/build.plan"));
  EXPECT_TRUE(fs::exists(o.out + "/build.journal"));
  o.progress = nullptr;
  EXPECT_GT(build_dataset(o).shards_kept, 0);
}

TEST_F(Builds, ProgressReachesTheWhole) {
  BuildOptions o = options({put("one.txt", random_text(20'000, 9))});
  o.block_bytes = 1000;
  int64_t last[2] = {0, 0}, total = 0;
  o.progress = [&](const BuildProgress& p) {
    int64_t& done = last[static_cast<int>(p.phase)];
    EXPECT_GT(p.bytes_done, done);
    done = p.bytes_done;
    total = p.bytes_total;
  };
  build_dataset(o);
  EXPECT_EQ(total, static_cast<int64_t>(fs::file_size(dir_.file("one.txt"))));
  EXPECT_EQ(last[0], total);
  EXPECT_EQ(last[1], total);
}

/// Runs a build in a child process; returns its wait status.
int build_in_child(const BuildOptions& options, const std::function<void(pid_t)>& meanwhile = {},
                   const std::function<void()>& before = {}) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (before) before();
    int code = 0;
    try {
      build_dataset(options);
    } catch (const Error& e) {
      std::fprintf(stderr, "%s\n", e.what());
      code = static_cast<int>(e.code());
    } catch (...) {
      code = 70;
    }
    // exit, not _exit: HDF5's own clean-up must neither fail nor print.
    std::exit(code);
  }
  if (meanwhile) meanwhile(child);
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST_F(Builds, KilledAtAnyMomentEndsAsUnbroken) {
  for (int i = 0; i < 25; ++i)
    put(str_cat("folder/", absl::Dec(i, absl::kZeroPad2), ".txt"), random_text(20'000, 20 + static_cast<uint64_t>(i)));
  std::string lines;
  for (int i = 0; i < 2000; ++i)
    lines += nlohmann::json({{"text", random_text(150, 1000 + static_cast<uint64_t>(i))}}).dump() + "\n";
  put("lines.jsonl", lines);
  BuildOptions o = options({dir_.file("folder"), dir_.file("lines.jsonl")}, "unbroken");
  o.tokenizer = "characters";
  o.shard_tokens = kChunkTokens;
  o.block_bytes = 20'000;
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(build_in_child(o), 0);
  const double whole = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  const auto expected = files_of(o.out);
  ASSERT_GT(expected.size(), 10U);

  std::mt19937_64 random(17);
  // What a kill leaves is the same under the sanitizers, which cannot report of it.
  const int trials = testing::long_form() ? 1000 : testing::under_address_sanitizer() ? 2 : 20;
  int kills = 0, continued = 0, planned = 0;
  for (int trial = 0; trial < trials; ++trial) {
    o.out = dir_.file("killed");
    fs::remove_all(o.out);
    bool done = false;
    for (int attempt = 0; attempt < 50 && !done; ++attempt) {
      const auto delay = static_cast<useconds_t>(random() % static_cast<uint64_t>(whole * 1.1) + 100);
      const int status = build_in_child(o, [&](pid_t child) {
        ::usleep(delay);
        ::kill(child, SIGKILL);
      });
      done = WIFEXITED(status) && WEXITSTATUS(status) == 0;
      ASSERT_TRUE(done || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) << status;
      kills += done ? 0 : 1;
      planned += fs::exists(o.out + "/build.plan") ? 1 : 0;
      if (!done) continued += fs::exists(o.out + "/train-00000.h5") ? 1 : 0;
      // A manifest is there only when everything is.
      if (fs::exists(o.out + "/manifest.json")) {
        ASSERT_TRUE(verify_dataset(o.out).damage.empty());
      }
    }
    ASSERT_EQ(build_in_child(o), 0) << "once more is nothing to do";
    ASSERT_EQ(files_of(o.out), expected) << "trial " << trial;
  }
  EXPECT_GT(kills, trials / 4);
  EXPECT_GT(continued, 0) << "some kills must leave finished shards";
  std::printf("%d kills in %d builds of %.0f ms; %d left finished shards, %d a plan\n", kills, trials, whole / 1000,
              continued, planned);
}

TEST_F(Builds, ResumeKeepsShards) {
  BuildOptions o = options({put("one.txt", random_text(500'000, 40))}, "unbroken");
  o.shard_tokens = kChunkTokens;
  build_dataset(o);
  const auto expected = files_of(o.out);
  o.out = dir_.file("stopped");
  int64_t seen = 0;
  o.block_bytes = 4096;
  o.progress = [&](const BuildProgress& p) {
    if (p.phase == BuildProgress::Phase::kWrite && (seen = p.bytes_done) > p.bytes_total / 2)
      throw std::runtime_error("stop");
  };
  EXPECT_THROW(build_dataset(o), std::runtime_error);
  o.progress = nullptr;
  const BuildReport report = build_dataset(o);
  EXPECT_GE(report.shards_kept, 3);
  for (const auto& [name, bytes] : expected) {
    if (name == "manifest.json") continue;  // it knows the block size in its fingerprint
    EXPECT_EQ(read_all(o.out + "/" + name), bytes) << name;
  }
  // A finished shard that was damaged since is not kept.
  o.out = dir_.file("spoiled");
  o.progress = [&](const BuildProgress& p) {
    if (p.phase == BuildProgress::Phase::kWrite && p.bytes_done > p.bytes_total / 2) throw std::runtime_error("stop");
  };
  EXPECT_THROW(build_dataset(o), std::runtime_error);
  std::string bytes = read_all(o.out + "/train-00001.h5");
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 8);
  write_all(o.out + "/train-00001.h5", bytes);
  o.progress = nullptr;
  EXPECT_EQ(build_dataset(o).shards_kept, report.shards_kept - 1);
  EXPECT_EQ(files_of(o.out), files_of(dir_.file("stopped")));
}

TEST_F(Builds, AnUnfinishedBuildOfOtherInputsIsReplacedAndSaid) {
  BuildOptions o = options({put("one.txt", random_text(500'000, 41))});
  o.shard_tokens = kChunkTokens;
  o.block_bytes = 4096;
  o.progress = [](const BuildProgress& p) {
    if (p.phase == BuildProgress::Phase::kWrite && p.bytes_done > p.bytes_total / 2) throw std::runtime_error("stop");
  };
  EXPECT_THROW(build_dataset(o), std::runtime_error);
  o.progress = nullptr;
  o.inputs = {put("two.txt", random_text(3000, 42))};
  std::string said;
  o.note = [&](const std::string& text) { said += text; };
  build_dataset(o);
  EXPECT_THAT(said, HasSubstr("starting over"));
  EXPECT_EQ(files_of(o.out).size(), 3U);
}

/// A limit on file size stands for the full disk: writes fail with an error in the middle of a shard.
TEST_F(Builds, AFullDiskIsOneLineAndTheBuildGoesOnLater) {
  BuildOptions o = options({put("one.txt", random_text(600'000, 43))});
  BuildOptions unbroken = o;
  unbroken.out = dir_.file("unbroken");
  build_dataset(unbroken);
  const rlim_t whole = fs::file_size(unbroken.out + "/train-00000.h5");
  std::vector<rlim_t> limits = {rlim_t{100},     rlim_t{700},    rlim_t{2000}, rlim_t{70'000}, whole / 8, whole / 2,
                                whole - 200'000, whole - 70'000, whole - 3000, whole - 100,    whole - 1};
  // Under the sanitizers once in each kind of write: names, the file's own tables, tokens, the end.
  if (testing::under_address_sanitizer()) limits = {100, 2000, whole / 2, whole - 1};
  for (const rlim_t limit : limits) {
    const std::string log = dir_.file("stderr");
    const int status = build_in_child(o, {}, [&] {
      std::signal(SIGXFSZ, SIG_IGN);
      const rlimit size{limit, limit};
      const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666);
      ::dup2(fd, 2);
      ::setrlimit(RLIMIT_FSIZE, &size);
    });
    ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status) << " at limit " << limit;
    const std::string said = read_all(log);
    EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(ExitCode::kResource)) << limit << ": " << said;
    if (limit > 100) {
      EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
      EXPECT_THAT(said, AllOf(HasSubstr(o.out), HasSubstr("File too large"))) << limit;
    }
    EXPECT_FALSE(fs::exists(o.out + "/manifest.json"));
  }
  build_dataset(o);
  EXPECT_TRUE(verify_dataset(o.out).damage.empty());
}

TEST_F(Builds, OneBuildAFolderAtATime) {
  BuildOptions o = options({"-"});
  o.stdin_descriptor = ::open(put("one.txt", random_text(100'000, 44)).c_str(), O_RDONLY);
  o.block_bytes = 1000;
  std::string error;
  o.progress = [&](const BuildProgress&) {
    if (!error.empty()) return;
    BuildOptions second = o;
    second.progress = nullptr;
    error = error_of(second);
  };
  build_dataset(o);
  ::close(o.stdin_descriptor);
  EXPECT_THAT(error, AllOf(HasSubstr("another build"), HasSubstr(o.out)));
  EXPECT_TRUE(verify_dataset(o.out).damage.empty()) << "the second must not touch what the first works with";
}

}  // namespace
}  // namespace ashlar::data
