#include "tests/data/input_fixture.h"

#include <zlib.h>
#include <zstd.h>

#include <cstdint>
#include <numeric>
#include <stdexcept>

namespace ashlar::data {

std::string gzipped(std::string_view text) {
  z_stream z{};
  if (deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) throw std::runtime_error("deflateInit2");
  std::string out(deflateBound(&z, text.size()) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  const int code = deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  if (code != Z_STREAM_END) throw std::runtime_error("deflate");
  return out;
}

std::string zstd_packed(std::string_view text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  const size_t n = ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3);
  if (ZSTD_isError(n) != 0) throw std::runtime_error("ZSTD_compress");
  out.resize(n);
  return out;
}

std::string numpy_file(const std::string& descr, const std::string& shape, const std::string& values) {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
  while ((header.size() + 11) % 64 != 0) header += ' ';
  header += '\n';
  const auto length = static_cast<uint16_t>(header.size());
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(length & 0xFF);
  file += static_cast<char>(length >> 8);
  return file + header + values;
}

std::string llmc_file(int magic, int version, int tokens, const std::string& ids) {
  std::vector<int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = tokens;
  return stored(header) + ids;
}

std::string megatron_index(int code, int bytes_of_id, const std::vector<int>& sizes,
                           const std::vector<long>& document_ends) {
  std::string file("MMIDIDX\0\0", 9);
  file += stored<int64_t>({1}) + static_cast<char>(code);
  file += stored<int64_t>({static_cast<int64_t>(sizes.size()), static_cast<int64_t>(document_ends.size()) + 1});
  file += stored<int32_t>({sizes.begin(), sizes.end()});
  std::vector<int64_t> pointers(1, 0);
  for (const int size : sizes) pointers.push_back(pointers.back() + size * bytes_of_id);
  pointers.pop_back();
  std::vector<int64_t> documents(1, 0);
  documents.insert(documents.end(), document_ends.begin(), document_ends.end());
  return file + stored(pointers) + stored(documents);
}

}  // namespace ashlar::data
