#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/config/key_accessor.h"

/// The table of all configuration keys. Parsing, defaults, writing, comparison, error texts, `explain` and
/// configs/README.md use it; nothing about a key is written elsewhere.
namespace ashlar::config {

/// Handling of an absent key.
enum class Need : uint8_t {
  kDefault,   ///< has the value `fallback`
  kDerived,   ///< computed from other values by `rule`
  kOptional,  ///< may be absent
  kModel,     ///< always an error
  kTrain,     ///< an error in a training configuration
};

/// When a key may be given. If the condition does not hold, the member keeps the default of RunConfig and is not
/// written.
struct Condition {
  const char* text = "";                      ///< "": always
  bool (*holds)(const RunConfig&) = nullptr;  ///< null: the rule that reads the key tests it
  const char* reads = "";                     ///< the keys that `holds` reads, separated by |
  bool default_stands = false;                ///< the default may be given even where the condition does not hold
};

struct KeySpec {
  const char* section = "";
  const char* key = "";
  Member member;               ///< member of RunConfig that the key sets; empty: a rule of resolve*.cpp reads the key
  KeyType type = member.type;  ///< given in a row without a member, and where words may stand for a number
  Need need = Need::kDefault;
  const char* fallback = "";  ///< default, as TOML text without quotes
  const char* rule = "";      ///< formula of the default
  double low = 0, high = 0;   ///< range of numbers
  bool low_open = false, high_open = false;
  const char* words = "";        ///< supported words, separated by |; "" of an enum: all its supported names
  const char* unsupported = "";  ///< known words that are refused
  const char* instead = "";      ///< if they are words of earlier versions: what to do; such words are not listed
  Condition when;
  const char* example = "";
  const char* unit = "";
  bool fixed = false;              ///< may not change on resume; set for every key of the model by schema()
  bool kept = false;               ///< if not given, a resumed run keeps its value and does not derive it again
  const char* older_form_of = "";  ///< the newer key that sets the same quantity in other units
  const char* doc = "";

  std::string name() const;  ///< "section.key"
};

/// Text of the default of keys that depends on optimizer.kind (optim::Rule).
inline constexpr const char* kRuleOfOptimizer = "that of optimizer.kind";

/// Subject of the keys of a section.
enum class Scope : uint8_t {
  kRun,
  kModel,    ///< training of a model: dropout, loss, initial values
  kWeights,  ///< use of the weights; a run that starts from a checkpoint copies these keys from it
};

struct SectionDoc {
  const char* section;
  const char* doc;
  Scope scope = Scope::kRun;
};

std::span<const KeySpec> schema();
std::span<const SectionDoc> sections();  ///< ordered as written to a file

Scope scope_of(const KeySpec& spec);
/// True for the keys of Scope::kWeights except padding, whose rows are in no checkpoint.
bool is_weights_key(const KeySpec& spec);
/// False when its condition does not hold.
bool applies(const KeySpec& spec, const RunConfig& config);

/// is_of_optimizer: true if the default of the key depends on optimizer.kind; default_of_optimizer returns that
/// default.
bool is_of_optimizer(const KeySpec& spec);
Value default_of_optimizer(const KeySpec& spec, optim::OptimizerKind kind);

/// The entry of a key, or null.
const KeySpec* find_key(std::string_view section, std::string_view key);
size_t index_of(const KeySpec& spec);  ///< its place in schema()
/// For names written in this program. Bug when the schema lacks it.
size_t key_index(std::string_view name);

/// Names that papers and the config.json of Hugging Face models use for keys, where they differ much from the names
/// here.
std::span<const std::pair<std::string_view, std::string_view>> other_names();
/// Returns the known key that a misspelt name most likely means. That is the key for which other programs use this
/// name, else the same key in another section, else the key with the fewest edits. Empty when a guess would be
/// arbitrary: for a section that resembles none (unless the key is known), and for a key of which half the letters are
/// wrong.
std::string nearest_key(std::string_view section, std::string_view key);
/// Returns the section that a misspelt name most likely means; empty if none is near.
std::string nearest_section(std::string_view name);
std::string section_list();  ///< "run, model, ..."
/// "did you mean the section rope?", or "expected one of run, model, ...".
std::string section_guess(std::string_view name);

/// Describes valid values, e.g. `an integer from 1 to 1048576` or `one of relu, silu`. Supported values only.
std::string expectation(const KeySpec& spec);
/// A valid line `section.key = value`.
std::string example_line(const KeySpec& spec);
/// The default in readable form: the value, the rule, `required` or `absent`.
std::string default_text(const KeySpec& spec);

std::vector<std::string_view> split_words(const char* words);
std::vector<std::string_view> words_of(const KeySpec& spec);  ///< the words it accepts
/// The number that the word of a model key means: `head_dim^-0.5`, `sqrt(d_model)`, ...
double value_of_rule(const std::string& rule, const model::ModelConfig& m);

}  // namespace ashlar::config
