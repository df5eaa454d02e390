#include "data/tokenizer/sentencepiece_library.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <unordered_map>

namespace ashlar::data {
namespace {

/// Returns the message of an error without the position in the library's source; empty on success.
std::string wrong(const sentencepiece::util::Status& status) {
  if (status.ok()) return "";
  std::string text = status.ToString();
  if (const size_t place = text.find(")] "); place != std::string::npos) text.erase(0, place + 3);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text.empty() ? "unknown error" : text;
}

class Lines final : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const std::vector<std::string>& lines) : lines_(lines) {}
  bool done() const override { return at_ == lines_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return lines_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& lines_;
  size_t at_ = 0;
};

}  // namespace

struct SentencePieceLibrary::Impl {
  sentencepiece::SentencePieceProcessor processor;
};

SentencePieceLibrary::SentencePieceLibrary() : impl_(std::make_unique<Impl>()) {}
SentencePieceLibrary::~SentencePieceLibrary() = default;

std::string SentencePieceLibrary::load(std::string_view model) {
  return wrong(impl_->processor.LoadFromSerializedProto(model));
}
int32_t SentencePieceLibrary::size() const { return impl_->processor.GetPieceSize(); }
std::string SentencePieceLibrary::piece(int32_t id) const { return impl_->processor.IdToPiece(id); }
int32_t SentencePieceLibrary::id_of(std::string_view piece) const { return impl_->processor.PieceToId(piece); }
float SentencePieceLibrary::score(int32_t id) const { return impl_->processor.GetScore(id); }
bool SentencePieceLibrary::is_control(int32_t id) const { return impl_->processor.IsControl(id); }
bool SentencePieceLibrary::is_unknown(int32_t id) const { return impl_->processor.IsUnknown(id); }
bool SentencePieceLibrary::is_unused(int32_t id) const { return impl_->processor.IsUnused(id); }
int32_t SentencePieceLibrary::eos_id() const { return impl_->processor.eos_id(); }

std::string SentencePieceLibrary::encode(std::string_view text, std::vector<int32_t>& ids) const {
  std::vector<int> own;
  const std::string error = wrong(impl_->processor.Encode(text, &own));
  ids.insert(ids.end(), own.begin(), own.end());
  return error;
}

std::string SentencePieceLibrary::decode(std::span<const int32_t> ids, std::string& text) const {
  return wrong(impl_->processor.Decode(std::vector<int>(ids.begin(), ids.end()), &text));
}

std::string SentencePieceLibrary::train(const std::map<std::string, std::string>& options,
                                        const std::vector<std::string>& lines, std::string& model) {
  Lines iterator(lines);
  const std::unordered_map<std::string, std::string> given(options.begin(), options.end());
  return wrong(sentencepiece::SentencePieceTrainer::Train(given, &iterator, &model));
}

}  // namespace ashlar::data
