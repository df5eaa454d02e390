#pragma once

#include <cstdint>

#include "core/base/enum_names.h"

namespace ashlar::data {

/// If there are fewer documents than this, the end of the token stream is the validation part (SplitRule::kTail).
inline constexpr int64_t kWholeDocumentsFrom = 20;

enum class SplitRule : uint8_t { kNone, kDocuments, kTail };
constexpr auto names_of(SplitRule) { return enum_names<SplitRule>("none", "documents", "tail"); }
using ashlar::name_of;

/// Returns kNone for share 0, kTail for fewer than kWholeDocumentsFrom documents, and otherwise kDocuments.
SplitRule split_rule(double share, int64_t documents);

/// For SplitRule::kDocuments: true if the document with index `document` belongs to the validation part. Documents are
/// grouped into runs of 1/share (rounded up or down) consecutive documents, and one pseudo-random document of each run
/// is chosen. In the first run, one of the first kWholeDocumentsFrom documents is chosen. Since SplitRule::kDocuments
/// applies only to at least kWholeDocumentsFrom documents, the validation part is never empty. The result depends only
/// on the arguments.
bool is_validation_document(double share, int64_t document);

/// For SplitRule::kTail: number of tokens in the train part, floor(total_tokens * (1 - share)). All later tokens are
/// the validation part.
int64_t tail_train_tokens(double share, int64_t total_tokens);

}  // namespace ashlar::data
