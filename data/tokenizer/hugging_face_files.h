#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "data/tokenizer/tokenizer.h"

namespace ashlar::data {

/// The tokenizer files of a Hugging Face folder, by name.
struct HuggingFaceFiles {
  std::map<std::string, std::string> bytes;
  std::string note;  ///< a remark for the user; may be empty
};

/// Returns the files from which `AutoTokenizer` of transformers loads the tokenizer: tokenizer.json,
/// tokenizer_config.json with the class PreTrainedTokenizerFast (other classes replace the pipeline in tokenizer.json
/// by their own), and the chat template. If tokenizer.json cannot express the tokenizer, returns its original files and
/// a note. `max_positions` is the longest context of the model in tokens. It is written to tokenizer_config.json as
/// model_max_length, unless it is 0 or the files already have this key.
HuggingFaceFiles hugging_face_files(const Tokenizer& tokenizer, int64_t max_positions);

}  // namespace ashlar::data
