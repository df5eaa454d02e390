#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/config/key_accessor.h"

/// The one table of configuration keys. Parsing, defaults, writing, comparison, error texts, `explain` and
/// configs/README.md all read it; nothing about a key is written anywhere else.
namespace ashlar::config {

enum class KeyType : uint8_t {
  kInt,
  kNumber,  ///< an integer is taken too
  kBool,
  kString,        ///< not empty
  kWord,          ///< one of `words`
  kNumberOrWord,  ///< a number in range, or one of `words`
  kIntList,
  kNumberList,
  kKeyList,  ///< names of model keys; one alone needs no brackets
  kSources,  ///< data.path: a string, or a list of {path, weight}
};

/// What happens when a key is absent.
enum class Need : uint8_t {
  kDefault,   ///< takes `fallback`
  kDerived,   ///< follows from other values by `rule`
  kOptional,  ///< stays absent
  kModel,     ///< error, always
  kTrain,     ///< error when the config is to be trained
};

/// When a key may be given. One that does not apply keeps its member as RunConfig makes it, and is not written.
struct Condition {
  const char* text = "";                      ///< "": always
  bool (*holds)(const RunConfig&) = nullptr;  ///< null: the rule that reads the key tests it
  const char* reads = "";                     ///< the keys that `holds` looks at, separated by |
  bool default_stands = false;                ///< the default may be written where it does not hold, too
};

struct KeySpec {
  const char* section = "";
  const char* key = "";
  Member member;  ///< what it stands for in RunConfig; empty: a rule of resolve*.cpp reads the key
  KeyType type = KeyType::kString;
  Need need = Need::kDefault;
  const char* fallback = "";  ///< default, as TOML text without quotes
  const char* rule = "";      ///< how a derived default follows
  double low = 0, high = 0;   ///< of numbers
  bool low_open = false, high_open = false;
  const char* words = "";        ///< supported words, separated by |; of an enum "": all its names but the unsupported
  const char* unsupported = "";  ///< words known and refused
  const char* instead = "";      ///< where they are words of earlier versions, what to do; such words are not shown
  Condition when;
  const char* example = "";
  const char* unit = "";
  bool fixed = false;  ///< may not change on resume
  bool kept = false;   ///< where it is not given, a run that continues keeps the value it has: it is not derived anew
  const char* older_form_of = "";  ///< the key that this one, of an earlier version, says in other units
  const char* doc = "";

  std::string name() const;  ///< "section.key"
};

/// The rule of keys that take the default of optimizer.kind (optim::Rule).
inline constexpr const char* kRuleOfOptimizer = "that of optimizer.kind";

/// What the keys of a section describe.
enum class Scope : uint8_t {
  kRun,
  kModel,    ///< how a model is trained: dropout, loss, initial values
  kWeights,  ///< what the weights of a model mean, which a run takes from the checkpoint it starts from
};

struct SectionDoc {
  const char* section;
  const char* doc;
  Scope scope = Scope::kRun;
};

std::span<const KeySpec> schema();
std::span<const SectionDoc> sections();  ///< in the order in which they are written

Scope scope_of(const KeySpec& spec);
/// True for the keys of Scope::kWeights, but for padding: rows that no checkpoint holds.
bool is_weights_key(const KeySpec& spec);
/// False when its condition does not hold.
bool applies(const KeySpec& spec, const RunConfig& config);

/// Whether its default is that of optimizer.kind, and which it is.
bool is_of_optimizer(const KeySpec& spec);
Value default_of_optimizer(const KeySpec& spec, optim::OptimizerKind kind);

/// The entry of a key, or null.
const KeySpec* find_key(std::string_view section, std::string_view key);
size_t index_of(const KeySpec& spec);  ///< its place in schema()
/// For names written in this program: throws Bug when the schema lacks it.
size_t key_index(std::string_view name);

/// What keys are called in config.json of Hugging Face models and in papers, where that is far from their names here.
std::span<const std::pair<std::string_view, std::string_view>> other_names();
/// The known key that a misspelt one most likely means: the one that other programs call so, the same key of another
/// section, else the least edits. Empty where any guess would be a wild one: for a section that is none and is not like
/// one either, unless the key is known; in a section, for a key that is half another.
std::string nearest_key(std::string_view section, std::string_view key);
/// The section that a misspelt name means; empty when none is near.
std::string nearest_section(std::string_view name);
std::string section_list();  ///< "run, model, ..."
/// "did you mean the section rope?", or "expected one of run, model, ...".
std::string section_guess(std::string_view name);

/// What a value must be, e.g. `an integer from 1 to 1048576` or `one of relu, silu`. Supported values only.
std::string expectation(const KeySpec& spec);
/// `section.key = value`, a line that would be right.
std::string example_line(const KeySpec& spec);
/// The default as a reader wants it: the value, the rule, `required` or `absent`.
std::string default_text(const KeySpec& spec);

std::vector<std::string_view> split_words(const char* words);
std::vector<std::string_view> words_of(const KeySpec& spec);  ///< the words that it may have
/// The number that a word of a model key stands for: `head_dim^-0.5`, `sqrt(d_model)`, ...
double value_of_rule(const std::string& rule, const model::ModelConfig& m);

}  // namespace ashlar::config
