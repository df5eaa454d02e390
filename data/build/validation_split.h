#pragma once

#include <cstdint>

#include "core/base/enum_names.h"

namespace ashlar::data {

/// With fewer documents than this the end of the token stream is the validation part.
inline constexpr int64_t kWholeDocumentsFrom = 20;

enum class SplitRule : uint8_t { kNone, kDocuments, kTail };
constexpr auto names_of(SplitRule) { return enum_names<SplitRule>("none", "documents", "tail"); }
using ashlar::name_of;

/// kNone for share 0, kTail below kWholeDocumentsFrom documents, otherwise kDocuments.
SplitRule split_rule(double share, int64_t documents);

/// kDocuments: whether a document belongs to the validation part. Documents are grouped in runs of 1/share (the first
/// run not longer than kWholeDocumentsFrom, so that there is at least one); one fixed pseudo-random document of each
/// run is chosen. Depends only on index and share.
bool is_validation_document(double share, int64_t document);

/// kTail: tokens of the train part, floor(total * (1 - share)); the rest is the validation part.
int64_t tail_train_tokens(double share, int64_t total_tokens);

}  // namespace ashlar::data
