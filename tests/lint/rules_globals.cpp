#include <algorithm>
#include <cctype>
#include <regex>

#include "tests/lint/rules.h"

namespace ashlar::lint {

namespace {

// Whether the newline at `at` is escaped, that is, the preprocessor line goes on.
bool continued(const std::string& text, size_t at) { return at > 0 && text[at - 1] == '\\'; }

// One past the end of the literal that begins at `at` (a quote, or the R of a raw string).
size_t literal_end(const std::string& text, size_t at) {
  if (text[at] == 'R') {
    const size_t open = text.find('(', at);
    if (open == std::string::npos) return text.size();
    const std::string close = ")" + text.substr(at + 2, open - at - 2) + "\"";
    const size_t end = text.find(close, open);
    return end == std::string::npos ? text.size() : end + close.size();
  }
  size_t end = at + 1;
  while (end < text.size() && text[end] != text[at] && text[end] != '\n') end += text[end] == '\\' ? 2 : 1;
  return std::min(end + 1, text.size());
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

enum class Scope { kNamespace, kFunction, kType };

Scope scope_opened_by(const std::string& head) {
  static const std::regex name_space(R"(^\s*((inline\s+)?namespace\b|extern\s*$))");
  static const std::regex type(R"(^\s*(template\s*<[^;]*>\s*)?(typedef\s+)?(class|struct|union|enum)\b)");
  if (std::regex_search(head, name_space)) return Scope::kNamespace;
  return std::regex_search(head, type) ? Scope::kType : Scope::kFunction;
}

// Template arguments and attributes left out: their commas, stars and `const` say nothing about the variable.
std::string without_brackets(const std::string& declaration) {
  static const std::regex attributes(R"(\[\[[^\]]*\]\])");
  std::string flat;
  int depth = 0;
  for (const char c : std::regex_replace(declaration, attributes, "")) {
    depth += c == '<';
    if (depth == 0) flat += c;
    depth -= c == '>' && depth > 0;
  }
  return flat;
}

// A declaration that makes an object which can change later. Functions, types, aliases and constants are none.
bool is_mutable_variable(const std::string& statement, bool at_namespace_scope) {
  static const std::regex thread_storage(R"(\bthread_local\b|\bABSL_FLAG\s*\()");
  static const std::regex static_storage(R"(^\s*(inline\s+)?static\b)");
  static const std::regex no_object(
      R"(^\s*(using|typedef|namespace|friend|template|static_assert|class|struct|enum|union|concept|return)\b|\boperator\b)");
  static const std::regex constant(R"(\b(constexpr|consteval)\b)");
  static const std::regex const_word(R"(\bconst\b)");
  static const std::regex variable(
      R"(^\s*((static|inline|extern|volatile|constinit)\s+)*[A-Za-z_][\w:]*[\s\w:&*]*[\s&*][A-Za-z_]\w*\s*(\[[^\]]*\]\s*)*$)");
  if (std::regex_search(statement, thread_storage)) return true;
  const bool is_static = std::regex_search(statement, static_storage);
  if (!at_namespace_scope && !is_static) return false;
  if (std::regex_search(statement, no_object) || std::regex_search(statement, constant)) return false;
  std::string declared = without_brackets(statement.substr(0, statement.find('=')));
  if (!at_namespace_scope) declared = declared.substr(0, declared.find('('));  // static T x(arguments)
  if (declared.find('(') != std::string::npos) return false;                   // a function, or a macro
  // `const T* p` can be pointed elsewhere; `T* const p` and `const T x` cannot.
  const size_t star = declared.rfind('*');
  if (std::regex_search(star == std::string::npos ? declared : declared.substr(star), const_word)) return false;
  return std::regex_match(declared, variable);
}

}  // namespace

std::string blank_non_code(const std::string& text) {
  std::string code = text;
  const auto blank = [&](size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) {
      if (code[i] != '\n') code[i] = ' ';
    }
  };
  bool line_start = true;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    size_t end = i + 1;
    if (line_start && c == '#') {
      end = text.find('\n', i);
      while (end != std::string::npos && continued(text, end)) end = text.find('\n', end + 1);
      end = std::min(end, text.size());
      blank(i, end);
    } else if (text.compare(i, 2, "//") == 0) {
      end = std::min(text.find('\n', i), text.size());
      blank(i, end);
    } else if (text.compare(i, 2, "/*") == 0) {
      end = text.find("*/", i + 2);
      end = end == std::string::npos ? text.size() : end + 2;
      blank(i, end);
    } else if (c == '"' || (text.compare(i, 2, "R\"") == 0 && (i == 0 || !is_word(text[i - 1])))) {
      end = literal_end(text, i);
      blank(i, end);
    } else if (c == '\'' && (i == 0 || !is_word(text[i - 1]))) {  // not a digit separator
      end = literal_end(text, i);
      blank(i, end);
    }
    line_start = c == '\n' || (line_start && std::isspace(static_cast<unsigned char>(c)) != 0);
    i = end;
  }
  return code;
}

namespace {

// CUDA's intrinsics take no context, so which block's thread runs has to be found by the thread of the host: one
// pointer, declared and defined once.
bool is_current_block(const std::string& path, const std::string& statement) {
  static const std::regex pointer(R"(^(extern )?thread_local constinit Block\* current_block( = nullptr)?$)");
  return path.starts_with("tests/gpu_emulator/device_calls.") && std::regex_match(statement, pointer);
}

}  // namespace

std::vector<Finding> no_globals(const SourceFile& file) {
  if (!is_code(file.path)) return {};
  const std::string code = blank_non_code(file.text);
  std::vector<Finding> findings;
  std::vector<Scope> scopes;
  std::string statement;
  int line = 1, statement_line = 1;
  const auto judge = [&] {
    const bool at_namespace_scope = scopes.empty() || scopes.back() == Scope::kNamespace;
    const bool in_type = !scopes.empty() && scopes.back() == Scope::kType;
    if (in_type && statement.find("inline") == std::string::npos) return;  // a member: judged where it is defined
    if (!is_mutable_variable(statement, at_namespace_scope) || is_current_block(file.path, statement)) return;
    findings.push_back(
        {file.path, statement_line, "a variable that outlives its scope and can change: pass it instead"});
  };
  int parens = 0;
  for (const char c : code) {
    line += c == '\n';
    if (statement.empty() && std::isspace(static_cast<unsigned char>(c)) != 0) continue;
    if (statement.empty()) statement_line = line;
    parens += (c == '(') - (c == ')');
    if (parens > 0 || (c != ';' && c != '{' && c != '}')) {
      statement += c;
      continue;
    }
    if (c == '{') {
      const Scope opened = scope_opened_by(statement);
      if (opened == Scope::kFunction) judge();  // `T x{...}` and `T x = {...}`
      scopes.push_back(opened);
    } else if (c == '}') {
      if (!scopes.empty()) scopes.pop_back();
    } else {
      judge();
    }
    statement.clear();
  }
  return findings;
}

}  // namespace ashlar::lint
