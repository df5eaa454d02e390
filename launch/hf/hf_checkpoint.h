#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/io/safetensors.h"
#include "launch/hf/hf_model.h"

namespace ashlar::hf {

struct ImportOptions {
  std::vector<std::string> ignored_keys;  ///< keys of config.json to ignore
  bool tokenizer = true;                  ///< false: its files are not read
};

/// Result of the import of a directory.
struct ImportReport {
  HfConfig config;        ///< with its notes
  std::string tokenizer;  ///< description of the tokenizer; empty if there is none
  int64_t tensors = 0;
  int64_t parameters = 0;
  int64_t bytes = 0;
};

/// Writes a Hugging Face directory as a checkpoint of weights at `out`. Each tensor keeps the dtype of the file. The
/// checkpoint's configuration has the model sections, its metadata the class and token ids (keys `hf.*`), and it has
/// the files of the tokenizer. Memory: two tensors. Errors as import_hf; input error when `out` is not empty or the
/// kind of tokenizer is not supported; exit 6 for a full disk.
ImportReport import_to_checkpoint(const std::filesystem::path& hf_directory, const std::filesystem::path& out,
                                  const ImportOptions& options = {});

/// One line for the user: class, parameters, bytes, tokenizer.
std::string summary(const ImportReport& report, const std::filesystem::path& out);

/// A digest that identifies a Hugging Face directory independently of its path. It covers config.json, and of each file
/// of weights the name, the size, and the first and last 64 KiB. The metadata of an import has it under kSourceKey.
std::string source_digest(const std::filesystem::path& hf_directory);
inline constexpr const char* kSourceKey = "hf.source";

/// The end-of-text ids in the metadata of an import: those of generation_config.json if it had some, otherwise those
/// of config.json; none for a checkpoint that was not imported. Damaged error for metadata of another form.
std::vector<int64_t> end_ids(const io::Metadata& metadata);

struct ExportOptions {
  /// Null: the family it was imported from, or for other checkpoints the first family that can hold the model.
  const Family* family = nullptr;
  std::optional<io::FileDType> dtype;  ///< absent: as stored
  /// Longest context to write; 0: that of the imported model, or train.sequence_length if the import recorded none.
  int64_t max_positions = 0;
  int64_t max_shard_bytes = kDefaultShardBytes;  ///< 0: one file
  bool tokenizer = true;                         ///< false: the model alone
};

struct ExportReport {
  const Family* family = nullptr;
  Exported files;
};

/// Called by all ranks. Writes the weights of a checkpoint (of a run directory, its newest valid one) as a Hugging Face
/// directory, without the optimizer state. Every byte read is compared with its checksum. Errors as export_hf; input
/// error that names the settings in the way when no family can have the model.
ExportReport export_checkpoint(const std::filesystem::path& checkpoint, const std::filesystem::path& hf_directory,
                               const ExportOptions& options, Log& log, comm::ControlPlane& ranks);

}  // namespace ashlar::hf
