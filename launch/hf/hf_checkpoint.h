#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/io/safetensors.h"
#include "data/tokenizer/tokenizer.h"
#include "launch/config/run_config.h"
#include "launch/hf/hf_model.h"

namespace ashlar::hf {

struct ImportOptions {
  std::vector<std::string> ignored_keys;  ///< keys of config.json to ignore
  bool tokenizer = true;                  ///< false: the tokenizer's files are not read
};

/// Result of the import of a directory.
struct ImportReport {
  HfConfig config;        ///< config of the model, with the notes of the import
  std::string tokenizer;  ///< description of the tokenizer; empty if there is none
  int64_t tensors = 0;
  int64_t parameters = 0;
  int64_t bytes = 0;
};

/// Converts a Hugging Face directory to a checkpoint of weights at `out`. Each tensor keeps the dtype of the file. The
/// checkpoint also contains a configuration with the model sections, the class and the token ids as metadata (keys
/// `hf.*`), and the tokenizer. Needs host memory for a few tensors. Throws the errors of import_hf, an input error if
/// `out` is not empty or the kind of tokenizer is not supported, and an error with exit code 6 if the disk is full.
ImportReport import_to_checkpoint(const std::filesystem::path& hf_directory, const std::filesystem::path& out,
                                  const ImportOptions& options = {});

/// A model with its weights, wherever they are, and what else a checkpoint of it contains.
struct ModelSource {
  model::ModelConfig model;
  std::vector<io::TensorSpec> tensors;
  std::function<void(const io::TensorSpec& tensor, std::span<std::byte> out)> read;  ///< reads a whole tensor
  std::string tokenizer_json;                                                        ///< empty: no tokenizer
  io::Metadata metadata;

  int64_t parameters() const;
};

/// Opens a Hugging Face directory for import_to_checkpoint; sets `report`, except its sizes. Throws the same errors.
ModelSource model_of_folder(const std::filesystem::path& hf_directory, const ImportOptions& options,
                            ImportReport& report);

/// Opens the weights of a checkpoint, whose configuration is `stored`. Keeps the metadata of a Hugging Face model. Each
/// byte is compared with its checksum when it is read.
ModelSource model_of_checkpoint(const std::filesystem::path& checkpoint, const config::RunConfig& stored);

/// Texts of the configuration that write_model puts beside a checkpoint, with which the user continues its training.
struct StartingTexts {
  std::string origin;     ///< follows "Continues training the "
  std::string tokenizer;  ///< the argument of `data build --tokenizer`; empty if there is none
};

/// Writes a model as a checkpoint of weights at `out`, with a config.toml beside it. Needs host memory for a few
/// tensors. Throws an input error if `out` is not empty, and an error with exit code 6 if the disk is full. Returns the
/// bytes of the checkpoint.
int64_t write_model(const ModelSource& source, const StartingTexts& texts, const std::filesystem::path& out);

/// Returns one line for the user: class, parameters, bytes, tokenizer.
std::string summary(const ImportReport& report, const std::filesystem::path& out);

/// A digest that identifies a Hugging Face directory independently of its path. It covers config.json and, for each
/// weight file, the name, the size, and the first and last 64 KiB. An import stores the digest in the checkpoint's
/// metadata, under kSourceKey.
std::string source_digest(const std::filesystem::path& hf_directory);
inline constexpr const char* kSourceKey = "hf.source";
/// Key of a checkpoint's metadata with the class of the Hugging Face model that was imported.
inline constexpr const char* kClassKey = "hf.class";

/// Returns the end-of-text ids in the metadata of an imported checkpoint: the ids of generation_config.json if it had
/// any, otherwise the ids of config.json. Empty for a checkpoint that was not imported. Throws a damaged-data error for
/// malformed metadata.
std::vector<int64_t> end_ids(const io::Metadata& metadata);

/// Returns the begin-of-text id and the longest context in tokens in the metadata of an imported checkpoint; nothing,
/// or 0, for a checkpoint that was not imported. Throw the errors of end_ids.
std::optional<int64_t> begin_id(const io::Metadata& metadata);
int64_t max_positions(const io::Metadata& metadata);

struct OpenedExport;

struct ExportOptions {
  /// If null, the export uses the family from which the checkpoint was imported or, if it was not imported, the first
  /// family that can represent the model.
  const Family* family = nullptr;
  std::optional<io::FileDType> dtype;  ///< absent: the dtype of the checkpoint's tensors
  /// Longest context, in tokens, to write to config.json. If 0, the export writes the longest context of the imported
  /// model, or train.sequence_length if the checkpoint does not record it.
  int64_t max_positions = 0;
  int64_t max_shard_bytes = kDefaultShardBytes;  ///< 0: one file
  bool tokenizer = true;                         ///< false: only the model is written
  /// Returns the text of README.md, the model card; empty: none is written.
  std::function<std::string(const OpenedExport&)> card = {};
};

struct ExportReport {
  const Family* family = nullptr;
  Exported files;
};

/// A checkpoint as a model of a Hugging Face family.
struct OpenedExport {
  std::filesystem::path checkpoint;
  int64_t step = -1, tokens = 0;  ///< of the training; step -1: an import
  std::string config_toml;
  HfConfig config;
  std::unique_ptr<data::Tokenizer> tokenizer;  ///< null if the checkpoint has none
  std::unique_ptr<TensorSource> source;
  int64_t num_added = 0;  ///< biases and norm vectors that the family has and the model lacks
};
/// Called by all ranks. Throws the errors of export_checkpoint, except those of its folder and values.
OpenedExport open_export(const std::filesystem::path& checkpoint, const ExportOptions& options, Log& log,
                         comm::ControlPlane& ranks);

/// Called by all ranks. Converts the weights of a checkpoint, without the optimizer state, to a Hugging Face directory.
/// If `checkpoint` is a run directory, its newest valid checkpoint is converted. Every byte that is read is verified
/// against its checksum. Throws the errors of export_hf, and an input error that names the unsupported settings if no
/// family can represent the model.
ExportReport export_checkpoint(const std::filesystem::path& checkpoint, const std::filesystem::path& hf_directory,
                               const ExportOptions& options, Log& log, comm::ControlPlane& ranks);

}  // namespace ashlar::hf
