#include "launch/commands/subcommands.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "core/base/error.h"
#include "data/tokenizer/forms.h"
#include "launch/commands/arguments.h"
#include "launch/commands/session.h"

namespace ashlar::launch {

const char* const kTokenizerHelp = R"(ashlar tokenizer: inspects, uses and trains tokenizers

  TOKENIZER is a file or folder: tokenizer.json (BPE, Unigram), vocab.json with merges.txt, a SentencePiece .model, or a
  tiktoken file (.tiktoken; an unpublished one needs "pattern" and "special" in about.json beside it). An unsupported
  field is refused by name.

  ashlar tokenizer info TOKENIZER
      form, vocabulary, special tokens, end of document
  ashlar tokenizer encode TOKENIZER [--template] < TEXT
      the ids of the text on standard input, on one line; special tokens in the text are parsed. --template adds the
      tokenizer's template, such as <s>
  ashlar tokenizer decode TOKENIZER < IDS
      the text of ids, separated by white space or commas
)";

namespace {

std::unique_ptr<data::FormTokenizer> open_only(Arguments& given) {
  const std::vector<std::string> names = given.positionals();
  given.expect(names, 1, "one tokenizer", " names; see ashlar tokenizer --help");
  return data::open_tokenizer(names[0]);
}

std::string all_of(std::istream& in) { return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()}; }

int run_info(Words words, Session& session) {
  std::ostream& out = session.out;
  Arguments given("tokenizer info", words);
  const auto tokenizer = open_only(given);
  out << on_one_line(tokenizer->identity()) << ", vocabulary " << tokenizer->vocab_size() << "\n";
  const auto show = [&](const char* name, std::optional<int32_t> id) {
    out << "  " << name << ' ';
    if (id) {
      out << *id << " " << escaped(tokenizer->token(*id)) << "\n";
    } else {
      out << "none\n";
    }
  };
  show("begin of text  ", tokenizer->bos_id());
  show("end of document", tokenizer->eos_id());
  const std::vector<std::string> special = tokenizer->special_tokens();
  out << "  special tokens  " << special.size();
  for (size_t i = 0; i < special.size() && i < 8; ++i) out << (i == 0 ? ": " : " ") << escaped(special[i]);
  out << (special.size() > 8 ? " ...\n" : "\n");
  out << "  files          ";
  for (const data::TokenizerFile& file : tokenizer->files()) out << ' ' << escaped(file.name);
  out << "\n";
  if (tokenizer->eos_id()) out << "  hash            " << tokenizer->hash() << "\n";
  return 0;
}

int run_encode(Words words, Session& session) {
  Arguments given("tokenizer encode", words);
  const bool with_template = given.flag("--template");
  const auto tokenizer = open_only(given);
  const std::string text = all_of(session.in);
  std::vector<int32_t> ids;
  try {
    if (with_template) {
      tokenizer->encode_with_template(text, ids);
    } else {
      tokenizer->encode(text, ids);
    }
  } catch (const data::TextError& e) {
    throw input_error(given.command(), "standard input, byte offset ", e.offset, ": ", e.reason);
  }
  std::string line;
  for (const int32_t id : ids) line += str_cat(line.empty() ? "" : " ", id);
  session.out << line << '\n';
  return 0;
}

int run_decode(Words words, Session& session) {
  Arguments given("tokenizer decode", words);
  const auto tokenizer = open_only(given);
  const std::string text = all_of(session.in);
  std::vector<int32_t> ids;
  constexpr std::string_view kBetween = " \t\r\n,[]";
  for (size_t at = 0; (at = text.find_first_not_of(kBetween, at)) != std::string::npos;) {
    const size_t stop = std::min(text.find_first_of(kBetween, at), text.size());
    const std::string word = text.substr(at, stop - at);
    const auto id = parse_number<int32_t>(word);
    if (!id)
      throw input_error(given.command(), "standard input: expected token ids separated by white space or commas, got ",
                        word.substr(0, 40));
    ids.push_back(*id);
    at = stop;
  }
  session.out << tokenizer->decode(ids);
  return 0;
}

}  // namespace

int run_tokenizer_command(Words words, Session& session) {
  return run_subcommand(
      "tokenizer", {{"info", run_info}, {"encode", run_encode}, {"decode", run_decode}, {"train", run_tokenizer_train}},
      str_cat(kTokenizerHelp, kTokenizerTrainHelp), words, session);
}

}  // namespace ashlar::launch
