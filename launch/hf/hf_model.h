#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/log.h"
#include "core/io/safetensors_model.h"
#include "launch/hf/hf_config.h"
#include "launch/hf/hf_tensors.h"
#include "launch/hf/shards.h"
#include "parallel/comm/control_plane.h"

namespace ashlar::hf {

/// A Hugging Face model directory, read as an Ashlar model: the config, and every tensor by its Ashlar name, in the
/// dtype of the file, [out, in] row-major. Only the last transposed tensor is held in memory. Not thread-safe.
class ImportedModel {
 public:
  const HfConfig& config() const { return config_; }
  /// Notes on the config and the tensors that the user may not expect, e.g. buffers that were left out. To be printed.
  const std::vector<std::string>& notes() const { return config_.notes; }

  /// Name, shape and dtype of each Ashlar tensor, in model order.
  const std::vector<io::TensorSpec>& tensors() const { return tensors_; }

  /// Fills `out`, exactly the tensor's bytes. Bug for a name that tensors() lacks. Exit 4 for a value that is not
  /// finite, naming the tensor of the file.
  void read(std::string_view name, std::span<std::byte> out);

 private:
  friend ImportedModel import_hf(const std::filesystem::path&, const std::vector<std::string>&);
  ImportedModel(io::SafetensorsModel files, HfConfig config) : files_(std::move(files)), config_(std::move(config)) {}

  struct Place {
    size_t mapping;
    size_t part;
  };
  void bind(const std::string& directory);
  /// Returns the names, in printable form, of the tensors in the files that belong neither to the model nor to the
  /// kinds that are left out. Adds a note with the number of tensors left out.
  std::vector<std::string> unknown_names();
  void check_tied_head(const std::string& directory);
  void check_constant(const TensorMapping& mapping, const std::string& name, std::vector<std::string>& wrong);

  io::SafetensorsModel files_;
  HfConfig config_;
  std::vector<TensorMapping> mappings_;
  std::vector<std::string> file_names_;  // name of the tensor of each mapping in the files
  std::vector<io::TensorSpec> tensors_;
  std::unordered_map<std::string, Place> places_;
  std::string transposed_name_;
  std::vector<std::byte> transposed_;
};

/// Opens and checks a directory as transformers writes it: config.json, and model.safetensors or its shards. A file
/// without its prefix, or with another name of the head, is read too. Reads headers only (and a repeated tied head,
/// which must equal the embedding). Input error naming what is unknown, missing, or of another shape or dtype (F32,
/// F16, BF16 and F64 are read); damaged error for a file that is no safetensors file.
ImportedModel import_hf(const std::filesystem::path& directory, const std::vector<std::string>& ignored_keys = {});

/// Source of the tensors of an export.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  /// Null when there is no such tensor.
  virtual const io::TensorSpec* find(std::string_view name) const = 0;
  /// Fills `out` with whole rows, from `row` on. The rows of a vector are its elements.
  virtual void read_rows(std::string_view name, int64_t row, std::span<std::byte> out) = 0;
};

struct ExportArgs {
  const HfConfig& config;
  TensorSource& source;  ///< source of this rank; all ranks have the same tensors
  const std::filesystem::path& directory;
  std::optional<io::FileDType> dtype = std::nullopt;
  int64_t max_shard_bytes = kDefaultShardBytes;  ///< 0: one file
  int64_t window_bytes = int64_t{8} << 20;       ///< rows assembled at once; at least one row
  std::map<std::string, std::string> beside{};   ///< further files by name, those of a tokenizer; rank 0's are written
  Log& log;
};

struct Exported {
  int64_t tensors = 0;
  int64_t bytes = 0;  ///< bytes of all tensors
  size_t files = 0;   ///< number of files that hold tensors
  std::string dtype;  ///< dtype of most elements, as in config.json
};

/// Called by all ranks: writes `directory`/model.safetensors, or shards of it and their index (shards.h), and last of
/// all config.json. The shards are divided among the ranks, and rank 0 writes the rest; the files do not depend on the
/// number of ranks. Without `dtype` each tensor keeps the type of the source, so that export(import(x)) has the tensors
/// of x bit for bit. With `dtype`, values are rounded once to nearest even (to fp16 through fp32).
///   Host memory: a few windows of 8 MiB, and where the class stores matrices transposed (GPT2) the largest of them.
/// Files open at a time: one to write, and the source's. Errors (exit 2): as ExportFolder, a folder that not all ranks
/// see, a source tensor missing or of another shape, a finite value that the dtype cannot hold; exit 4 for a value that
/// is not finite, exit 6 for a full disk. An error of one rank is thrown on all ranks (comm::AllRanksError), after the
/// shards being written are complete and all files of the export are removed. A killed process leaves files without a
/// config.json; the next export removes them.
Exported export_hf(const ExportArgs& args, comm::ControlPlane& ranks);

}  // namespace ashlar::hf
