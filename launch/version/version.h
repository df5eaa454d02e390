#pragma once

#include <string>
#include <string_view>

namespace ashlar::launch {

/// Version of this program, e.g. 0.1.0.
std::string_view version();
/// Commit of the source, with "+changes" if files under version control differ; "unknown" if the build had no git.
std::string_view commit();
/// Date of that commit, e.g. "November 27, 2026"; empty if the build had no git.
std::string_view commit_date();
/// Compilers of this program with their versions.
std::string_view compilers();
/// What `ashlar --version` prints.
std::string version_text();

}  // namespace ashlar::launch
