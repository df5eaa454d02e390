#pragma once

#include <span>
#include <string>

#include "core/base/log.h"

namespace ashlar::launch {

/// `ashlar import HF_DIR OUT [--ignore-key KEY ...]`: a Hugging Face model as a checkpoint. Returns the exit code;
/// throws Error.
int run_import_command(std::span<const std::string> words, Log& log);

/// `ashlar export CHECKPOINT HF_DIR [--class NAME] [--dtype T] [--max-positions N]`: a checkpoint as a Hugging Face
/// model. Returns the exit code; throws Error.
int run_export_command(std::span<const std::string> words, Log& log);

extern const char* const kImportHelp;
extern const char* const kExportHelp;

}  // namespace ashlar::launch
