#pragma once

#include <string>
#include <vector>

#include "tests/lint/source_tree.h"

namespace ashlar::lint {

/// Where a rule is broken and how to fix it. `line` counts from 1; 0 when the finding is about the whole file.
struct Finding {
  std::string path;
  int line = 0;
  std::string text;
};

/// Each rule is a pure function of one file: no finding means that the file keeps the rule. A rule that does not apply
/// to a file (by its name) finds nothing.
using Rule = std::vector<Finding> (*)(const SourceFile&);

/// Folders: core <- {kernels, parallel, data} <- launch; all <- tests. Inside core: base <- device <- tensor <- backend
/// <- autograd <- ops <- nn <- optim, io uses base only, tuning base and io. Own headers are included by their path
/// from the root.
std::vector<Finding> include_arrows(const SourceFile& file);
/// parallel/model has no call of a backend: ops have them all.
std::vector<Finding> kernel_calls(const SourceFile& file);
/// Vendor headers stay in the folders that wrap them, and OpenMP (and `#pragma omp`) out of all.
std::vector<Finding> vendor_headers(const SourceFile& file);
/// At most 600 lines.
std::vector<Finding> file_length(const SourceFile& file);
/// Comments are as wide as code: clang-format leaves them alone.
std::vector<Finding> comment_width(const SourceFile& file);
/// launch: at most 60 lines a function, from its declaration to its last brace. It begins anew after a brace in a list
/// of initialised members, and does not look into functions of classes inside functions.
std::vector<Finding> function_length(const SourceFile& file);
/// Bytes 0x20..0x7e, tab and newline only.
std::vector<Finding> ascii_only(const SourceFile& file);
/// No notes to self, no tests switched off, no paths of one machine.
std::vector<Finding> no_leftovers(const SourceFile& file);
/// Headers begin with `#pragma once` (Highway's `*_inl.h`, included once per target, excepted) and have no
/// `using namespace`.
std::vector<Finding> header_hygiene(const SourceFile& file);
/// In core/backend each struct with members of type ConstView or MutView names all of them in its `views()`.
std::vector<Finding> listed_views(const SourceFile& file);
/// No variable that outlives its scope and can change: at namespace scope, `static` in a function, `thread_local`.
std::vector<Finding> no_globals(const SourceFile& file);

/// Text from outside meets a terminal or a parser in known places. In the product's folders only the files that are
/// named in the rule write to standard output or error (errors and the log escape what acts on a terminal), and only
/// core/io/json.cpp calls the JSON library's parser (it bounds the depth).
std::vector<Finding> foreign_text(const SourceFile& file);

/// Rules about the list of files.
/// The top level holds the documented entries and dotfiles, nothing else.
std::vector<Finding> top_level(const std::vector<std::string>& paths);
/// Each top-level folder has a README.md; each deeper folder that holds code, scripts or configurations has one too or
/// is named (as `name/`) in the nearest README.md above it. A README.md has at most 60 lines (the root's: 120).
std::vector<Finding> folder_readmes(const std::vector<SourceFile>& tree);

/// A line of a README.md has at most 120 characters, rows of tables and code among them; but the generated list of
/// keys (configs) and the page of the golden vectors.
std::vector<Finding> readme_width(const SourceFile& file);

/// A README.md's table of files (first column `file`, `files` or `source`) names every source file of its folder; what
/// the first column of such a table, or of one of folders (`where`, `folder`), names is there. Only text files are
/// looked at, and a header and a source of one name are not told apart.
std::vector<Finding> readme_tables(const std::vector<SourceFile>& tree);

/// One line per finding, `path:line: text`, for a failure message.
std::string describe(const std::vector<Finding>& findings);

/// `text` with comments, string and character literals and preprocessor lines blanked; line numbers are kept.
std::string blank_non_code(const std::string& text);

}  // namespace ashlar::lint
