#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
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

/// A Hugging Face model directory, read as an Ashlar model. Tensors have their Ashlar names and the dtype of the file;
/// matrices are [out, in], row-major. No weights stay in memory, except the matrix that was transposed last. Not
/// thread-safe.
class ImportedModel {
 public:
  const HfConfig& config() const { return config_; }
  /// Facts about the import that the user may not expect, e.g. buffers that were left out. The caller prints them.
  const std::vector<std::string>& notes() const { return config_.notes; }

  /// Name, shape and dtype of each Ashlar tensor, in model order.
  const std::vector<io::TensorSpec>& tensors() const { return tensors_; }

  /// Reads a tensor. `out` must have exactly the tensor's size. Throws Bug for a name that tensors() lacks, and an
  /// error with exit code 4 for a value that is not finite; the error names the tensor of the file.
  void read(std::string_view name, std::span<std::byte> out);

 private:
  friend ImportedModel import_hf(const std::filesystem::path&, const std::vector<std::string>&);
  ImportedModel(io::SafetensorsModel files, HfConfig config) : files_(std::move(files)), config_(std::move(config)) {}

  struct Place {
    size_t mapping;
    size_t part;
  };
  void bind(const std::string& directory);
  /// Sets mappings_: of the forms in which experts may be stored, takes the one of which the files have the most
  /// tensors. Returns the names of tensors that hold experts in the other forms.
  std::set<std::string> map_tensors();
  /// Returns a name of a mapping as the files have it: without the family's prefix if they have no such names, and
  /// after text_prefix_.
  std::string name_in_files(const std::string& name) const;
  /// Returns the names of unexpected tensors: they are neither parameters of the model nor of a
  /// kind that an import leaves out (buffers, image encoder, blocks that predict further tokens). Adds a note with the
  /// number of tensors left out.
  std::vector<std::string> unknown_names();
  void read_rows(const TensorMapping& mapping, const std::string& file_name, const RowBlock& block,
                 std::span<std::byte> out);
  void check_tied_head(const std::string& directory);
  void check_constant(const TensorMapping& mapping, const std::string& name, std::vector<std::string>& wrong);

  io::SafetensorsModel files_;
  HfConfig config_;
  std::vector<TensorMapping> mappings_;
  std::vector<std::string> file_names_;  // for each mapping: name of its tensor in the files
  std::vector<io::TensorSpec> tensors_;
  std::unordered_map<std::string, Place> places_;
  bool has_prefix_ = true;
  std::string text_prefix_;         // WholeClass::text_prefix in files of Family::whole, else empty
  std::string transposed_name_;     // the tensor of transposed_
  int64_t transposed_matrix_ = -1;  // its matrix
  std::vector<std::byte> transposed_;
};

/// Opens and checks a directory as transformers writes it: config.json, and model.safetensors or its shards. Also
/// accepts tensor names without the family's prefix and the alias of the head. Reads the headers of the files. Reads
/// and checks the values of only two kinds of tensors: constants, and a second copy of a tied embedding, stored as the
/// head. Throws an input error that names unknown or missing tensors and wrong shapes or dtypes (F32, F16, BF16 and F64
/// are accepted), and a damaged-data error for a file that is not a safetensors file.
ImportedModel import_hf(const std::filesystem::path& directory, const std::vector<std::string>& ignored_keys = {});

/// Supplies an export with tensors, by their Ashlar names.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  /// Returns null if there is no such tensor.
  virtual const io::TensorSpec* find(std::string_view name) const = 0;
  /// Fills `out` with whole rows, beginning at `row`. Each element of a vector is a row.
  virtual void read_rows(std::string_view name, int64_t row, std::span<std::byte> out) = 0;
};

struct ReadTensorArgs {
  const TensorMapping& mapping;
  io::FileDType dtype;  ///< to which the values are converted
  TensorSource& source;
  int64_t window_bytes = int64_t{8} << 20;  ///< as in ExportArgs
};
/// Passes the values of a tensor to `put`, piece by piece, in the order of the Hugging Face files. Throws the errors of
/// export_hf for values.
void read_exported_tensor(const ReadTensorArgs& args, const std::function<void(std::span<const std::byte>)>& put);

struct ExportArgs {
  const HfConfig& config;
  TensorSource& source;  ///< this rank's source; all ranks must have the same tensors
  const std::filesystem::path& directory;
  std::optional<io::FileDType> dtype = std::nullopt;
  int64_t max_shard_bytes = kDefaultShardBytes;  ///< largest number of tensor bytes in one file; 0: no limit
  int64_t window_bytes = int64_t{8} << 20;       ///< bytes of rows that are written at a time; at least one row
  std::map<std::string, std::string> beside{};   ///< more files by name, e.g. the tokenizer's; rank 0 writes them
  Log& log;
};

struct Exported {
  int64_t tensors = 0;
  int64_t bytes = 0;  ///< bytes of all tensors
  size_t files = 0;   ///< number of files that hold tensors
  std::string dtype;  ///< dtype of most elements, which config.json names
};

/// Called by all ranks: writes `directory`/model.safetensors, or shards of it and their index (shards.h), and last of
/// all config.json. The shards are divided among the ranks, and rank 0 writes the other files; the files do not depend
/// on the number of ranks. Without `dtype` each tensor keeps the dtype of the source, so that export(import(x)) has the
/// tensors of x bit for bit. With `dtype`, values are rounded to nearest even; fp64 is rounded to bf16
/// and fp16 in two steps, through fp32 (io::convert).
///   Host memory: a few windows of 8 MiB, plus the largest matrix if the class stores matrices transposed (GPT-2). Open
/// files at a time: the file being written, and the files of the source. Errors with exit code 2: the errors of
/// ExportFolder, a folder that not all ranks see, a source tensor that is missing or has another shape, a finite value
/// that is out of range for the dtype. Exit code 4: a value that is not finite. Exit code 6: a full disk. An error on
/// one rank is thrown on all ranks (comm::AllRanksError), after the shards being written are complete and all files of
/// the export are removed. A killed process leaves files without a config.json; the next export removes them.
Exported export_hf(const ExportArgs& args, comm::ControlPlane& ranks);

}  // namespace ashlar::hf
