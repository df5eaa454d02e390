#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/config/key_accessor.h"

/// The table of all configuration keys. Parsing, defaults, writing, comparison, error texts, `explain` and
/// configs/README.md use the table. Derived values and checks that involve several keys are elsewhere.
namespace ashlar::config {

/// Handling of an absent key.
enum class Need : uint8_t {
  kDefault,   ///< has the value `fallback`
  kDerived,   ///< computed from other values by `rule`
  kOptional,  ///< may be absent
  kModel,     ///< must be given in every configuration
  kTrain,     ///< must be given in a training configuration
};

/// The condition under which a key may be given. If it does not hold, the key's member of RunConfig keeps its default
/// and is not written to files.
struct Condition {
  const char* text = "";                      ///< the condition in words; "": the key always applies
  bool (*holds)(const RunConfig&) = nullptr;  ///< null: a rule in resolve*.cpp tests the condition
  const char* reads = "";                     ///< names of the keys that `holds` reads, separated by |
  bool default_stands = false;                ///< the default may be given even if the condition does not hold
};

struct KeySpec {
  const char* section = "";
  const char* key = "";
  Member member;               ///< member of RunConfig that the key sets; empty: a rule in resolve*.cpp reads the key
  KeyType type = member.type;  ///< explicit for keys without a member and for numbers that may be words
  Need need = Need::kDefault;
  const char* fallback = "";  ///< default, as TOML text without quotes
  const char* rule = "";      ///< formula of the default
  double low = 0, high = 0;   ///< range of numbers
  bool low_open = false, high_open = false;
  const char* words = "";        ///< supported words, separated by |; "" for an enum: all its names but `unsupported`
  const char* unsupported = "";  ///< known words that are refused
  const char* instead = "";      ///< advice for the error text, if `unsupported` has words of earlier versions
  Condition when;
  const char* example = "";
  const char* unit = "";
  /// May not change on resume. schema() sets it for all model keys but vocab.pad_to and the keys of moe that are not of
  /// Scope::kWeights.
  bool fixed = false;
  bool kept = false;               ///< if not given on resume, the key keeps the value of the run and is not derived
  const char* older_form_of = "";  ///< the newer key that sets the same quantity in other units; "": no such key
  const char* doc = "";

  std::string name() const;  ///< "section.key"
};

/// KeySpec::rule of the keys whose default depends on optimizer.kind (optim::Rule).
inline constexpr const char* kRuleOfOptimizer = "depends on optimizer.kind";

/// What the keys of a section describe.
enum class Scope : uint8_t {
  kRun,
  kModel,    ///< training of a model: dropout, loss, initial values
  kWeights,  ///< how weights are used; a run that starts from a checkpoint copies these keys from it
};

struct SectionDoc {
  const char* section;
  const char* doc;
  Scope scope = Scope::kRun;
};

std::span<const KeySpec> schema();
std::span<const SectionDoc> sections();  ///< ordered as written to a file

Scope scope_of(const KeySpec& spec);
/// True for the keys of Scope::kWeights except vocab.pad_to, because checkpoints do not contain the padding rows.
bool is_weights_key(const KeySpec& spec);
/// False if the condition of the key (KeySpec::when) does not hold.
bool applies(const KeySpec& spec, const RunConfig& config);

/// is_of_optimizer(): true if the default of the key depends on optimizer.kind. default_of_optimizer() returns the
/// default for one kind.
bool is_of_optimizer(const KeySpec& spec);
Value default_of_optimizer(const KeySpec& spec, optim::OptimizerKind kind);

/// Returns the entry of a key, or null.
const KeySpec* find_key(std::string_view section, std::string_view key);
size_t index_of(const KeySpec& spec);  ///< index of the key in schema()
/// Returns the index of a key, for names in the source code such as "model.d_ff". Throws Bug if the schema lacks the
/// key.
size_t key_index(std::string_view name);

/// Pairs of a name that papers or Hugging Face models use, and the key here with this meaning; only where the two names
/// differ much.
std::span<const std::pair<std::string_view, std::string_view>> other_names();
/// Returns the known key that a misspelt name most likely means. That is the key for which other programs use this
/// name, else the key with the smallest edit distance, where the same key in another section counts as one edit. Empty
/// if a guess would be arbitrary: if the section resembles no section and no section has the key, or if more than a
/// third of the letters differ.
std::string nearest_key(std::string_view section, std::string_view key);
/// Returns the section that a misspelt name most likely means; empty if none is near.
std::string nearest_section(std::string_view name);
std::string section_list();  ///< "run, model, ..."
/// Returns "did you mean the section rope?" or, if none is near, "expected one of run, model, ...".
std::string section_guess(std::string_view name);

/// Describes the supported values, e.g. `an integer from 1 to 1048576` or `one of "relu", "silu"`.
std::string expectation(const KeySpec& spec);
/// Returns a valid line `section.key = value`.
std::string example_line(const KeySpec& spec);
/// Returns the default in readable form: the value, the rule, `absent`, or that the key must be given.
std::string default_text(const KeySpec& spec);

std::vector<std::string_view> split_words(const char* words);
std::vector<std::string_view> words_of(const KeySpec& spec);  ///< the words that the key accepts
/// Computes a rule such as `head_dim^-0.5` or `sqrt(d_model)`, which some model keys accept instead of a number.
double value_of_rule(const std::string& rule, const model::ModelConfig& m);

}  // namespace ashlar::config
