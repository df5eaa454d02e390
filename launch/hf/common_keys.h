#pragma once

#include "launch/hf/config_reader.h"
#include "launch/hf/hf_config.h"

// Shared by the files of this folder; not part of its interface.
namespace ashlar::hf {

/// The keys that every class takes: token ids, which are kept; options of training, generation and bookkeeping, which
/// change no logit; and the few that would change them, which are refused.
void read_common_keys(ConfigReader& reader, HfConfig& out);

}  // namespace ashlar::hf
