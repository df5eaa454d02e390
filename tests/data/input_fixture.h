#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ashlar::data {

/// One gzip member, or one zstd frame.
std::string gzipped(std::string_view text);
std::string zstd_packed(std::string_view text);

/// Values one behind the other, as the machine stores them.
template <typename T>
std::string stored(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// What numpy.save writes for an array.
std::string numpy_file(const std::string& descr, const std::string& shape, const std::string& values);

/// A shard as llm.c writes it: 256 int32, then ids.
std::string llmc_file(int magic, int version, int tokens, const std::string& ids);

/// Megatron's index of sequences of these sizes; documents end behind the sequences counted by `document_ends`.
std::string megatron_index(int code, int bytes_of_id, const std::vector<int>& sizes,
                           const std::vector<long>& document_ends);

}  // namespace ashlar::data
