#include "data/tokenizer/fields.h"

#include <nlohmann/json.hpp>

#include "core/base/printable.h"

namespace ashlar::data {
namespace {

using nlohmann::json;

std::string brief(const json& value) {
  // A list or an object may be as large as the file. With more than 8 entries, only its kind and size are shown.
  if (value.is_structured() && value.size() > 8)
    return str_cat(value.is_array() ? "a list of " : "an object of ", value.size());
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

}  // namespace

Fields::Fields(const json& object, std::string path) : Fields(object, std::move(path), std::make_shared<int>(0)) {}

Fields::Fields(const json& object, std::string path, std::shared_ptr<int> steps)
    : object_(object), path_(std::move(path)), steps_(std::move(steps)) {
  if (!object_.is_object())
    throw input_error("tokenizer", path_, ": expected an object, got ", brief(object_), "; correct the file");
}

std::string Fields::path_of(std::string_view key) const {
  return str_cat(path_, path_.ends_with(".json") ? ": " : ".", escaped(key));
}

Error Fields::error(std::string_view key, const std::string& sentence) const {
  const auto at = object_.find(key);
  return input_error("tokenizer", path_of(key), at == object_.end() ? "" : str_cat(" = ", brief(*at)), ": ", sentence);
}

Error Fields::unsupported(std::string_view key, const std::string& known) const {
  return error(key, str_cat("not supported; expected ", known));
}

const json* Fields::find(std::string_view key) {
  read_.emplace(key);
  const auto at = object_.find(key);
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

bool Fields::has(std::string_view key) { return find(key) != nullptr; }

const json& Fields::array(std::string_view key) {
  const json* const value = find(key);
  if (value == nullptr || !value->is_array()) throw error(key, "expected a list; correct the file");
  return *value;
}

Fields Fields::object(std::string_view key) {
  const json* const value = find(key);
  if (value == nullptr || !value->is_object()) throw error(key, "expected an object; correct the file");
  return {*value, path_of(key), steps_};
}

std::string Fields::text(std::string_view key) {
  const json* const value = find(key);
  if (value == nullptr || !value->is_string()) throw error(key, "expected a string; correct the file");
  return value->get<std::string>();
}

std::string Fields::text(std::string_view key, std::string_view otherwise) {
  return has(key) ? text(key) : std::string(otherwise);
}

bool Fields::boolean(std::string_view key, bool otherwise) {
  const json* const value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) throw error(key, "expected true or false; correct the file");
  return value->get<bool>();
}

int64_t Fields::integer(std::string_view key, int64_t otherwise, int64_t least, int64_t most) {
  const json* const value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_number_integer() || value->get<double>() < static_cast<double>(least) ||
      value->get<double>() > static_cast<double>(most)) {
    throw error(key, str_cat("expected a whole number from ", least, " to ", most, "; correct the file"));
  }
  return value->get<int64_t>();
}

void Fields::ignore(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) read_.emplace(key);
}

void Fields::must_be_off(std::string_view key) {
  const json* const value = find(key);
  if (value == nullptr || *value == json(false) || *value == json(0)) return;
  if (value->is_number() && value->get<double>() == 0) return;
  if ((value->is_string() && value->get_ref<const std::string&>().empty()) ||
      (value->is_structured() && value->empty())) {
    return;
  }
  throw error(key, "not supported; expected null, false, 0 or an empty value");
}

void Fields::finish() const {
  for (const auto& [key, value] : object_.items()) {
    if (!read_.contains(key))
      throw error(key, "unknown field, which may change token ids; remove the field if it has no effect");
  }
}

bool Fields::is_text(std::string_view key) {
  const json* const value = find(key);
  return value != nullptr && value->is_string();
}

size_t Fields::length(std::string_view key) { return array(key).size(); }

Fields Fields::element(std::string_view key, size_t i) {
  return {array(key)[i], str_cat(path_of(key), "[", i, "]"), steps_};
}

void Fields::count_step() {
  if (++*steps_ > kMaxSteps)
    throw input_error("tokenizer", path_, ": more than ", kMaxSteps,
                      " steps in one tokenizer are not allowed; remove steps");
}

}  // namespace ashlar::data
