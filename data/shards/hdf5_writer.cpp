#include "data/shards/hdf5_handle.h"
#include "data/shards/hdf5_identity.h"
#include "data/shards/hdf5_shard.h"

#include <algorithm>

#include "core/base/error.h"

namespace ashlar::data {
namespace {

constexpr int64_t kDocumentsChunk = 8192;

Error write_failed(const std::string& path) {
  return resource_error("data build", "cannot write ", path, ": ", hdf5_reason(),
                        "; free space on the disk or choose another --out");
}

hid_t checked(hid_t id, const std::string& path) {
  if (id < 0) throw write_failed(path);
  return id;
}

void check(herr_t status, const std::string& path) {
  if (status < 0) throw write_failed(path);
}

Hdf5Handle create_file(const std::string& path) {
  const Hdf5Handle access(checked(H5Pcreate(H5P_FILE_ACCESS), path), H5Pclose);
  check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_LATEST, H5F_LIBVER_LATEST), path);
  const Hdf5Handle creation(checked(H5Pcreate(H5P_FILE_CREATE), path), H5Pclose);
  check(H5Pset_obj_track_times(creation.get(), false), path);
  return {checked(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), path), H5Fclose};
}

struct DatasetShape {
  const char* name;
  hid_t type;
  hsize_t size, max_size, chunk;
};

/// The chunk cache is off: each full chunk is written once as a whole, so files of equal content have equal bytes.
Hdf5Handle create_dataset(const Hdf5Handle& file, const DatasetShape& shape, const std::string& path) {
  const Hdf5Handle creation(checked(H5Pcreate(H5P_DATASET_CREATE), path), H5Pclose);
  const uint32_t zero = 0;
  check(H5Pset_chunk(creation.get(), 1, &shape.chunk), path);
  check(H5Pset_fletcher32(creation.get()), path);
  check(H5Pset_obj_track_times(creation.get(), false), path);
  check(H5Pset_fill_value(creation.get(), H5T_NATIVE_UINT32, &zero), path);
  check(H5Pset_fill_time(creation.get(), H5D_FILL_TIME_ALLOC), path);
  const Hdf5Handle access(checked(H5Pcreate(H5P_DATASET_ACCESS), path), H5Pclose);
  check(H5Pset_chunk_cache(access.get(), 1, 0, 1.0), path);
  const Hdf5Handle space(checked(H5Screate_simple(1, &shape.size, &shape.max_size), path), H5Sclose);
  return {
      checked(H5Dcreate2(file.get(), shape.name, shape.type, space.get(), H5P_DEFAULT, creation.get(), access.get()),
              path),
      H5Dclose};
}

void write_range(const Hdf5Handle& dataset, hid_t memory_type, hsize_t start, hsize_t count, const void* data,
                 const std::string& path) {
  const Hdf5Handle file_space(checked(H5Dget_space(dataset.get()), path), H5Sclose);
  check(H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, &start, nullptr, &count, nullptr), path);
  const Hdf5Handle memory_space(checked(H5Screate_simple(1, &count, nullptr), path), H5Sclose);
  check(H5Dwrite(dataset.get(), memory_type, memory_space.get(), file_space.get(), H5P_DEFAULT, data), path);
}

}  // namespace

struct ShardWriter::Impl {
  Args args;
  Digest digest;
  Hdf5Handle file, token_set, document_set;
  std::vector<uint32_t> chunk;
  std::vector<uint16_t> narrow_chunk;  ///< the ids of `chunk` as uint16, for a file of uint16 ids
  std::vector<uint64_t> documents;     ///< document starts that are not yet written
  int64_t in_chunk = 0, written = 0, documents_flushed = 0;
  bool failed = true;  ///< set to true before HDF5 calls and to false after them, so it stays true if a call fails

  ~Impl() {
    if (!failed) return;
    token_set.abandon();
    document_set.abandon();
    file.abandon();
  }

  void flush_chunk() {
    if (in_chunk == 0) return;
    const void* data = chunk.data();
    if (!args.wide) {
      std::copy_n(chunk.begin(), in_chunk, narrow_chunk.begin());
      data = narrow_chunk.data();
    }
    write_range(token_set, args.wide ? H5T_NATIVE_UINT32 : H5T_NATIVE_UINT16, static_cast<hsize_t>(written - in_chunk),
                static_cast<hsize_t>(in_chunk), data, args.path);
    const int64_t number = args.first_chunk + (written - in_chunk) / kChunkTokens;
    digest += chunk_digest(number, std::span(chunk).first(static_cast<size_t>(in_chunk)));
    in_chunk = 0;
  }

  void flush_documents() {
    if (documents.empty()) return;
    const auto start = static_cast<hsize_t>(documents_flushed);
    const hsize_t size = start + documents.size();
    check(H5Dset_extent(document_set.get(), &size), args.path);
    write_range(document_set, H5T_NATIVE_UINT64, start, documents.size(), documents.data(), args.path);
    documents_flushed = static_cast<int64_t>(size);
    documents.clear();
  }
};

ShardWriter::ShardWriter(const Args& args) : impl_(std::make_unique<Impl>()) {
  impl_->args = args;
  const std::string& path = args.path;
  ASHLAR_CHECK(args.tokens > 0, path, ": ", args.tokens, " tokens");
  const Hdf5Quiet quiet;
  impl_->file = create_file(path);
  // The dataset `tokens` has a fixed maximum size, since HDF5 uses its compact chunk index only for such datasets. The
  // maximum is the number of tokens rounded up to whole chunks, since HDF5 does not accept a fixed maximum that is
  // smaller than a chunk.
  const auto chunk = static_cast<hsize_t>(kChunkTokens);
  const auto size = static_cast<hsize_t>(args.tokens);
  const DatasetShape token_shape{.name = "tokens",
                                 .type = args.wide ? H5T_STD_U32LE : H5T_STD_U16LE,
                                 .size = size,
                                 .max_size = (size + chunk - 1) / chunk * chunk,
                                 .chunk = chunk};
  impl_->token_set = create_dataset(impl_->file, token_shape, path);
  const DatasetShape document_shape{.name = "documents",
                                    .type = H5T_STD_U64LE,
                                    .size = 0,
                                    .max_size = H5S_UNLIMITED,
                                    .chunk = static_cast<hsize_t>(kDocumentsChunk)};
  impl_->document_set = create_dataset(impl_->file, document_shape, path);
  impl_->chunk.resize(kChunkTokens);
  if (!args.wide) impl_->narrow_chunk.resize(kChunkTokens);
  impl_->failed = false;
}

ShardWriter::~ShardWriter() = default;

void ShardWriter::append(std::span<const int32_t> tokens) {
  Impl& w = *impl_;
  ASHLAR_CHECK(w.written + static_cast<int64_t>(tokens.size()) <= w.args.tokens, w.args.path, ": more tokens than ",
               w.args.tokens);
  const Hdf5Quiet quiet;
  w.failed = true;
  while (!tokens.empty()) {
    const auto n = std::min(tokens.size(), static_cast<size_t>(kChunkTokens - w.in_chunk));
    for (size_t i = 0; i < n; ++i) w.chunk[w.in_chunk + i] = static_cast<uint32_t>(tokens[i]);
    w.in_chunk += static_cast<int64_t>(n);
    w.written += static_cast<int64_t>(n);
    tokens = tokens.subspan(n);
    if (w.in_chunk == kChunkTokens) w.flush_chunk();
  }
  w.failed = false;
}

void ShardWriter::add_document(int64_t start) {
  Impl& w = *impl_;
  const Hdf5Quiet quiet;
  w.documents.push_back(static_cast<uint64_t>(start));
  w.failed = true;
  if (static_cast<int64_t>(w.documents.size()) == kDocumentsChunk) w.flush_documents();
  w.failed = false;
}

const Digest& ShardWriter::digest() const { return impl_->digest; }

int64_t ShardWriter::tokens_written() const { return impl_->written; }

int64_t ShardWriter::documents_written() const {
  return impl_->documents_flushed + static_cast<int64_t>(impl_->documents.size());
}

void ShardWriter::finish() {
  Impl& w = *impl_;
  ASHLAR_CHECK(w.written == w.args.tokens, w.args.path, ": ", w.written, " of ", w.args.tokens, " tokens");
  const Hdf5Quiet quiet;
  w.failed = true;
  w.flush_chunk();
  w.flush_documents();
  if (!write_identity(w.file, {std::string(name_of(w.args.part)), w.args.index, w.digest})) {
    throw write_failed(w.args.path);
  }
  // Closing writes the metadata, so a full disk may be noticed only here.
  const bool good = w.token_set.close() && w.document_set.close() && w.file.close();
  if (!good) throw write_failed(w.args.path);
  w.failed = false;
}

}  // namespace ashlar::data
