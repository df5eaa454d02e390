#pragma once

#include <cstdint>
#include <vector>

#include "data/tokenizer/fields.h"
#include "data/tokenizer/vocabulary.h"

namespace ashlar::data {

/// The ids that `post_processor` of tokenizer.json adds around one text.
struct Template {
  std::vector<int32_t> before, behind;
};

/// Reads `post_processor`: TemplateProcessing, RobertaProcessing, BertProcessing, ByteLevel (adds nothing), or a
/// Sequence of these.
Template read_template(Fields fields, const Vocabulary& vocabulary);

}  // namespace ashlar::data
