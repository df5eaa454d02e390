#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "data/tokenizer/tokenizer.h"

namespace ashlar::data {

/// The files of a Hugging Face folder that hold a tokenizer, by name.
struct HuggingFaceFiles {
  std::map<std::string, std::string> bytes;
  std::string note;  ///< a remark for the user; may be empty
};

/// A tokenizer as `AutoTokenizer` of transformers loads it: tokenizer.json, tokenizer_config.json with the class
/// PreTrainedTokenizerFast (others build their own pipeline over tokenizer.json), and the chat template. A tokenizer
/// that tokenizer.json cannot express is exported as its original files, with a note. `max_positions`, the longest
/// context of the model in tokens, is written to tokenizer_config.json; 0: not written.
HuggingFaceFiles hugging_face_files(const Tokenizer& tokenizer, int64_t max_positions);

}  // namespace ashlar::data
