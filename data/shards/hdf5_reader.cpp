#include "data/shards/hdf5_handle.h"
#include "data/shards/hdf5_identity.h"
#include "data/shards/hdf5_shard.h"

#include <sys/mman.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/base/error.h"
#include "core/base/hex.h"
#include "core/device/host_limits.h"

namespace ashlar::data {
namespace {

struct OpenDataset {
  Hdf5Handle id, type;
  int64_t size = 0;
  int64_t chunk = 0;
};

Error damaged(const std::string& path, std::string_view what, std::string_view reason) {
  return damaged_error("data", path, ": ", what, ": ", reason, "; restore the file or build the dataset again");
}

/// HDF5 dereferences null pointers if an allocation fails while a file is opened. This function first allocates and
/// releases the memory that opening needs, so that a lack of memory gives an error message and not a crash.
void require_memory_to_open() {
  constexpr size_t kBytes = size_t{16} << 20;
  void* const probe =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (probe == MAP_FAILED)
    throw resource_error("memory", "the system refused memory to open a dataset: ", memory_state_text());
  ::munmap(probe, kBytes);
}

Hdf5Handle open_file(const std::string& path) {
  require_memory_to_open();
  hbool_t threadsafe = false;
  H5is_library_threadsafe(&threadsafe);
  if (!threadsafe) {
    throw input_error("data", "this HDF5 library is built without thread safety, which prefetching needs; install the",
                      " distribution's libhdf5");
  }
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  // File locks are off, since some file systems refuse them. They are not needed: a shard is never modified after it is
  // renamed to its final name.
  H5Pset_file_locking(access.get(), false, true);
  return {H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose};
}

/// Opens the file and checks that it is the shard that the manifest lists.
Hdf5Handle open_shard(const ShardReader::Args& args) {
  const ShardInfo& info = args.manifest.part(args.part).shards[static_cast<size_t>(args.index)];
  std::error_code error;
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(args.path, error));
  if (error)
    throw damaged_error("data", args.path,
                        std::filesystem::exists(args.path) ? " is not a regular file" : " is missing: ",
                        std::filesystem::exists(args.path) ? "" : error.message(),
                        "; the manifest lists it; restore the file or build the dataset again");
  Hdf5Handle file = open_file(args.path);
  const std::string reason = file.valid() ? "" : hdf5_reason();
  // The identity is checked before the size, so that another intact shard is not reported as truncated or too long.
  const auto found = file.valid() && !args.manifest.old_form() ? read_identity(file) : std::nullopt;
  const ShardIdentity expected{std::string(name_of(args.part)), args.index, info.digest};
  if (found && *found != expected) {
    throw damaged_error(
        "data", args.path, ": the manifest expects ", expected.text(), ", the file is ", found->text(),
        ": this is another shard, or a shard of another dataset; restore the file or build the dataset again");
  }
  if (bytes != info.bytes) {
    throw damaged(args.path, bytes < info.bytes ? "truncated" : "too long",
                  str_cat("the manifest says ", info.bytes, " bytes, the file has ", bytes));
  }
  if (!file.valid()) throw damaged(args.path, "the file cannot be opened", reason);
  if (!found && !args.manifest.old_form()) {
    throw damaged(args.path, "it has no shard identity",
                  str_cat("the manifest expects ", expected.text(),
                          "; the file is damaged, or from a dataset in the old format"));
  }
  return file;
}

OpenDataset open_dataset(const Hdf5Handle& file, const char* name, hid_t type, const std::string& path) {
  const auto fail = [&](std::string_view reason) {
    return damaged(path, str_cat("dataset ", name, " (header)"), reason);
  };
  OpenDataset set;
  set.id = Hdf5Handle(H5Dopen2(file.get(), name, H5P_DEFAULT), H5Dclose);
  if (!set.id.valid()) throw fail(hdf5_reason());
  const Hdf5Handle space(H5Dget_space(set.id.get()), H5Sclose);
  Hdf5Handle found(H5Dget_type(set.id.get()), H5Tclose);
  const Hdf5Handle creation(H5Dget_create_plist(set.id.get()), H5Pclose);
  if (!space.valid() || !found.valid() || !creation.valid()) throw fail(hdf5_reason());
  hsize_t size = 0, chunk = 0;
  if (H5Sget_simple_extent_ndims(space.get()) != 1 || H5Sget_simple_extent_dims(space.get(), &size, nullptr) != 1 ||
      H5Pget_layout(creation.get()) != H5D_CHUNKED || H5Pget_chunk(creation.get(), 1, &chunk) != 1) {
    throw fail("expected one dimension and the chunked layout");
  }
  if (H5Tequal(found.get(), type) <= 0) throw fail("its type differs from the manifest");
  unsigned flags = 0, config = 0;
  size_t values = 0;
  if (H5Pget_filter_by_id2(creation.get(), H5Z_FILTER_FLETCHER32, &flags, &values, nullptr, 0, nullptr, &config) < 0) {
    throw fail("it has no Fletcher32 checksum");
  }
  set.type = std::move(found);
  set.size = static_cast<int64_t>(size);
  set.chunk = static_cast<int64_t>(chunk);
  return set;
}

int64_t num_chunks(const OpenDataset& set) { return (set.size + set.chunk - 1) / set.chunk; }

int64_t chunk_size(const OpenDataset& set, int64_t chunk) {
  ASHLAR_CHECK(chunk >= 0 && chunk < num_chunks(set), "chunk ", chunk, " of ", num_chunks(set));
  return std::min(set.chunk, set.size - chunk * set.chunk);
}

/// Fletcher's checksum as HDF5 stores it after each chunk: two sums modulo 65535 of the bytes read as big-endian 16-bit
/// words. Source: H5checksum.c of HDF5, H5_checksum_fletcher32.
uint32_t fletcher32(std::span<const uint8_t> bytes) {
  uint64_t first = 0, second = 0;
  for (size_t i = 0; i < bytes.size(); i += 2) {
    const uint32_t low = i + 1 < bytes.size() ? bytes[i + 1] : 0;
    first = (first + ((uint32_t{bytes[i]} << 8) | low)) % 65535;
    second = (second + first) % 65535;
  }
  // HDF5 reduces a sum modulo 65535 by adding its upper 16 bits to its lower 16 bits. So if the sum is a multiple of
  // 65535 and not all bytes are zero, the result is 65535, not 0.
  const bool any = std::any_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b != 0; });
  if (any && first == 0) first = 65535;
  if (any && second == 0) second = 65535;
  return static_cast<uint32_t>(second << 16 | first);
}

/// Returns why a chunk cannot be read. Examines the bytes of the chunk in the file, without HDF5's filters. `reason` is
/// HDF5's own message. It is returned if the bytes show no more exact cause.
std::string chunk_damage(const OpenDataset& set, int64_t chunk, const std::string& reason) {
  const auto offset = static_cast<hsize_t>(chunk * set.chunk);
  const size_t size = static_cast<size_t>(set.chunk) * H5Tget_size(set.type.get());
  hsize_t stored_bytes = 0;
  if (H5Dget_chunk_storage_size(set.id.get(), &offset, &stored_bytes) < 0) return reason;
  if (stored_bytes != size + 4)
    return str_cat("expected ", size + 4, " bytes in the file, got ", stored_bytes, " (", reason, ")");
  std::vector<uint8_t> raw(static_cast<size_t>(stored_bytes));
  uint32_t filters = 0;
  if (H5Dread_chunk(set.id.get(), H5P_DEFAULT, &offset, &filters, raw.data()) < 0) return reason;
  uint32_t stored = 0;
  for (size_t i = 0; i < 4; ++i) stored |= uint32_t{raw[size + i]} << (8 * i);
  const uint32_t computed = fletcher32(std::span(raw).first(size));
  if (filters != 0) return str_cat("the file has no checksum for it (", reason, ")");
  if (stored == computed) return reason;
  return str_cat("stored checksum (Fletcher32) ", hex32(stored), ", computed ", hex32(computed));
}

bool read_chunk(const OpenDataset& set, int64_t chunk, hid_t memory_type, void* out) {
  const auto start = static_cast<hsize_t>(chunk * set.chunk);
  const auto count = static_cast<hsize_t>(chunk_size(set, chunk));
  const Hdf5Handle file_space(H5Dget_space(set.id.get()), H5Sclose);
  const Hdf5Handle memory_space(H5Screate_simple(1, &count, nullptr), H5Sclose);
  return file_space.valid() && memory_space.valid() &&
         H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, &start, nullptr, &count, nullptr) >= 0 &&
         H5Dread(set.id.get(), memory_type, memory_space.get(), file_space.get(), H5P_DEFAULT, out) >= 0;
}

}  // namespace

struct ShardReader::Impl {
  std::string path;
  bool wide;
  Hdf5Handle file;
  OpenDataset tokens, documents;
};

ShardReader::ShardReader(const Args& args) : impl_(new Impl{.path = args.path, .wide = args.manifest.wide}) {
  const Hdf5Quiet quiet;
  Impl& r = *impl_;
  const ShardInfo& info = args.manifest.part(args.part).shards[static_cast<size_t>(args.index)];
  r.file = open_shard(args);
  r.tokens = open_dataset(r.file, "tokens", r.wide ? H5T_STD_U32LE : H5T_STD_U16LE, r.path);
  r.documents = open_dataset(r.file, "documents", H5T_STD_U64LE, r.path);
  if (r.tokens.size != info.tokens || r.tokens.chunk != kChunkTokens || r.documents.size != info.documents) {
    throw damaged(r.path, "shape",
                  str_cat("the manifest says ", info.tokens, " tokens and ", info.documents,
                          " documents, the file has ", r.tokens.size, " and ", r.documents.size));
  }
}

ShardReader::~ShardReader() = default;

bool ShardReader::accepts(const Args& args) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(args.path, error)) return false;  // HDF5 would block when it opens a pipe
  try {
    const ShardReader opened(args);
    return true;
  } catch (const Error& problem) {
    if (problem.code() != ExitCode::kDamagedData) throw;
    return false;
  }
}

int64_t ShardReader::num_token_chunks() const { return num_chunks(impl_->tokens); }

void ShardReader::read_tokens(int64_t chunk, std::vector<uint8_t>& out) const {
  const Hdf5Quiet quiet;
  const Impl& r = *impl_;
  out.resize(static_cast<size_t>(chunk_size(r.tokens, chunk) * (r.wide ? 4 : 2)));
  if (!read_chunk(r.tokens, chunk, r.wide ? H5T_NATIVE_UINT32 : H5T_NATIVE_UINT16, out.data())) {
    throw damaged(r.path, str_cat("dataset tokens, chunk ", chunk), chunk_damage(r.tokens, chunk, hdf5_reason()));
  }
}

int64_t ShardReader::num_document_chunks() const { return num_chunks(impl_->documents); }

void ShardReader::read_documents(int64_t chunk, std::vector<int64_t>& out) const {
  const Hdf5Quiet quiet;
  const Impl& r = *impl_;
  out.resize(static_cast<size_t>(chunk_size(r.documents, chunk)));
  if (!read_chunk(r.documents, chunk, H5T_NATIVE_INT64, out.data())) {
    throw damaged(r.path, str_cat("dataset documents, chunk ", chunk), chunk_damage(r.documents, chunk, hdf5_reason()));
  }
}

}  // namespace ashlar::data
