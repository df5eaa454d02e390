#include "tests/data/dataset_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string_view>

#include "core/base/error.h"
#include "core/base/hex.h"
#include "core/io/atomic_file.h"
#include "core/io/checksum.h"
#include "data/shards/hdf5_shard.h"
#include "data/tokenizer/bytes_tokenizer.h"

namespace ashlar::data {

std::vector<int32_t> random_tokens(int64_t n, int64_t document, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> ids(static_cast<size_t>(n));
  for (int32_t& id : ids) {
    id = static_cast<int32_t>(random() % 256);
    if (static_cast<int64_t>(random() % static_cast<uint64_t>(document)) == 0) id = BytesTokenizer::kEod;
  }
  return ids;
}

std::vector<int64_t> document_starts(const TokenDataset& dataset, Part part, int64_t shard) {
  const std::vector<ShardInfo>& shards = dataset.manifest().part(part).shards;
  const ShardReader reader({.path = dataset.directory() + "/" + shards[static_cast<size_t>(shard)].file,
                            .manifest = dataset.manifest(),
                            .part = part,
                            .index = shard});
  int64_t base = 0;
  for (int64_t s = 0; s < shard; ++s) base += shards[static_cast<size_t>(s)].tokens;
  std::vector<int64_t> starts, piece;
  for (int64_t c = 0; c < reader.num_document_chunks(); ++c) {
    reader.read_documents(c, piece);
    for (const int64_t s : piece) starts.push_back(base + s);
  }
  return starts;
}

void write_dataset(const std::string& directory, const DatasetSpec& spec) {
  std::filesystem::create_directories(directory);
  const BytesTokenizer tokenizer;
  Manifest m;
  m.tokenizer_json = tokenizer.to_json();
  m.tokenizer_hash = tokenizer.hash();
  m.vocab_size = tokenizer.vocab_size();
  m.eod_id = tokenizer.eod_id();
  m.wide = spec.wide;
  m.validation_rule = "tail";
  for (const Part part : kParts) {
    const std::vector<int32_t>& all = part == Part::kTrain ? spec.train : spec.validation;
    PartInfo& info = m.part(part);
    for (int64_t done = 0; done < static_cast<int64_t>(all.size());) {
      const size_t k = info.shards.size();
      int64_t n = static_cast<int64_t>(all.size()) - done;
      if (part == Part::kTrain && k < spec.shard_tokens.size()) n = std::min(n, spec.shard_tokens[k]);
      ShardInfo shard;
      shard.file = str_cat(name_of(part), "-0000", k, ".h5");
      shard.tokens = n;
      const std::string path = directory + "/" + shard.file;
      ShardWriter writer({.path = path,
                          .part = part,
                          .index = static_cast<int64_t>(k),
                          .first_chunk = done / kChunkTokens,
                          .tokens = n,
                          .wide = spec.wide});
      writer.append(std::span(all).subspan(static_cast<size_t>(done), static_cast<size_t>(n)));
      for (int64_t i = 0; i < n; ++i) {
        const bool begins = done + i == 0 || all[done + i - 1] == m.eod_id;
        if (begins) writer.add_document(i);
      }
      shard.documents = writer.documents_written();
      writer.finish();
      shard.digest = writer.digest();
      const io::FileSum sum = io::sum_file(path);
      shard.bytes = sum.bytes;
      shard.crc32 = sum.crc32;
      info.tokens += n;
      info.documents += shard.documents;
      info.shards.push_back(shard);
      done += n;
    }
  }
  io::write_file_atomically(directory + "/manifest.json", manifest_text(m));
}

std::vector<WeightedDataset> opened(const std::vector<std::pair<std::string, double>>& sources) {
  std::vector<WeightedDataset> datasets;
  for (const auto& [path, weight] : sources) datasets.push_back({std::make_unique<TokenDataset>(path), weight});
  return datasets;
}

std::string resealed(const std::string& manifest) {
  nlohmann::json json = nlohmann::json::parse(manifest);
  json.erase("checksum");
  json["checksum"] = hex32(io::crc32(json.dump(1)));
  return json.dump(1) + "\n";
}

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

void write_all(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::map<std::string, std::string> files_of(const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    files[entry.path().filename()] = read_all(entry.path());
  return files;
}

std::string put_file(const testing::ScratchDir& dir, const std::string& name, const std::string& bytes) {
  const std::string path = dir.file(name);
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  write_all(path, bytes);
  return path;
}

std::string build_error(const BuildOptions& options) {
  try {
    build_dataset(options);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kInput) << e.what();
    EXPECT_THAT(e.what(), ::testing::Not(::testing::HasSubstr("\n")));
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace ashlar::data
