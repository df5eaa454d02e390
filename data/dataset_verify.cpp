#include "data/dataset_verify.h"

#include <filesystem>

#include "core/base/error.h"
#include "core/io/checksum.h"
#include "data/hdf5_shard.h"
#include "data/token_dataset.h"

namespace ashlar::data {
namespace {

constexpr size_t kMaxLines = 100;

class Verifier {
 public:
  Verifier(const std::string& directory, VerifyReport& report) : directory_(directory), report_(report) {}

  void run() {
    Manifest manifest;
    ++report_.files;
    try {
      manifest = read_manifest(directory_);
    } catch (const Error& e) {
      if (e.code() != ExitCode::kDamagedData) throw;
      add(e.what());
      return;
    }
    for (const Part part : kParts) {
      int64_t tokens = 0, documents = 0;
      for (const ShardInfo& info : manifest.part(part).shards) {
        check_file(info, manifest);
        tokens += info.tokens;
        documents += info.documents;
      }
      if (tokens != manifest.part(part).tokens || documents != manifest.part(part).documents) {
        add(str_cat("manifest.json: the counts of the ", name_of(part), " part are not the sums of its shards"));
      }
    }
  }

 private:
  void add(const std::string& line) {
    if (report_.damage.size() < kMaxLines) report_.damage.push_back(line);
  }

  void check_file(const ShardInfo& info, const Manifest& manifest) {
    const std::string path = (std::filesystem::path(directory_) / info.file).string();
    ++report_.files;
    const size_t before = report_.damage.size();
    bool whole = false;
    try {
      const io::FileSum sum = io::sum_file(path);
      report_.bytes += sum.bytes;
      whole = sum.bytes == info.bytes && sum.crc32 == info.crc32;
    } catch (const Error& e) {
      add(str_cat(path, ": the manifest lists it: ", e.what()));
      return;
    }
    try {
      check_chunks(ShardReader(path, info, manifest.wide), path, manifest);
    } catch (const Error& e) {
      add(e.what());
    }
    if (!whole && report_.damage.size() == before) {
      add(str_cat(path,
                  ": differs from its whole-file checksum, yet every chunk of its datasets reads right: the damage is",
                  " in bytes that reading does not use; restore the file or build the dataset again"));
    }
  }

  void check_chunks(const ShardReader& reader, const std::string& path, const Manifest& manifest) {
    std::vector<uint8_t> raw;
    for (int64_t c = 0; c < reader.num_token_chunks(); ++c) {
      ++report_.chunks;
      try {
        reader.read_tokens(c, raw);
      } catch (const Error& e) {
        add(e.what());
        continue;
      }
      const int64_t bad = count_outside(raw, manifest);
      if (bad > 0) add(str_cat(path, ": dataset tokens, chunk ", c, ": ", bad, " ids are outside the vocabulary"));
    }
    std::vector<int64_t> starts;
    int64_t last = -1;
    for (int64_t c = 0; c < reader.num_document_chunks(); ++c) {
      ++report_.chunks;
      try {
        reader.read_documents(c, starts);
      } catch (const Error& e) {
        add(e.what());
        continue;
      }
      bool ascending = true;
      for (const int64_t s : starts) {
        ascending = ascending && s > last;
        last = s;
      }
      if (!ascending) add(str_cat(path, ": dataset documents, chunk ", c, ": offsets do not ascend"));
    }
  }

  static int64_t count_outside(const std::vector<uint8_t>& raw, const Manifest& manifest) {
    const size_t width = manifest.wide ? 4 : 2;
    int64_t bad = 0;
    for (size_t i = 0; i + width <= raw.size(); i += width) {
      uint32_t id = raw[i] | (uint32_t{raw[i + 1]} << 8);
      if (manifest.wide) id |= (uint32_t{raw[i + 2]} << 16) | (uint32_t{raw[i + 3]} << 24);
      bad += id >= static_cast<uint32_t>(manifest.vocab_size) ? 1 : 0;
    }
    return bad;
  }

  std::string directory_;
  VerifyReport& report_;
};

}  // namespace

VerifyReport verify_dataset(const std::string& directory) {
  VerifyReport report;
  Verifier(directory, report).run();
  return report;
}

}  // namespace ashlar::data
