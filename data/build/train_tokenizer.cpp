#include "data/build/train_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/device/host_limits.h"
#include "core/io/atomic_file.h"
#include "core/io/posix_file.h"
#include "data/build/block_reader.h"
#include "data/build/build_plan.h"
#include "data/build/output_folder.h"
#include "data/ordered_parallel.h"
#include "data/tokenizer/bpe_trainer.h"
#include "data/tokenizer/byte_characters.h"
#include "data/tokenizer/sentencepiece_trainer.h"
#include "data/tokenizer/tokenizer_json.h"
#include "data/tokenizer/word_counter.h"

namespace ashlar::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

class Corpus {
 public:
  explicit Corpus(const TokenizerTraining& training)
      : training_(training),
        threads_(training.threads > 0 ? training.threads : static_cast<int>(usable_cores())),
        sources_(list_sources({.inputs = training.inputs,
                               .format = training.format,
                               .text_field = training.text_field,
                               .skip_binary = training.skip_binary,
                               .hidden = training.include_hidden,
                               .out = training.out,
                               .threads = threads_,
                               .block_bytes = training.block_bytes,
                               .progress = looked(training)})),
        blocks_(split_into_blocks(sources_, training.block_bytes)) {
    for (const SourceFile& file : sources_.files) {
      if (!file.tokens) continue;
      throw input_error("tokenizer train", file.shown, " contains token ids (", file.tokens->form,
                        "); expected text to train a tokenizer on; leave this file out");
    }
  }

  int threads() const { return threads_; }
  int64_t bytes() const { return sources_.bytes; }
  int64_t hidden_files() const { return sources_.hidden_files; }

  /// Calls `visit(piece, worker)` for each piece of text in every block; `worker` is the index of the thread. Counts
  /// invalid JSON lines and invalid UTF-8 in `result`. Texts are split between words where possible.
  template <typename Visit>
  void read(int threads, const Visit& visit, TrainedTokenizer& result) const {
    const BlockReader reader(sources_, {.split_points = SplitPoints::kCodePoint,
                                        .bad_lines = training_.bad_lines,
                                        .between_words = true,
                                        .text_field = training_.text_field});
    int64_t done = 0;
    ordered_parallel(
        threads, static_cast<int64_t>(blocks_.size()),
        [&](int64_t i, int worker, const BlockReader::Turn& turn) {
          return reader.read(
              blocks_[i], [](const Digest&) {}, [&](const DocumentPiece& piece) { visit(piece, worker); }, turn);
        },
        [&](int64_t i, const ReadCounts& counted) {
          result.bad_lines += counted.bad_lines;
          result.bad_places += counted.bad_places;
          done += blocks_[i].end - blocks_[i].begin;
          if (training_.progress) training_.progress("reading", done, sources_.bytes);
        });
  }

 private:
  static std::function<void(int64_t, int64_t)> looked(const TokenizerTraining& training) {
    return [&](int64_t done, int64_t total) {
      if (training.progress) training.progress("inspecting files", done, total);
    };
  }

  const TokenizerTraining& training_;
  int threads_;
  SourceList sources_;
  std::vector<Block> blocks_;
};

/// Returns the text of a tokenizer.json, as the `tokenizers` library writes it.
std::string tokenizer_json(const TrainedBpe& trained, const std::vector<std::string>& special) {
  const ByteCharacters characters;
  std::vector<std::string> written;
  for (size_t id = 0; id < trained.tokens.size(); ++id)
    written.push_back(id < special.size() ? special[id] : characters.written(trained.tokens[id]));
  OrderedJson parts = {{"added_tokens", OrderedJson::array()}};
  OrderedJson vocab = OrderedJson::object();
  ordered_json merges = ordered_json::array();
  for (size_t id = 0; id < special.size(); ++id)
    parts["added_tokens"].push_back(added_token_json(special[id], static_cast<int64_t>(id)));
  for (size_t id = 0; id < written.size(); ++id) add_token(vocab, written[id], static_cast<int64_t>(id));
  for (const auto& [left, right] : trained.merges) merges.push_back({written[left], written[right]});
  parts["pre_tokenizer"] = parts["decoder"] = byte_level_json(false, true);
  parts["model"] = bpe_model_json({{"vocab", std::move(vocab)}, {"merges", std::move(merges)}});
  return tokenizer_json_of_parts(parts, 1) + "\n";
}

std::string config_json(const TokenizerTraining& training) {
  ordered_json json;
  json["tokenizer_class"] = "PreTrainedTokenizerFast";
  json["eos_token"] = training.special_tokens[0];
  json["clean_up_tokenization_spaces"] = false;
  return json.dump(1) + "\n";
}

void check_training(const TokenizerTraining& training) {
  std::vector<std::string> special = training.special_tokens;
  if (special.empty())
    throw input_error("tokenizer train", "expected a special token that ends documents, got none; add --special TOKEN");
  std::sort(special.begin(), special.end());
  if (special[0].empty())
    throw input_error("tokenizer train", "--special is empty: expected at least one character; change --special");
  const auto twice = std::adjacent_find(special.begin(), special.end());
  if (twice != special.end())
    throw input_error("tokenizer train", "--special ", printable(*twice),
                      " is given twice: expected every special token once; remove one");
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "tokenizer.model"}) {
    const std::string path = (fs::path(training.out) / name).string();
    std::error_code ignored;
    if (!training.overwrite && fs::exists(fs::symlink_status(path, ignored))) {
      throw input_error("tokenizer train", path, " already exists; choose another --out, or replace it with ",
                        "--overwrite");
    }
  }
}

std::string train_bytes_bpe(const TokenizerTraining& training, const Corpus& corpus, TrainedTokenizer& result) {
  std::vector<WordCounter> counters(static_cast<size_t>(corpus.threads()));
  const auto count = [&](const DocumentPiece& piece, int worker) { counters[worker].add(piece.text); };
  corpus.read(corpus.threads(), count, result);
  for (size_t w = 1; w < counters.size(); ++w) counters[0].merge(counters[w]);
  const std::vector<WordCount> words = counters[0].finish();
  BpeTraining bpe{.vocab_size = training.vocab_size,
                  .min_frequency = training.min_frequency,
                  .special_tokens = training.special_tokens};
  if (training.progress)
    bpe.progress = [&](int64_t tokens) { training.progress("merging pairs", tokens, training.vocab_size); };
  const TrainedBpe trained = train_bpe(words, bpe);
  result.words = static_cast<int64_t>(words.size());
  result.vocab_size = static_cast<int64_t>(trained.tokens.size());
  return tokenizer_json(trained, training.special_tokens);
}

}  // namespace

TrainedTokenizer train_tokenizer(const TokenizerTraining& training) {
  check_training(training);
  const Corpus corpus(training);
  TrainedTokenizer result;
  result.text_bytes = corpus.bytes();
  result.hidden_files = corpus.hidden_files();
  std::vector<std::pair<std::string, std::string>> files;
  if (training.kind == TokenizerKind::kBytesBpe) {
    files.emplace_back("tokenizer.json", train_bytes_bpe(training, corpus, result));
    files.emplace_back("tokenizer_config.json", config_json(training));
  } else {
    SentencePieceTraining sentencepiece{.unigram = training.kind == TokenizerKind::kSentencePieceUnigram,
                                        .vocab_size = training.vocab_size,
                                        .sentences = training.sentences};
    const auto each = [&](const std::function<void(std::string_view)>& add_text) {
      const auto add = [&](const DocumentPiece& piece, int) { add_text(piece.text); };
      corpus.read(1, add, result);
    };
    const SentencePieceModel model = train_sentencepiece(sentencepiece, each);
    result.vocab_size = model.vocab_size;
    files.emplace_back("tokenizer.model", model.bytes);
  }
  // The folder is created only when there is something to write.
  io::create_directories(training.out);
  for (const auto& [name, bytes] : files) {
    const std::string path = (fs::path(training.out) / name).string();
    io::write_file_atomically(path, bytes);
    result.files.push_back(path);
  }
  return result;
}

}  // namespace ashlar::data
