#pragma once

#include <span>
#include <string>

#include "core/base/log.h"
#include "launch/commands/session.h"

namespace ashlar::launch {

/// `ashlar import HF_DIR OUT [--ignore-key KEY ...]`: a Hugging Face model as a checkpoint. Returns the exit code;
/// throws Error.
int run_import_command(std::span<const std::string> words, Log& log);

/// `ashlar export CHECKPOINT HF_DIR [--class NAME] [--dtype T] [--max-positions N] [--max-shard-bytes N]`, called by
/// all ranks: a checkpoint as a Hugging Face model. Returns the exit code; throws Error.
int run_export_command(std::span<const std::string> words, Session& session);

extern const char* const kImportHelp;
extern const char* const kExportHelp;

}  // namespace ashlar::launch
