#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/hex.h"
#include "core/io/atomic_file.h"
#include "core/io/checksum.h"
#include "core/io/direct_file.h"
#include "core/io/posix_file.h"
#include "tests/support/file_bytes.h"
#include "tests/support/scratch_dir.h"
#include "tests/support/thrown.h"

namespace ashlar::io {
namespace {

using ::ashlar::testing::error_of;
using ::ashlar::testing::ScratchDir;
using ::ashlar::testing::slurp;
using ::ashlar::testing::spit;
using ::testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

/// Limits the size of files for a scope: what a full disk looks like to write().
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    previous_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &previous_);
    rlimit limited = previous_;
    limited.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limited);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &previous_);
    std::signal(SIGXFSZ, previous_handler_);
  }

 private:
  rlimit previous_{};
  void (*previous_handler_)(int) = nullptr;
};

TEST(AtomicFile, AppearsOnlyWithCommit) {
  const ashlar::testing::ScratchDir dir;
  const std::string path = dir.file("out");
  spit(path, "before");
  {
    AtomicFile file(path);
    file.write("after");
    EXPECT_EQ(slurp(path), "before");
    file.commit();
  }
  EXPECT_EQ(slurp(path), "after");
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
}

TEST(AtomicFile, AbandonedLeavesTheOldFileAndNoPartialOne) {
  const ashlar::testing::ScratchDir dir;
  const std::string path = dir.file("out");
  spit(path, "before");
  {
    AtomicFile file(path);
    file.write("half of");
  }
  EXPECT_EQ(slurp(path), "before");
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
}

TEST(AtomicFile, OverwritesThePartialFileOfAKilledProcess) {
  const ashlar::testing::ScratchDir dir;
  spit(dir.file("out.partial"), "left behind by a process that is no more");
  write_file_atomically(dir.file("out"), "new");
  EXPECT_EQ(slurp(dir.file("out")), "new");
}

TEST(AtomicFile, FullDiskIsAResourceErrorAndLeavesNothing) {
  const ashlar::testing::ScratchDir dir;
  const std::string path = dir.file("out");
  const FileSizeLimit limit(1 << 16);
  const Error error = error_of([&] { write_file_atomically(path, std::string(1 << 17, 'x')); });
  EXPECT_EQ(error.code(), ExitCode::kResource);
  EXPECT_THAT(error.what(), HasSubstr(path));
  EXPECT_THAT(error.what(), HasSubstr("(errno 27)"));
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
}

int64_t allocated_bytes(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? static_cast<int64_t>(info.st_blocks) * 512 : -1;
}

TEST(AtomicFile, ReservesNothingThatTheDiskDoesNotHave) {
  const ScratchDir dir;
  AtomicFile file(dir.file("out"));
  file.reserve(1 << 15);  // fits
  const auto free_bytes = static_cast<int64_t>(std::filesystem::space(dir.path()).free);
  const Error error = error_of([&] { file.reserve(2 * free_bytes); });
  EXPECT_EQ(error.code(), ExitCode::kResource);
  EXPECT_THAT(error.what(), HasSubstr("cannot reserve " + std::to_string(2 * free_bytes) + " bytes for"));
  EXPECT_THAT(error.what(), HasSubstr("No space left on device (errno 28)"));
}

TEST(AtomicFile, GivesBackWhatWasReservedAndNotWritten) {
  const ScratchDir dir;
  AtomicFile file(dir.file("out"));
  file.reserve(int64_t{32} << 20);
  file.write("short");
  file.commit();
  EXPECT_EQ(slurp(dir.file("out")), "short");
  EXPECT_LT(allocated_bytes(dir.file("out")), 1 << 20);
}

TEST(AtomicFile, FreesTheSpaceThatAKilledProcessHadReserved) {
  const ScratchDir dir;
  const std::string partial = dir.file("out.partial");
  const int fd = ::open(partial.c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_GE(fd, 0);
  if (::fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 32 << 20) != 0) GTEST_SKIP() << "this file system cannot reserve";
  ::close(fd);
  ASSERT_GT(allocated_bytes(partial), 31 << 20);
  const AtomicFile file(dir.file("out"));
  EXPECT_LT(allocated_bytes(partial), 1 << 20) << "before anything else is written";
}

TEST(AtomicFile, AKilledProcessLeavesNeitherFileNorSpace) {
  const ScratchDir dir;
  const int probe = ::open(dir.path().c_str(), O_WRONLY | O_TMPFILE, 0600);
  if (probe < 0) GTEST_SKIP() << "no files without a name here: a killed process leaves its partial file";
  ::close(probe);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    AtomicFile file(dir.file("out"));
    file.reserve(int64_t{32} << 20);
    file.write("half of it");
    static_cast<void>(::write(ready[1], "x", 1));
    ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ::close(ready[0]);
  ::close(ready[1]);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

/// From here on this process finds no files without a name, as on a file system that has none. False when it may not.
bool refuse_nameless_files() {
  constexpr uint32_t kNameless = O_TMPFILE & ~O_DIRECTORY;
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),  // the flags
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kNameless, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{.len = std::size(program), .filter = program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(AtomicFile, WithoutNamelessFilesAKillLeavesTheOldFileAndTheNextWriteTakesTheRest) {
  const ScratchDir dir;
  const std::string path = dir.file("out"), partial = path + ".partial";
  spit(path, "before");
  constexpr int kMayNot = 77;
  const auto start = [&](const std::string& text, bool killed) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (!refuse_nameless_files()) ::_exit(kMayNot);
      AtomicFile file(path);
      file.write(text);
      if (killed) ::raise(SIGKILL);
      file.commit();
      ::_exit(0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return status;
  };
  const int first = start("half of it", true);
  if (WIFEXITED(first) && WEXITSTATUS(first) == kMayNot) GTEST_SKIP() << "no system call filters here";
  ASSERT_TRUE(WIFSIGNALED(first));
  EXPECT_EQ(slurp(path), "before");
  EXPECT_EQ(slurp(partial), "half of it") << "else this was the other way";
  EXPECT_EQ(start("new", false), 0);
  EXPECT_EQ(slurp(path), "new");
  EXPECT_FALSE(std::filesystem::exists(partial));
}

TEST(AtomicFile, PartialNamesComeAndGo) {
  for (const char* path : {"a", "d/a.h5", ".partial", "a.partial", "a.partial/b", "", "partial"}) {
    EXPECT_EQ(without_partial(partial_path(path)), path);
    EXPECT_EQ(partial_path(path).native(), path + std::string(".partial"));
  }
  for (const char* path : {"a", "a.partial/b", "partial", "a.partial2"}) EXPECT_EQ(without_partial(path), path);
}

TEST(AtomicFile, ANameTakenBySomethingElseIsAnErrorBeforeTheFirstByte) {
  const ScratchDir dir;
  std::filesystem::create_directory(dir.file("out.partial"));
  EXPECT_EQ(error_of([&] { const AtomicFile file(dir.file("out")); }).code(), ExitCode::kInput);
  ASSERT_EQ(::mkfifo(dir.file("pipe.partial").c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { const AtomicFile file(dir.file("pipe")); }).code(), ExitCode::kInput);
  EXPECT_TRUE(std::filesystem::is_fifo(dir.file("pipe.partial")));
}

TEST(AtomicFile, WriteFullyReportsTheFullDevice) {
  const int fd = ::open("/dev/full", O_WRONLY);
  ASSERT_GE(fd, 0);
  const std::string text = "one byte too many";
  const Error error = error_of([&] { write_fully(fd, bytes_of(text), "/dev/full"); });
  ::close(fd);
  EXPECT_EQ(error.code(), ExitCode::kResource);
  EXPECT_THAT(error.what(), HasSubstr("No space left on device (errno 28)"));
}

TEST(AtomicFile, MissingOrWrongDirectoryIsAnInputError) {
  const ashlar::testing::ScratchDir dir;
  const Error missing = error_of([&] { write_file_atomically(dir.file("no/such/out"), "x"); });
  EXPECT_EQ(missing.code(), ExitCode::kInput);
  EXPECT_THAT(missing.what(), HasSubstr("No such file or directory (errno 2)"));
  spit(dir.file("plain"), "a file");
  const Error wrong = error_of([&] { write_file_atomically(dir.file("plain/out"), "x"); });
  EXPECT_EQ(wrong.code(), ExitCode::kInput);
  EXPECT_THAT(wrong.what(), HasSubstr("(errno 20)"));
  const Error taken = error_of([&] { create_directories(dir.file("plain")); });
  EXPECT_EQ(taken.code(), ExitCode::kInput);
}

TEST(AtomicFile, TargetThatIsADirectoryKeepsNothingBehind) {
  const ashlar::testing::ScratchDir dir;
  std::filesystem::create_directory(dir.file("out"));
  const Error error = error_of([&] { write_file_atomically(dir.file("out"), "x"); });
  EXPECT_EQ(error.code(), ExitCode::kInput);
  EXPECT_FALSE(std::filesystem::exists(dir.file("out.partial")));
}

TEST(AtomicFile, PublishesWhatALibraryWrote) {
  const ashlar::testing::ScratchDir dir;
  const std::string path = dir.file("out"), partial = partial_path(path).string();
  EXPECT_EQ(partial, path + ".partial");
  spit(path, "before");
  spit(partial, "after");
  publish_partial(path);
  EXPECT_EQ(slurp(path), "after");
  EXPECT_FALSE(std::filesystem::exists(partial));
  const Error missing = error_of([&] { publish_partial(path); });
  EXPECT_EQ(missing.code(), ExitCode::kInput);
  EXPECT_THAT(missing.what(), HasSubstr("out.partial': No such file or directory (errno 2)"));
  EXPECT_EQ(slurp(path), "after");
  std::filesystem::create_directory(dir.file("taken"));
  spit(dir.file("taken.partial"), "hours of work");
  const Error taken = error_of([&] { publish_partial(dir.file("taken")); });
  EXPECT_EQ(taken.code(), ExitCode::kInput);
  EXPECT_THAT(taken.what(), HasSubstr("taken': Is a directory"));
  EXPECT_EQ(slurp(dir.file("taken.partial")), "hours of work");
}

TEST(AppendDurably, AddsToTheEndAndReportsTheFullDevice) {
  const ashlar::testing::ScratchDir dir;
  append_durably(dir.file("log"), "one\n");
  append_durably(dir.file("log"), "two\n");
  EXPECT_EQ(slurp(dir.file("log")), "one\ntwo\n");
  const Error full = error_of([&] { append_durably("/dev/full", "three\n"); });
  EXPECT_EQ(full.code(), ExitCode::kResource);
  EXPECT_THAT(full.what(), HasSubstr("cannot write '/dev/full': No space left on device (errno 28)"));
  const Error missing = error_of([&] { append_durably(dir.file("no/log"), "x"); });
  EXPECT_EQ(missing.code(), ExitCode::kInput);
  EXPECT_THAT(missing.what(), HasSubstr("no/log"));
}

TEST(SystemError, ExhaustionIsAResourceAndEverythingElseAnInput) {
  for (const int number : {ENOSPC, EDQUOT, EFBIG, EIO, ENOMEM, EMFILE, ENFILE})
    EXPECT_EQ(system_error("file", "read", "x", number).code(), ExitCode::kResource) << number;
  for (const int number : {ENOENT, EACCES, EPERM, EROFS, ENOTDIR, EISDIR, ENAMETOOLONG, ELOOP})
    EXPECT_EQ(system_error("file", "read", "x", number).code(), ExitCode::kInput) << number;
  EXPECT_STREQ(system_error("file", "read", "a/b", EIO).what(),
               "[file] cannot read 'a/b': Input/output error (errno 5); the storage device reports a failure: check it "
               "or choose another path");
}

TEST(InputFile, RefusesWhatIsNotARegularFile) {
  const ashlar::testing::ScratchDir dir;
  EXPECT_EQ(error_of([&] { InputFile file(dir.file("absent")); }).code(), ExitCode::kInput);
  EXPECT_EQ(error_of([&] { InputFile file(dir.path()); }).code(), ExitCode::kInput);
  ASSERT_EQ(mkfifo(dir.file("pipe").c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { InputFile file(dir.file("pipe")); }).code(), ExitCode::kInput);
}

TEST(InputFile, ReadPastTheEndNamesFileAndRange) {
  const ashlar::testing::ScratchDir dir;
  spit(dir.file("short"), "0123456789");
  const InputFile file(dir.file("short"));
  std::vector<std::byte> buffer(8);
  const Error error = error_of([&] { file.read_at(5, buffer); });
  EXPECT_EQ(error.code(), ExitCode::kDamagedData);
  EXPECT_THAT(error.what(), HasSubstr("expected bytes 5 to 13, reading stopped at byte 10"));
}

TEST(InputFile, ReadsAsFarAsTheFileReachesNow) {
  const ashlar::testing::ScratchDir dir;
  spit(dir.file("growing"), "0123456789");
  const InputFile file(dir.file("growing"));
  const auto read = [&](int64_t offset, size_t n) {
    std::string out(n, '?');
    const int64_t got = file.read_at_most(offset, std::as_writable_bytes(std::span(out)));
    EXPECT_EQ(out.find_last_not_of('?') + 1, static_cast<size_t>(got));
    return out.substr(0, static_cast<size_t>(got));
  };
  EXPECT_EQ(read(0, 10), "0123456789");
  EXPECT_EQ(read(2, 3), "234");
  EXPECT_EQ(read(7, 8), "789");
  EXPECT_EQ(read(10, 1), "");
  EXPECT_EQ(read(99, 1), "");
  EXPECT_EQ(read(0, 0), "");
  append_durably(dir.file("growing"), "abc");
  EXPECT_EQ(read(7, 8), "789abc");
  EXPECT_EQ(file.size_bytes(), 10) << "as it was opened";
}

TEST(ReadTextFile, IsWholeOrRefused) {
  const ashlar::testing::ScratchDir dir;
  spit(dir.file("text"), std::string("a\0b\n", 4));
  EXPECT_EQ(read_text_file(dir.file("text")), std::string("a\0b\n", 4));
  EXPECT_EQ(read_text_file(dir.file("text"), kAnySize).size(), 4U);
  EXPECT_EQ(error_of([&] { read_text_file(dir.file("text"), 3); }).code(), ExitCode::kInput);
}

TEST(Checksum, KnownValues) {
  // The check value of CRC-32/ISO-HDLC and the sum of nothing, from the catalogue of parametrised CRCs.
  EXPECT_EQ(crc32(bytes_of("123456789")), 0xcbf43926U);
  EXPECT_EQ(crc32(""), 0U);
  EXPECT_EQ(crc32(bytes_of("456789"), crc32(bytes_of("123"))), 0xcbf43926U);
}

TEST(Checksum, SumOfAFileIsItsSizeAndTheSumOfItsBytes) {
  const ashlar::testing::ScratchDir dir;
  spit(dir.file("check"), "123456789");
  EXPECT_EQ(sum_file(dir.file("check")), (FileSum{.bytes = 9, .crc32 = 0xcbf43926U}));
  spit(dir.file("empty"), "");
  EXPECT_EQ(sum_file(dir.file("empty")), (FileSum{}));
  // Longer than the tensors it is read in: zlib's own sum of the same bytes.
  std::string text((size_t{5} << 19) + 7, 'a');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 31 + i / 4099);
  spit(dir.file("long"), text);
  const auto expected =
      static_cast<uint32_t>(::crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size())));
  EXPECT_EQ(sum_file(dir.file("long")), (FileSum{.bytes = (int64_t{5} << 19) + 7, .crc32 = expected}));
  EXPECT_EQ(crc32(text), expected);
  EXPECT_EQ(error_of([&] { sum_file(dir.file("absent")); }).code(), ExitCode::kInput);
}

TEST(Checksum, ShownInFixedWidth) {
  EXPECT_EQ(hex32(0xbeefU), "0000beef");
  EXPECT_EQ(hex32(0xffffffffU), "ffffffff");
  EXPECT_EQ(hex64(0x1234abcdULL << 8), "0000001234abcd00");
}

TEST(Checksum, HasherIsIndependentOfThePieces) {
  std::string text(1000, 'a');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7 + i / 13);
  for (const size_t tensor : {size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{1000}}) {
    ChunkHasher hasher(64);
    for (size_t at = 0; at < text.size(); at += tensor)
      hasher.update(bytes_of(text).subspan(at, std::min(tensor, text.size() - at)));
    const ChunkChecksums sums = hasher.finish();
    ASSERT_EQ(sums.crcs.size(), 16U);
    EXPECT_EQ(sums.total_bytes, 1000);
    EXPECT_TRUE(sums.is_consistent());
    for (size_t c = 0; c < 16; ++c) EXPECT_EQ(sums.crcs[c], crc32(bytes_of(text.substr(c * 64, 64)))) << c;
  }
  EXPECT_TRUE(ChunkHasher(64).finish().crcs.empty());
}

TEST(Checksum, EveryLengthAndPlaceAsZlib) {
  std::mt19937_64 random(5);
  std::string text(5000, '\0');
  for (char& c : text) c = static_cast<char>(random());
  for (int trial = 0; trial < 3000; ++trial) {
    const size_t begin = random() % 40, size = trial < 400 ? static_cast<size_t>(trial) : random() % (text.size() - 40);
    const auto start = static_cast<uint32_t>(trial % 2 == 0 ? 0 : random());
    const auto expected = static_cast<uint32_t>(
        ::crc32(start, reinterpret_cast<const Bytef*>(text.data() + begin), static_cast<uInt>(size)));
    ASSERT_EQ(crc32(std::string_view(text).substr(begin, size), start), expected) << begin << " + " << size;
  }
}

// Memory and file aligned alike are written without a copy: parts of all sizes, and a range that is not so.
TEST(DirectFile, WritesFromWhereverTheBytesAre) {
  const ScratchDir dir;
  constexpr size_t kBlock = 4096, kSize = (size_t{12} << 20) + 777;
  std::vector<std::byte> memory(kSize + 2 * kBlock);
  std::mt19937_64 random(8);
  for (size_t i = 0; i + 8 <= memory.size(); i += 8) {
    const uint64_t bits = random();
    std::memcpy(memory.data() + i, &bits, 8);
  }
  const size_t align = (kBlock - reinterpret_cast<uintptr_t>(memory.data()) % kBlock) % kBlock;
  for (const size_t shift : {size_t{0}, size_t{1}, size_t{2048}}) {
    const auto all = std::span<const std::byte>(memory).subspan(align + shift, kSize);
    AtomicFile file(dir.file("large"));
    file.bypass_cache();
    const size_t sizes[] = {100, 5 << 20, 3, (1 << 20) + 4096 - 103, 1 << 20, 4096, 2 << 20, kSize};
    size_t at = 0;
    for (const size_t size : sizes) {
      const size_t count = std::min(size, kSize - at);
      file.write(all.subspan(at, count));
      at += count;
    }
    EXPECT_EQ(at, kSize);
    file.commit();
    const std::string got = slurp(dir.file("large"));
    EXPECT_TRUE(got.size() == kSize && std::memcmp(got.data(), all.data(), kSize) == 0) << "shift " << shift;
  }
}

TEST(DirectFile, LargeFilesAreWhatWasWrittenInPiecesOfAnySize) {
  const ScratchDir dir;
  std::mt19937_64 random(6);
  for (const size_t size : {size_t{1}, size_t{4096}, (size_t{4} << 20), (size_t{9} << 20) + 1237}) {
    std::string text(size, '\0');
    for (size_t i = 0; i < size; i += 8) std::memcpy(text.data() + i, &i, std::min<size_t>(8, size - i));
    {
      AtomicFile file(dir.file("large"));
      file.reserve(static_cast<int64_t>(size));
      file.bypass_cache();
      for (size_t at = 0; at < size;) {
        const size_t count = std::min<size_t>(size - at, random() % 3000000 + 1);
        file.write(std::string_view(text).substr(at, count));
        at += count;
      }
      file.commit();
    }
    ASSERT_EQ(std::filesystem::file_size(dir.file("large")), size);
    const ChunkChecksums sums = checksum_file(dir.file("large"));
    ChunkHasher hasher;
    hasher.update(bytes_of(text));
    EXPECT_EQ(sums, hasher.finish());
    EXPECT_NO_THROW(verify_on_disk(dir.file("large"), sums));
    // The last byte, and one in the middle.
    for (const size_t at : {size - 1, size / 2}) {
      std::fstream file(dir.file("large"), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(at));
      file.put(static_cast<char>(text[at] ^ 1));
      file.close();
      try {
        verify_on_disk(dir.file("large"), sums);
        ADD_FAILURE() << "byte " << at << " of " << size;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::kDamagedData);
        EXPECT_THAT(error.what(), HasSubstr("is damaged in chunk"));
      }
      std::fstream(dir.file("large"), std::ios::in | std::ios::out | std::ios::binary)
          .seekp(static_cast<std::streamoff>(at))
          .put(text[at]);
    }
  }
}

TEST(CheckedFile, EveryFlippedBitIsFoundByTheReadsThatTouchItsChunkAndNoOthers) {
  const ashlar::testing::ScratchDir dir;
  const std::string path = dir.file("data");
  std::string text(200, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i);
  spit(path, text);
  const ChunkChecksums sums = checksum_file(path, 64);
  for (int64_t bit = 0; bit < 200 * 8; bit += 37) {
    std::string flipped = text;
    flipped[static_cast<size_t>(bit / 8)] = static_cast<char>(flipped[static_cast<size_t>(bit / 8)] ^ (1 << (bit % 8)));
    spit(path, flipped);
    const CheckedFile file(path, sums);
    const int64_t damaged_chunk = bit / 8 / 64;
    EXPECT_EQ(error_of([&] { file.verify(0, file.num_chunks()); }).code(), ExitCode::kDamagedData);
    for (const auto& [begin, count] : {std::pair<int64_t, size_t>{0, 64}, {10, 5}, {60, 10}, {64, 136}, {199, 1}}) {
      std::vector<std::byte> out(count);
      const bool touches =
          begin / 64 <= damaged_chunk && damaged_chunk <= (begin + static_cast<int64_t>(count) - 1) / 64;
      if (touches) {
        const Error error = error_of([&] { file.read_at(begin, out); });
        EXPECT_EQ(error.code(), ExitCode::kDamagedData);
        EXPECT_THAT(error.what(), HasSubstr("damaged in chunk " + std::to_string(damaged_chunk) + ","));
      } else {
        file.read_at(begin, out);
        EXPECT_EQ(std::memcmp(out.data(), text.data() + begin, count), 0);
      }
    }
  }
}

TEST(CheckedFile, SizeAndRecordAreChecked) {
  const ashlar::testing::ScratchDir dir;
  spit(dir.file("data"), std::string(100, 'x'));
  ChunkChecksums sums = checksum_file(dir.file("data"), 64);
  EXPECT_EQ(sums.crcs.size(), 2U);
  sums.crcs.pop_back();
  EXPECT_EQ(error_of([&] { CheckedFile file(dir.file("data"), sums); }).code(), ExitCode::kDamagedData);
  sums = checksum_file(dir.file("data"), 64);
  spit(dir.file("data"), std::string(99, 'x'));
  const Error error = error_of([&] { CheckedFile file(dir.file("data"), sums); });
  EXPECT_THAT(error.what(), HasSubstr("expected 100 bytes, got 99"));
  spit(dir.file("data"), std::string(101, 'x'));
  EXPECT_THAT(error_of([&] { CheckedFile file(dir.file("data"), sums); }).what(),
              HasSubstr("expected 100 bytes, got 101"));
}

}  // namespace
}  // namespace ashlar::io
