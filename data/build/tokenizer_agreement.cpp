#include "data/build/tokenizer_agreement.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include "absl/strings/str_replace.h"
#include "core/base/strings.h"

namespace ashlar::data {
namespace {

namespace fs = std::filesystem;

bool same_texts(const Tokenizer& a, const Tokenizer& b) {
  if (a.vocab_size() != b.vocab_size()) return false;
  for (int32_t id = 0; id < a.vocab_size(); ++id) {
    if (a.has_token(id) != b.has_token(id)) return false;
    if (a.has_token(id) && a.decode(std::span(&id, 1)) != b.decode(std::span(&id, 1))) return false;
  }
  return true;
}

}  // namespace

TokenizerAgreement compare_tokenizers(const std::string& named, const std::string& given, const Tokenizer& tokenizer) {
  std::error_code ignored;
  if (fs::exists(named, ignored))
    return same_texts(*tokenizer_of_path(named), tokenizer) ? TokenizerAgreement::kAgrees
                                                            : TokenizerAgreement::kDiffers;
  if (given == "bytes") return TokenizerAgreement::kDiffers;
  // A folder of this name, or a folder of the hub's cache.
  const std::string name = fs::path(named).filename();
  const std::string cached = str_cat("models--", absl::StrReplaceAll(named, {{"/", "--"}}));
  const fs::path path = fs::weakly_canonical(given, ignored);
  const bool found = std::any_of(path.begin(), path.end(), [&](const fs::path& folder) {
    return !name.empty() && (folder == name || folder == cached);
  });
  return found ? TokenizerAgreement::kAgrees : TokenizerAgreement::kUnknown;
}

}  // namespace ashlar::data
