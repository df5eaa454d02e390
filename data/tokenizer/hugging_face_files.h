#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "data/tokenizer/tokenizer.h"

namespace ashlar::data {

/// The files of a Hugging Face folder that hold a tokenizer, by name.
struct HuggingFaceFiles {
  std::map<std::string, std::string> bytes;
  std::string note;  ///< what a reader may not expect; empty when there is nothing
};

/// A tokenizer as `AutoTokenizer` of transformers loads it: tokenizer.json, tokenizer_config.json of the class
/// PreTrainedTokenizerFast (others build a pipeline of their own over tokenizer.json), and the chat template of its
/// files. One that no tokenizer.json says is given back in the files it was read from, with a note.
/// `max_positions`, the longest context of the model in tokens, goes into tokenizer_config.json; 0: nothing is said.
HuggingFaceFiles hugging_face_files(const Tokenizer& tokenizer, int64_t max_positions);

}  // namespace ashlar::data
