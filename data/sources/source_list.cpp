#include "data/sources/source_list.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <span>

#include "core/base/error.h"
#include "core/io/atomic_file.h"
#include "core/io/posix_file.h"
#include "data/ordered_parallel.h"
#include "data/sources/datatrove_tokens.h"
#include "data/sources/json_array.h"
#include "data/sources/source_content.h"

namespace ashlar::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSample = 65536;

struct stat stat_of(const std::string& path) {
  struct stat st;
  if (::stat(path.c_str(), &st) != 0) throw io::system_error("input", "read", path, errno);
  return st;
}

struct Candidate {
  std::string path, shown;
  std::string index;  ///< path of the Megatron index of a .bin file; empty if none
};

std::string extension_of(const std::string& path) { return fs::path(path).extension().string(); }

/// Returns the path without the extension .gz or .zst.
std::string unpacked_name(const std::string& path) {
  const std::string extension = extension_of(path);
  return extension == ".gz" || extension == ".zst" ? fs::path(path).replace_extension().string() : path;
}

std::string read_sample(const io::InputFile& file, int64_t offset) {
  std::string bytes(static_cast<size_t>(kSample), '\0');
  bytes.resize(static_cast<size_t>(file.read_at_most(offset, std::as_writable_bytes(std::span(bytes)))));
  return bytes;
}

std::string with_extension(const std::string& path, const char* extension) {
  return fs::path(path).replace_extension(extension).string();
}

bool holds_megatron_index(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && is_megatron_index(read_sample(io::InputFile(path), 0));
}

/// Replaces datatrove's X.ds.index, X.ds.metadata and X.ds.loss by their X.ds. The X.ds.metadata of several NUMBER_X.ds
/// is read with these.
std::vector<Candidate> pair_datatrove(std::vector<Candidate> candidates) {
  std::set<std::string> ids;
  std::vector<Candidate> paired;
  for (Candidate& candidate : candidates) {
    const std::string owner = datatrove_owner(candidate.path);
    if (!owner.empty() && !fs::exists(owner)) {
      if (has_datatrove_parts(owner)) continue;
      throw input_error("input", candidate.shown, " belongs to datatrove's ", owner,
                        ", which is missing; put it in the same folder");
    }
    if (!owner.empty()) candidate = {.path = owner, .shown = owner};
    if (extension_of(candidate.path) == ".ds" && !ids.insert(candidate.path).second) continue;
    paired.push_back(std::move(candidate));
  }
  return paired;
}

/// Assigns to each X.bin the Megatron index X.idx in its folder, if there is one, and replaces an input X.idx by its
/// X.bin.
std::vector<Candidate> pair_megatron(std::vector<Candidate> candidates) {
  std::set<std::string> bins;
  std::vector<Candidate> paired;
  for (Candidate& candidate : candidates) {
    const std::string extension = extension_of(candidate.path);
    if (extension == ".idx" && holds_megatron_index(candidate.path)) {
      const std::string bin = with_extension(candidate.path, ".bin");
      if (!fs::exists(bin)) {
        throw input_error("input", candidate.shown, " is a Megatron index, but ", bin,
                          " with its ids is missing; put it in the folder of the index");
      }
      candidate = {.path = bin, .shown = bin};
    }
    if (extension_of(candidate.path) == ".bin") {
      const std::string index = with_extension(candidate.path, ".idx");
      if (holds_megatron_index(index)) {
        if (!bins.insert(candidate.path).second) continue;
        candidate.index = index;
      }
    }
    paired.push_back(std::move(candidate));
  }
  return paired;
}

/// Result of inspecting a file.
struct Inspected {
  SourceFile file;
  std::string binary;  ///< what the file is, if it contains neither text nor token ids
};

/// What is read from a file to determine its type.
struct Content {
  std::string head;
  int64_t bytes = 0;
  TextCheck text;
  ShapeFound shape;
  std::vector<int64_t> element_starts;
};

/// Shared state of all inspections.
struct Inspection {
  const SourceQuery& query;
  std::mutex mutex;
  int64_t done = 0, total = 0;  ///< bytes of all files: inspected so far, and in total

  /// Adds inspected bytes. Reports progress if `tell` is true.
  void read(int64_t bytes, bool tell) {
    const std::lock_guard lock(mutex);
    done += bytes;
    if (tell && query.progress) query.progress(done, total);
  }
};

ShapeFound shape_by(SourceFormat format, std::string_view head, bool whole, const std::string& path) {
  switch (format) {
    case SourceFormat::kAuto: return shape_of(head, whole, unpacked_name(path));
    case SourceFormat::kJsonLines: return {TextShape::kJsonLines, ""};
    case SourceFormat::kJsonArray: return {TextShape::kJsonArray, ""};
    default: return {};
  }
}

Content inspect_packed(const io::InputFile& file, const Candidate& from, Packing packing, Inspection& inspection) {
  Content content;
  Unpacker unpacker(file, packing, from.shown);
  JsonArrayScan scan(inspection.query.block_bytes);
  std::string piece(size_t{256} << 10, '\0');
  int64_t taken = 0;
  while (const size_t n = unpacker.read(piece)) {
    const std::string_view bytes = std::string_view(piece).substr(0, n);
    if (content.bytes == 0) {
      content.head = bytes.substr(0, kSample);
      content.shape = shape_by(inspection.query.format, content.head, n == content.head.size(), from.path);
    }
    if (content.shape.shape == TextShape::kJsonArray) scan.add(bytes);
    content.text.look(content.bytes, bytes);
    content.bytes += static_cast<int64_t>(n);
    inspection.read(unpacker.packed_bytes() - taken, true);
    taken = unpacker.packed_bytes();
  }
  content.element_starts = scan.take_starts();
  return content;
}

/// Scans a JSON array for block boundaries.
void scan_array(const io::InputFile& file, Content& content, int64_t block_bytes) {
  JsonArrayScan scan(block_bytes);
  std::string piece;
  for (int64_t at = 0; at < content.bytes; at += static_cast<int64_t>(piece.size())) {
    piece.resize(size_t{1} << 20);
    piece.resize(static_cast<size_t>(file.read_at_most(at, std::as_writable_bytes(std::span(piece)))));
    if (piece.empty()) break;
    scan.add(piece);
  }
  content.element_starts = scan.take_starts();
}

Content inspect_plain(const io::InputFile& file, std::string head) {
  Content content;
  content.head = std::move(head);
  content.bytes = file.size_bytes();
  content.text.look(0, content.head);
  if (content.bytes <= kSample) return content;
  for (const int64_t offset : {content.bytes / 2, content.bytes - kSample})
    if (offset >= kSample) content.text.look(offset, read_sample(file, offset));
  return content;
}

std::optional<TokenLayout> tokens_in(const Content& content, const Candidate& from, const SourceFile& file) {
  if (!from.index.empty()) return megatron_tokens(from.index, content.bytes, from.shown);
  if (auto layout = recognised_tokens(content.head, content.bytes, from.shown)) return layout;
  if (extension_of(from.path) == ".ds" && content.text.first_binary() >= 0) {
    throw input_error("input", from.shown, " is named as datatrove's ids are, without ", from.path, ".index or ",
                      from.path, ".metadata; put these beside it, or set --format uint16 or uint32");
  }
  const bool bin = extension_of(unpacked_name(from.path)) == ".bin" && content.text.first_binary() >= 0;
  if (!bin || known_binary(content.head).certain || packing_of(content.head) != Packing::kNone) return std::nullopt;
  return raw_tokens(TokenType::kUint16, content.bytes, "nanoGPT", file.shown);
}

std::string binary_in(const Content& content, Packing packing) {
  if (packing_of(content.head) != Packing::kNone) return "is compressed twice";
  const int64_t at = content.text.first_binary();
  const BinaryForm form = known_binary(content.head);
  if (packing != Packing::kNone && form.what == kParquetForm)
    return "is a Parquet file that was compressed once more (unpack it: a Parquet file packs its own pages)";
  if (!form.what.empty() && (form.certain || at >= 0)) return str_cat("is ", form.what);
  return at < 0 ? "" : str_cat("holds binary data from byte ", at, " on");
}

/// True for a Parquet file, a truncated one too; text that begins like one is text.
bool holds_rows(const Content& content, const io::InputFile& file) {
  if (known_binary(content.head).what != kParquetForm) return false;
  return is_parquet(content.head, file) || content.text.first_binary() >= 0;
}

/// Copies the detected shape of a text file to `out`. Throws an input error for an ambiguous file.
void copy_shape(const Candidate& from, Content& content, SourceFile& out) {
  const ShapeFound& shape = content.shape;
  if (!shape.doubt.empty()) {
    throw input_error("input", from.shown, " ", shape.doubt, ", which is neither prose nor one object per line; set",
                      " --format text (prose), jsonl or json-array");
  }
  out.shape = shape.shape;
  out.element_starts = std::move(content.element_starts);
  if (out.shape == TextShape::kJsonArray && out.element_starts.empty()) {
    throw input_error("input", from.shown, " holds no element of a JSON array; expected [{...}, {...}], or another",
                      " --format");
  }
}

Inspected inspect(const Candidate& from, Inspection& inspection) {
  const SourceFormat format = inspection.query.format;
  Inspected inspected{.file = {.path = from.path, .shown = from.shown}};
  SourceFile& out = inspected.file;
  const io::InputFile file(from.path);
  out.bytes = file.size_bytes();
  if (format == SourceFormat::kAuto) out.tokens = datatrove_tokens(from.path, out.bytes, from.shown);
  if (out.tokens) inspection.read(out.bytes, false);
  if (format == SourceFormat::kBytes || out.bytes == 0 || out.tokens) return inspected;
  std::string head = read_sample(file, 0);
  const std::string extension = extension_of(from.path);
  const Packing claimed = extension == ".gz" ? Packing::kGzip : extension == ".zst" ? Packing::kZstd : Packing::kNone;
  out.packing = packing_of(head);
  const bool raw = format == SourceFormat::kUint16 || format == SourceFormat::kUint32;
  if (raw && claimed == Packing::kNone) out.packing = Packing::kNone;  // ids may look like a compressed file
  if (claimed != Packing::kNone && out.packing == Packing::kNone) {
    throw input_error("input", from.shown, " is named ", extension, ", but does not begin like a compressed file; ",
                      "download the file again, or rename it to match its content");
  }
  Content content;
  if (out.packing != Packing::kNone) {
    content = inspect_packed(file, from, out.packing, inspection);
  } else {
    content = inspect_plain(file, std::move(head));
    inspection.read(content.bytes, false);
    content.shape =
        shape_by(format, content.head, content.bytes == static_cast<int64_t>(content.head.size()), from.path);
  }
  out.bytes = content.bytes;
  if (out.bytes == 0) return inspected;
  if (raw) {
    const TokenType type = format == SourceFormat::kUint16 ? TokenType::kUint16 : TokenType::kUint32;
    out.tokens = raw_tokens(type, out.bytes, "raw", from.shown);
  } else if (format == SourceFormat::kAuto && out.packing == Packing::kNone && holds_rows(content, file)) {
    const SourceQuery& query = inspection.query;
    out.rows = std::make_shared<const TextColumn>(from.path, from.shown, query.text_field, query.block_bytes);
    out.shape = TextShape::kRows;
    out.bytes = out.rows->bytes();
    return inspected;
  } else if (format == SourceFormat::kAuto) {
    out.tokens = tokens_in(content, from, out);
  }
  if (out.tokens) {
    out.bytes = out.tokens->tokens * bytes_of(out.tokens->type);
    return inspected;
  }
  inspected.binary = binary_in(content, out.packing);
  if (!inspected.binary.empty()) return inspected;
  if (content.shape.shape == TextShape::kJsonArray && out.packing == Packing::kNone)
    scan_array(file, content, inspection.query.block_bytes);
  copy_shape(from, content, out);
  return inspected;
}

/// True if the name of `path`, or of a folder between `folder` and `path`, begins with a dot.
bool hidden_in(const fs::path& path, const fs::path& folder) {
  const fs::path below = path.lexically_relative(folder);
  return std::any_of(below.begin(), below.end(), [](const fs::path& name) { return name.string().starts_with('.'); });
}

void add_folder(const std::string& folder, bool hidden, std::vector<Candidate>& candidates, SourceList& list) {
  std::vector<std::string> paths;
  std::error_code error;
  auto it = fs::recursive_directory_iterator(folder, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    std::error_code ignored;
    if (!hidden && !it->is_directory(ignored) && hidden_in(it->path(), folder)) {
      ++list.hidden_files;
    } else if (it->is_regular_file(ignored)) {
      paths.push_back(it->path().string());
    } else if (!it->is_directory(ignored) || it->is_symlink(ignored)) {
      ++list.other_entries;
    }
  }
  if (error) throw io::system_error("input", "read folder", folder, error.value());
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) candidates.push_back({.path = path, .shown = path, .index = ""});
}

/// Throws an input error for a file that is given twice, even under different paths, since its text would count twice
/// without the user's knowledge. Returns the total size of the files in bytes.
int64_t refuse_twice(const std::vector<Candidate>& candidates) {
  std::map<std::pair<dev_t, ino_t>, const Candidate*> seen;
  int64_t bytes = 0;
  for (const Candidate& candidate : candidates) {
    struct stat st;
    if (::stat(candidate.path.c_str(), &st) != 0) continue;  // the error is reported when the file is opened
    const auto [at, fresh] = seen.emplace(std::pair(st.st_dev, st.st_ino), &candidate);
    bytes += st.st_size;
    if (fresh) continue;
    const std::string& first = at->second->shown;
    throw input_error("input", candidate.shown, " is an input twice",
                      first == candidate.shown ? "" : str_cat(": it is the same file as ", first),
                      "; give each input once (to weight a file, build a dataset of it and train on a mixture)");
  }
  return bytes;
}

bool lies_inside(const fs::path& inner, const fs::path& outer) {
  const auto [in, out] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  return in == outer.end();
}

std::vector<Candidate> find_files(const SourceQuery& query, SourceList& list) {
  std::vector<Candidate> candidates;
  for (const std::string& input : query.inputs) {
    if (input == "-") {
      candidates.push_back({.path = query.spool, .shown = "standard input"});
      continue;
    }
    const struct stat st = stat_of(input);
    if (S_ISDIR(st.st_mode)) {
      if (lies_inside(fs::weakly_canonical(query.out), fs::canonical(input))) {
        throw input_error("input", "the output folder ", query.out, " lies inside the input folder ", input,
                          "; choose --out elsewhere");
      }
      add_folder(input, query.hidden, candidates, list);
    } else if (S_ISREG(st.st_mode)) {
      candidates.push_back({.path = input, .shown = input});
    } else {
      throw input_error("input", input,
                        " is neither a file nor a folder; give - and pipe its content into standard input");
    }
  }
  if (query.format == SourceFormat::kAuto) candidates = pair_datatrove(pair_megatron(std::move(candidates)));
  return candidates;
}

}  // namespace

SourceList list_sources(const SourceQuery& query) {
  if (query.inputs.empty()) {
    throw input_error("input", "no input; give text files, folders, JSONL or Parquet files, files of tokens or - for ",
                      "standard input");
  }
  SourceList list;
  const std::vector<Candidate> candidates = find_files(query, list);
  Inspection inspection{.query = query};
  inspection.total = refuse_twice(candidates);
  std::string binary;  // description of the first binary file
  ordered_parallel(
      query.threads, static_cast<int64_t>(candidates.size()),
      [&](int64_t i, int) { return inspect(candidates[i], inspection); },
      [&](int64_t, Inspected inspected) {
        if (inspected.file.bytes == 0) {
          ++list.empty_files;
        } else if (!inspected.binary.empty()) {
          if (list.binary_files++ == 0) binary = str_cat(inspected.file.shown, " ", inspected.binary);
        } else {
          list.bytes += inspected.file.bytes;
          list.files.push_back(std::move(inspected.file));
        }
      });
  if (list.binary_files > 0 && !query.skip_binary) {
    const std::string more =
        list.binary_files > 1 ? str_cat(" (and ", list.binary_files - 1, " more files are not text)") : "";
    throw input_error("input", binary, ", not text", more,
                      "; leave it out (--skip-binary leaves out all such files), or read every file byte by byte with ",
                      "--format bytes");
  }
  if (list.files.empty()) {
    throw input_error("input", "expected input with text, got no text (", list.empty_files, " empty files",
                      list.binary_files > 0 ? str_cat(", ", list.binary_files, " binary files") : "",
                      list.hidden_files > 0
                          ? str_cat(", ", list.hidden_files, " hidden files, which --include-hidden would read")
                          : "",
                      "); give files with text; the first input is ", query.inputs[0]);
  }
  return list;
}

void spool_descriptor(int descriptor, const std::string& path) {
  io::AtomicFile file(path);
  std::vector<std::byte> buffer(size_t{1} << 20);
  for (;;) {
    const ssize_t n = ::read(descriptor, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw io::system_error("input", "read", "standard input", errno);
    if (n == 0) break;
    file.write(std::span(buffer).first(static_cast<size_t>(n)));
  }
  file.commit();
}

}  // namespace ashlar::data
