#include "data/tokenizer/template.h"

#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace ashlar::data {
namespace {

using nlohmann::json;

constexpr size_t kMaxAround = 1000;  // maximum number of ids around a text

std::vector<int32_t> ids_of_special(Fields& specials, const std::string& name, const Vocabulary& vocabulary) {
  Fields special = specials.object(name);
  special.ignore({"id", "tokens"});
  std::vector<int32_t> ids;
  if (special.length("ids") > kMaxAround)
    throw special.error("ids", str_cat("expected at most ", kMaxAround, " ids; shorten the list"));
  for (const json& id : special.array("ids")) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= vocabulary.size())
      throw special.error("ids", str_cat("expected token ids from 0 to ", vocabulary.size() - 1, ", got ", id.dump(),
                                         "; correct the file"));
    ids.push_back(id.get<int32_t>());
  }
  special.finish();
  return ids;
}

Template read_single(Fields& fields, const Vocabulary& vocabulary) {
  Template made;
  bool text_seen = false;
  const json* const special_tokens = fields.find("special_tokens");
  fields.ignore({"pair"});  // pairs of texts are not supported
  for (size_t i = 0; i < fields.length("single"); ++i) {
    Fields piece = fields.element("single", i);
    if (piece.has("Sequence")) {
      if (text_seen || piece.object("Sequence").text("id") != "A")
        throw piece.error(
            "Sequence",
            "expected exactly one Sequence in the template, with \"id\": \"A\" (the text); edit the template");
      text_seen = true;
    } else {
      const std::string name = piece.object("SpecialToken").text("id");
      if (special_tokens == nullptr) throw fields.error("special_tokens", "expected an object; correct the file");
      Fields specials(*special_tokens, fields.path_of("special_tokens"));
      std::vector<int32_t>& side = text_seen ? made.behind : made.before;
      const std::vector<int32_t> ids = ids_of_special(specials, name, vocabulary);
      if (side.size() <= kMaxAround) side.insert(side.end(), ids.begin(), ids.end());
    }
    piece.finish();
  }
  if (made.before.size() + made.behind.size() > kMaxAround)
    throw fields.error("single",
                       str_cat("expected at most ", kMaxAround, " ids around a text, got more; shorten the template"));
  if (!text_seen)
    throw fields.error(
        "single",
        R"(expected one {"Sequence": {"id": "A"}}, which marks where the text goes, got none; edit the template)");
  return made;
}

int32_t id_of_pair(Fields& fields, std::string_view key, const Vocabulary& vocabulary) {
  const json& pair = fields.array(key);
  const bool good = pair.size() == 2 && pair[1].is_number_integer() && pair[1].get<int64_t>() >= 0 &&
                    pair[1].get<int64_t>() < vocabulary.size();
  if (!good) throw fields.error(key, "expected a token and its id, such as [\"<s>\", 0]; correct the file");
  return pair[1].get<int32_t>();
}

}  // namespace

Template read_template(Fields fields, const Vocabulary& vocabulary) {
  fields.count_step();
  const std::string type = fields.text("type");
  Template made;
  if (type == "TemplateProcessing") {
    made = read_single(fields, vocabulary);
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    fields.ignore({"trim_offsets", "add_prefix_space"});
    made.before = {id_of_pair(fields, "cls", vocabulary)};
    made.behind = {id_of_pair(fields, "sep", vocabulary)};
  } else if (type == "ByteLevel") {
    fields.ignore({"add_prefix_space", "trim_offsets", "use_regex"});
  } else if (type == "Sequence") {
    for (size_t i = 0; i < fields.length("processors"); ++i) {
      const Template inner = read_template(fields.element("processors", i), vocabulary);
      made.before.insert(made.before.begin(), inner.before.begin(), inner.before.end());
      made.behind.insert(made.behind.end(), inner.behind.begin(), inner.behind.end());
    }
  } else {
    throw fields.unsupported("type", "TemplateProcessing, RobertaProcessing, BertProcessing, ByteLevel or Sequence");
  }
  fields.finish();
  return made;
}

}  // namespace ashlar::data
