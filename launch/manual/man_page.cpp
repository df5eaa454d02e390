#include "launch/manual/man_page.h"

#include <sstream>

#include "core/base/strings.h"
#include "launch/config/schema.h"
#include "launch/manual/exit_codes.h"

namespace ashlar::manual {

namespace {

/// Text that troff prints as it is. Hyphens stay hyphens, so that copied options work.
std::string literal(std::string_view text) {
  std::string result;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) result += "\\&";
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-' || c == '\'' || c == '`' || c == '^' || c == '~') {
      result += c == '-' ? "\\-" : c == '\'' ? "\\(aq" : c == '`' ? "\\(ga" : c == '^' ? "\\(ha" : "\\(ti";
    } else {
      result += c;
    }
    line_begins = c == '\n';
  }
  return result;
}

/// Lines that are printed as they are. mdoc has no empty lines outside of them.
std::string block(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  return str_cat(".Bd -literal\n", literal(text), "\n.Ed\n");
}

std::string item(std::string_view name, std::string_view text) {
  return str_cat(".It ", literal(name), "\n", literal(text), "\n");
}

}  // namespace

std::string man_page(std::span<const CommandText> commands, const std::string& date) {
  std::ostringstream out;
  out << ".\\\" Written by `ashlar man`.\n"
      << ".Dd" << (date.empty() ? "" : " ") << date << "\n.Dt ASHLAR 1\n.Os\n"
      << ".Sh NAME\n.Nm ashlar\n.Nd pretraining of decoder-only transformers\n"
      << ".Sh SYNOPSIS\n.Nm\n.Ar command\n.Op Ar argument ...\n.Nm\n.Ar command Fl \\-help\n.Nm\n.Fl \\-version\n"
      << ".Sh DESCRIPTION\n.Nm\nbuilds datasets of token ids from text,\ntrains decoder-only transformers "
         "on any number of ranks, and reads and writes Hugging Face safetensors.\nThe commands are:\n"
      << ".Bl -tag -width check-layout\n";
  for (const CommandText& command : commands) out << item(command.name, command.summary);
  out << ".El\n.Sh COMMANDS\n";
  for (const CommandText& command : commands) out << ".Ss " << literal(command.name) << "\n" << block(command.help);
  out << ".Sh CONFIGURATION\nA configuration is a TOML file.\n"
         "A key on the command line, as section.key=value, takes precedence over the file.\n"
         "The sections are listed here;\n.Ql ashlar explain Ar section\nprints the keys of one.\n"
         ".Bl -tag -width checkpoint\n";
  for (const config::SectionDoc& section : config::sections()) out << item(section.section, section.doc);
  out << ".El\n.Sh EXIT STATUS\n.Bl -tag -width \"75, 76, 77\"\n";
  for (const ExitCodeText& row : kExitCodes) out << item(row.codes, row.meaning);
  out << ".El\n.Sh SEE ALSO\n.Xr mpirun 1\n";
  return out.str();
}

}  // namespace ashlar::manual
