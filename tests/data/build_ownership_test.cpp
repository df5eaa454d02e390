// What a build may touch in its output folder, and that it continues only from the very text it began with.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "core/base/error.h"
#include "data/build/build_journal.h"
#include "data/build/dataset_builder.h"
#include "data/read/dataset_verify.h"
#include "data/read/token_dataset.h"
#include "tests/data/dataset_fixture.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string letters(size_t n, char first) {
  std::string text;
  for (size_t i = 0; i < n; ++i) text.push_back(i % 61 == 60 ? '\n' : static_cast<char>(first + i * i % 7));
  return text;
}

class Ownership : public ::testing::Test {
 protected:
  void SetUp() override { text_ = put("text.txt", letters(300'000, 'a')); }

  std::string put(const std::string& name, const std::string& text) {
    fs::create_directories(fs::path(dir_.file(name)).parent_path());
    write_all(dir_.file(name), text);
    return dir_.file(name);
  }
  BuildOptions options(const std::string& out) const {
    BuildOptions o;
    o.inputs = {text_};
    o.out = dir_.file(out);
    o.threads = 2;
    o.shard_tokens = kChunkTokens;
    o.block_bytes = 10'000;
    return o;
  }
  static std::string error_of(const BuildOptions& o) { return build_error(o); }
  /// Stops a build in the middle of writing, as a kill would.
  static void stop_in_the_middle(BuildOptions o) {
    o.progress = [](const BuildProgress& p) {
      if (p.phase == BuildProgress::Phase::kWrite && p.bytes_done > p.bytes_total * 2 / 3)
        throw std::runtime_error("stop");
    };
    EXPECT_THROW(build_dataset(o), std::runtime_error);
    EXPECT_TRUE(fs::exists(o.out + "/train-00000.h5"));
  }
  /// Other text of the same size at the same path with the same times.
  void change_unseen(const std::string& path, size_t at, char to) const {
    struct stat before;
    ASSERT_EQ(::stat(path.c_str(), &before), 0);
    std::string text = read_all(path);
    ASSERT_NE(text[at], to);
    text[at] = to;
    write_all(path, text);
    const timespec times[] = {before.st_atim, before.st_mtim};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }

  testing::ScratchDir dir_;
  std::string text_;
};

TEST_F(Ownership, ForeignFilesAreRefusedUntouched) {
  for (const char* name :
       {"train-00000.h5", "train-mine.h5", "validation-00000.h5.partial", "stdin.spool", "stdin.spool.partial",
        "build.plan", "build.journal", "build.notes", "manifest.json.partial"}) {
    for (const bool overwrite : {false, true}) {
      for (const bool from_stdin : {false, true}) {
        fs::remove_all(dir_.file("out"));
        put(str_cat("out/", name), "somebody's own");
        put("out/other.txt", "not in the way");
        BuildOptions o = options("out");
        o.overwrite = overwrite;
        if (from_stdin) o.inputs = {"-"};
        o.stdin_descriptor = ::open(text_.c_str(), O_RDONLY);
        const auto before = files_of(o.out);
        EXPECT_THAT(error_of(o), AllOf(HasSubstr(o.out), HasSubstr(name))) << overwrite << from_stdin;
        EXPECT_EQ(files_of(o.out), before) << name << overwrite << from_stdin;
        ::close(o.stdin_descriptor);
      }
    }
  }
}

TEST_F(Ownership, AForeignManifestIsRefusedUntouched) {
  const std::string ours = options("ours").out;
  build_dataset(options("ours"));
  const std::string manifest = read_all(ours + "/manifest.json");
  std::string newer = manifest;
  newer.replace(newer.find("\"version\": 2"), 12, "\"version\": 9");
  std::string elsewhere = manifest;
  elsewhere.replace(elsewhere.find("train-00001.h5"), 14, "../../../ab.h5");
  for (const std::string& text : {std::string("{\"name\": \"my web app\"}"), std::string("not even JSON"),
                                  manifest.substr(0, 300), resealed(newer), resealed(elsewhere)}) {
    fs::remove_all(dir_.file("out"));
    put("out/manifest.json", text);
    put("out/train-00000.h5", "somebody's own");
    BuildOptions o = options("out");
    o.overwrite = true;
    const auto before = files_of(o.out);
    EXPECT_THAT(error_of(o), AllOf(HasSubstr(o.out), HasSubstr("manifest.json"))) << text.substr(0, 40);
    EXPECT_EQ(files_of(o.out), before);
    if (text.find("../ab.h5") != std::string::npos) continue;  // is only compared with
    o.overwrite = false;
    EXPECT_ANY_THROW(build_dataset(o));
    EXPECT_EQ(files_of(o.out), before);
  }
  // Ours, with a file beside it that it does not name.
  put("ours/train-00099.h5", "somebody's own");
  BuildOptions o = options("ours");
  o.overwrite = true;
  const auto before = files_of(o.out);
  EXPECT_THAT(error_of(o), HasSubstr("train-00099.h5"));
  EXPECT_EQ(files_of(o.out), before);
  EXPECT_TRUE(build_dataset(options("ours")).already_complete) << "which takes no name";
}

TEST_F(Ownership, OverwriteReplacesWhatOursNames) {
  build_dataset(options("out"));
  const auto small = put("small.txt", letters(1000, 'k'));
  BuildOptions o = options("out");
  o.inputs = {small};
  o.overwrite = true;
  put("out/notes.txt", "mine");
  build_dataset(o);
  EXPECT_EQ(files_of(o.out).size(), 4U) << "two shards, a manifest, the notes";
  EXPECT_TRUE(verify_dataset(o.out).damage.empty());
  // An input that cannot be read is found before the old dataset is gone.
  o.inputs = {dir_.file("absent")};
  const auto before = files_of(o.out);
  EXPECT_THAT(error_of(o), HasSubstr("absent"));
  EXPECT_EQ(files_of(o.out), before);
}

// Under a name that the manifest lists, yet not the shard that it means.
TEST_F(Ownership, AFileInTheNameOfAShardIsRefusedUntouched) {
  const BuildOptions made = options("made");
  build_dataset(made);
  const std::string name = "train-00001.h5", shard = read_all(made.out + "/" + name);
  BuildOptions other = options("other");
  other.inputs = {put("other.txt", letters(400'000, 'p'))};
  build_dataset(other);
  const std::map<std::string, std::string> contents = {
      {"text", "somebody's own"},
      {"text of the same size", std::string(shard.size(), 'x')},
      {"truncated", shard.substr(0, shard.size() / 2)},
      {"another shard of it", read_all(made.out + "/train-00000.h5")},
      {"the shard of another dataset", read_all(other.out + "/" + name)},
  };
  const auto copy = [&] {
    fs::remove_all(dir_.file("out"));
    fs::copy(made.out, dir_.file("out"));
    BuildOptions o = options("out");
    o.inputs = other.inputs;
    o.overwrite = true;
    return o;
  };
  const auto refused = [&](const BuildOptions& o, const std::string& what) {
    const auto before = files_of(o.out);
    EXPECT_THAT(error_of(o), AllOf(HasSubstr("out/" + name), HasSubstr("nothing was touched"))) << what;
    EXPECT_EQ(files_of(o.out), before) << what;
  };
  for (const auto& [what, content] : contents) {
    const BuildOptions o = copy();
    write_all(o.out + "/" + name, content);
    refused(o, what);
  }
  {
    const BuildOptions o = copy();
    fs::remove(o.out + "/" + name);
    ASSERT_EQ(::mkfifo((o.out + "/" + name).c_str(), 0600), 0);
    EXPECT_THAT(error_of(o), HasSubstr("out/" + name)) << "and nobody waits for the pipe";
  }
  // Ours, however its tokens are damaged, and one that is gone.
  for (const bool gone : {false, true}) {
    const BuildOptions o = copy();
    std::string damaged = shard;
    damaged[damaged.size() / 2] ^= 1;
    gone ? static_cast<void>(fs::remove(o.out + "/" + name)) : write_all(o.out + "/" + name, damaged);
    build_dataset(o);
    EXPECT_EQ(files_of(o.out), files_of(other.out)) << gone;
  }
}

/// A kill while an old dataset is taken away leaves shards without a manifest: the journal names them.
TEST_F(Ownership, AKillWhileOverwritingCanGoOn) {
  build_dataset(options("fresh"));
  for (int stage = 0; stage < 5; ++stage) {
    fs::remove_all(dir_.file("out"));
    fs::create_directory(dir_.file("out"));
    BuildOptions old = options("out");
    old.inputs = {put("old.txt", letters(400'000, 'p'))};
    build_dataset(old);
    BuildOptions o = options("out");
    o.overwrite = true;
    BuildJournal journal(o.out);
    if (stage == 0) {
      write_all(o.out + "/build.journal", "");  // killed in its first write
    } else {
      journal.begin();
    }
    if (stage >= 2) {
      journal.name_shards(Part::kTrain, 6);
      journal.name_shards(Part::kValidation, 1);
    }
    if (stage >= 3) fs::remove(o.out + "/manifest.json");
    if (stage >= 4) fs::remove(o.out + "/train-00002.h5");
    build_dataset(o);
    EXPECT_EQ(files_of(o.out), files_of(dir_.file("fresh"))) << stage;
  }
}

TEST_F(Ownership, AJournalNamesExactlyItsOwn) {
  fs::create_directory(dir_.file("out"));
  BuildJournal journal(dir_.file("out"));
  EXPECT_FALSE(journal.names("build.plan"));
  journal.begin();
  journal.name_shards(Part::kTrain, 3);
  const BuildJournal again(dir_.file("out"));
  for (const BuildJournal* j : {&std::as_const(journal), &again}) {
    for (const char* name : {"build.plan", "stdin.spool", "build.journal", "train-00000.h5", "train-00002.h5.partial"})
      EXPECT_TRUE(j->names(name)) << name;
    for (const char* name :
         {"train-00003.h5", "train-0.h5", "train-00001.h5.bak", "train-00001.h5.partial.partial", "validation-00000.h5",
          "train--0001.h5", "train-00001 .h5", "manifest.json", "build.notes"})
      EXPECT_FALSE(j->names(name)) << name;
  }
}

/// Equal path, size and times, other text: the shards that are done do not stay beside new ones.
TEST_F(Ownership, AResumedBuildSeesThatTheTextChanged) {
  for (const char* kind : {"bytes", "characters"}) {
    for (const size_t at : {size_t{5}, size_t{150'000}, size_t{299'990}}) {
      put("text.txt", letters(300'000, 'a'));
      fs::remove_all(dir_.file("out"));
      fs::remove_all(dir_.file("fresh"));
      BuildOptions o = options("out");
      o.tokenizer = kind;
      stop_in_the_middle(o);
      change_unseen(text_, at, 'z');
      std::string said;
      o.note = [&](const std::string& text) { said += text; };
      const BuildReport report = build_dataset(o);
      BuildOptions fresh = options("fresh");
      fresh.tokenizer = kind;
      build_dataset(fresh);
      EXPECT_EQ(files_of(o.out), files_of(fresh.out)) << kind << " " << at;
      EXPECT_TRUE(verify_dataset(o.out).damage.empty());
      // Counting bytes does not read the end of the file: what no finished shard used needs no comparison.
      if (std::string(kind) == "characters" || at < 200'000) {
        EXPECT_THAT(said, AllOf(HasSubstr(text_), HasSubstr("starting over"))) << kind << " " << at;
        EXPECT_EQ(report.shards_kept, 0);
      }
    }
  }
}

TEST_F(Ownership, AnUnchangedTextIsGoneOnWith) {
  BuildOptions o = options("out");
  stop_in_the_middle(o);
  // Moved and touched: it is the text that counts.
  fs::rename(text_, dir_.file("moved.txt"));
  fs::last_write_time(dir_.file("moved.txt"), fs::file_time_type::clock::now());
  o.inputs = {dir_.file("moved.txt")};
  EXPECT_GE(build_dataset(o).shards_kept, 2);
  build_dataset([&] {
    BuildOptions fresh = o;
    fresh.out = dir_.file("fresh");
    return fresh;
  }());
  EXPECT_EQ(files_of(o.out), files_of(dir_.file("fresh")));
  EXPECT_TRUE(build_dataset(o).already_complete);
}

TEST_F(Ownership, AFinishedDatasetIsComparedByItsText) {
  const BuildOptions o = options("out");
  build_dataset(o);
  const auto before = files_of(o.out);
  EXPECT_TRUE(build_dataset(o).already_complete);
  change_unseen(text_, 150'000, 'z');
  EXPECT_THAT(error_of(o), AllOf(HasSubstr("other text"), HasSubstr("--overwrite")));
  EXPECT_EQ(files_of(o.out), before);
}

TEST_F(Ownership, TextThatChangesWhileItIsReadIsAnError) {
  BuildOptions o = options("out");
  o.tokenizer = "characters";
  bool changed = false;
  o.progress = [&](const BuildProgress& p) {
    if (p.phase == BuildProgress::Phase::kCount && p.bytes_done == p.bytes_total && !changed) {
      changed = true;
      change_unseen(text_, 200'000, letters(300'000, 'a')[200'000] == 'a' ? 'b' : 'a');
    }
  };
  EXPECT_THAT(error_of(o), AllOf(HasSubstr(text_), HasSubstr("changed while it was read")));
  o.progress = nullptr;
  build_dataset(o);
  EXPECT_TRUE(verify_dataset(o.out).damage.empty());
}

TEST_F(Ownership, ADatasetOfTheOldFormIsReplacedOnlyOnDemand) {
  fs::copy(ASHLAR_SOURCE_DIR "/tests/data/fixtures/old-form", dir_.file("out"));
  BuildOptions o = options("out");
  const auto before = files_of(o.out);
  EXPECT_THAT(error_of(o), AllOf(HasSubstr("old format"), HasSubstr("--overwrite")));
  EXPECT_EQ(files_of(o.out), before);
  o.overwrite = true;
  build_dataset(o);
  EXPECT_FALSE(TokenDataset(o.out).manifest().old_form());
}

}  // namespace
}  // namespace ashlar::data
