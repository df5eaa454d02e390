#include "data/read/dataset_verify.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "core/base/error.h"
#include "core/io/checksum.h"
#include "data/read/token_dataset.h"
#include "data/shards/hdf5_shard.h"

namespace ashlar::data {
namespace {

constexpr size_t kMaxLines = 100;

class Verifier {
 public:
  Verifier(const std::string& directory, VerifyReport& report, const std::function<void(int64_t, int64_t)>& progress)
      : directory_(directory), report_(report), progress_(progress) {}

  void run() {
    Manifest manifest;
    ++report_.files;
    try {
      manifest = read_manifest(directory_);
    } catch (const Error& e) {
      if (e.code() != ExitCode::kDamagedData) throw;
      add(e);
      return;
    }
    for (const Part part : kParts)
      for (const ShardInfo& info : manifest.part(part).shards) total_bytes_ += info.bytes;
    for (const Part part : kParts) {
      int64_t tokens = 0, documents = 0;
      Place place{part, 0, 0};
      for (const ShardInfo& info : manifest.part(part).shards) {
        check_file(info, manifest, place);
        done_bytes_ += info.bytes;
        tokens += info.tokens;
        documents += info.documents;
        ++place.index;
        place.first_chunk += (info.tokens + kChunkTokens - 1) / kChunkTokens;
      }
      if (tokens != manifest.part(part).tokens || documents != manifest.part(part).documents) {
        add(str_cat("manifest.json: the counts of the ", name_of(part), " part are not the sums of its shards; ",
                    "restore the file or build the dataset again"));
      }
    }
  }

 private:
  struct Place {
    Part part;
    int64_t index, first_chunk;
  };

  /// Records an error as damage. Errors for lack of memory or disk space are not damage and are thrown again.
  void add(const Error& e, const std::string& before = "") {
    if (e.code() == ExitCode::kResource) throw e;
    add(before + e.what());
  }
  void add(const std::string& line) {
    if (report_.damage.size() < kMaxLines) report_.damage.push_back(line);
  }

  /// Calls `read`. Records an error as damage and returns false.
  template <typename Read>
  bool succeeds(const Read& read, const std::string& before = "") {
    try {
      read();
      return true;
    } catch (const Error& e) {
      add(e, before);
      return false;
    }
  }

  void check_file(const ShardInfo& info, const Manifest& manifest, const Place& place) {
    const std::string path = (std::filesystem::path(directory_) / info.file).string();
    ++report_.files;
    const size_t before = report_.damage.size();
    bool whole = false;
    const auto sum = [&] {
      const io::FileSum found = io::sum_file(path);
      report_.bytes += found.bytes;
      whole = found.bytes == info.bytes && found.crc32 == info.crc32;
    };
    if (!succeeds(sum, str_cat(path, " is listed in the manifest but cannot be read: "))) return;
    succeeds([&] {
      const ShardReader reader({.path = path, .manifest = manifest, .part = place.part, .index = place.index});
      const Digest digest = check_tokens(reader, path, manifest, place.first_chunk, info.bytes);
      check_documents(reader, path);
      if (!manifest.old_form() && report_.damage.size() == before && digest != info.digest) {
        add(str_cat(path, ": its tokens have the digest ", digest.hex(), ", the manifest expects ", info.digest.hex(),
                    "; restore the file or build the dataset again"));
      }
    });
    if (!whole && report_.damage.size() == before) {
      add(str_cat(path,
                  ": differs from its whole-file checksum, but every chunk of its datasets is valid: the damage is",
                  " in bytes that are not read; restore the file or build the dataset again"));
    }
  }

  /// Returns the digest of the tokens of a shard. The digest is valid only if all chunks are undamaged.
  Digest check_tokens(const ShardReader& reader, const std::string& path, const Manifest& manifest, int64_t first_chunk,
                      int64_t shard_bytes) {
    Digest digest;
    std::vector<uint8_t> raw;
    std::vector<uint32_t> ids;
    for (int64_t c = 0; c < reader.num_token_chunks(); ++c) {
      ++report_.chunks;
      if (progress_) progress_(done_bytes_ + shard_bytes * c / reader.num_token_chunks(), total_bytes_);
      if (!succeeds([&] { reader.read_tokens(c, raw); })) continue;
      widen(raw, manifest.wide, ids);
      digest += chunk_digest(first_chunk + c, std::span<const uint32_t>(ids));
      const int64_t bad = std::count_if(ids.begin(), ids.end(),
                                        [&](uint32_t id) { return id >= static_cast<uint32_t>(manifest.vocab_size); });
      if (bad > 0) add(str_cat(path, ": dataset tokens, chunk ", c, ": ", bad, " ids are outside the vocabulary"));
    }
    return digest;
  }

  void check_documents(const ShardReader& reader, const std::string& path) {
    std::vector<int64_t> starts;
    int64_t last = -1;
    for (int64_t c = 0; c < reader.num_document_chunks(); ++c) {
      ++report_.chunks;
      if (!succeeds([&] { reader.read_documents(c, starts); })) continue;
      bool ascending = true;
      for (const int64_t s : starts) {
        ascending = ascending && s > last;
        last = s;
      }
      if (!ascending) add(str_cat(path, ": dataset documents, chunk ", c, ": document starts do not ascend"));
    }
  }

  static void widen(const std::vector<uint8_t>& raw, bool wide, std::vector<uint32_t>& ids) {
    const size_t width = wide ? 4 : 2;
    ids.assign(raw.size() / width, 0);
    for (size_t i = 0; i < ids.size(); ++i) std::memcpy(&ids[i], raw.data() + i * width, width);
  }

  std::string directory_;
  VerifyReport& report_;
  const std::function<void(int64_t, int64_t)>& progress_;
  int64_t done_bytes_ = 0, total_bytes_ = 0;
};

}  // namespace

VerifyReport verify_dataset(const std::string& directory, const std::function<void(int64_t, int64_t)>& progress) {
  VerifyReport report;
  Verifier(directory, report, progress).run();
  return report;
}

}  // namespace ashlar::data
