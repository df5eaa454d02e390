#include "core/io/json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <vector>

#include "core/base/error_text.h"
#include "core/base/printable.h"
#include "core/base/strings.h"

namespace ashlar::io {
namespace {

/// Thrown for JSON that breaks a rule of Ashlar: limited nesting depth, or unique keys.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Returns the JSON library's message without its prefix `[json.exception.NAME.ID] `. The text is escaped, since the
/// message may quote the file.
std::string own_words(const nlohmann::json::exception& error) {
  return escaped(text_of(std::string_view(error.what())), 80);
}

/// Throws Refused if brackets outside strings are nested deeper than kMaxJsonDepth. Invalid JSON may pass this check;
/// the parser rejects it later.
void check_depth(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth)
        throw Refused(str_cat("it is nested deeper than ", kMaxJsonDepth, " levels at byte ", i + 1));
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

/// Throws Refused if an object has a key twice. This is a separate pass over the text, since the library's parser
/// silently keeps the last of two equal keys. (The parser's callback interface could find duplicates too, but takes
/// quadratic time for long lists.)
class UniqueKeys : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override {
    keys_.emplace_back();
    return true;
  }
  bool key(string_t& key) override {
    if (!keys_.back().insert(key).second) throw Refused{str_cat("it has the key ", printable(key), " twice")};
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    return true;
  }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override { return false; }

 private:
  std::vector<std::set<std::string>> keys_;
};

template <typename Json>
Json parse(std::string_view text, JsonKeys keys) {
  check_depth(text);
  if (UniqueKeys unique; keys == JsonKeys::kUnique) nlohmann::json::sax_parse(text.begin(), text.end(), &unique);
  return Json::parse(text.begin(), text.end());
}

}  // namespace

nlohmann::json parse_json(std::string_view text, JsonKeys keys) { return parse<nlohmann::json>(text, keys); }

nlohmann::ordered_json parse_ordered_json(std::string_view text, JsonKeys keys) {
  return parse<nlohmann::ordered_json>(text, keys);
}

std::optional<nlohmann::json> try_parse_json(std::string_view text, JsonKeys keys) {
  try {
    return parse_json(text, keys);
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  } catch (const Refused&) {
    return std::nullopt;
  }
}

void reading_json(const std::function<Error(const std::string& sentence)>& problem, const std::function<void()>& read) {
  try {
    read();
  } catch (const Refused& refused) {
    throw problem(refused.what());
  } catch (const nlohmann::json::parse_error& error) {
    throw problem(str_cat("it is not valid JSON at byte ", error.byte));
  } catch (const nlohmann::json::out_of_range& error) {
    throw problem(str_cat("a number or index is out of range: ", own_words(error)));
  } catch (const nlohmann::json::type_error& error) {
    throw problem(str_cat("a value has another type than expected: ", own_words(error)));
  } catch (const nlohmann::json::exception& error) {
    throw problem(own_words(error));
  }
}

}  // namespace ashlar::io
