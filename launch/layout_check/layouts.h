#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ashlar::layout_check {

/// A layout to check: keys of section [mesh] with their values, e.g. {"tensor", "2"}. Other keys have their defaults.
struct Layout {
  std::vector<std::pair<std::string, std::string>> keys;

  std::string text() const;                    ///< "tensor=2,pipeline=2"; "one rank" without keys
  std::vector<std::string> overrides() const;  ///< mesh.KEY=VALUE for each key; mesh.data is always among them
  int64_t ranks() const;                       ///< tensor * pipeline * data, where data is at least expert
  int64_t size(const std::string& key) const;  ///< of an axis; 1 if it is not named
};

/// Parses "tensor=2,pipeline=2,schedule=zb-h1". Input error for a word that is not KEY=VALUE, a key given twice, and an
/// axis that is no whole number from 1. Whether the keys exist and fit the model is found when the configuration is
/// resolved.
Layout parse_layout(const std::string& text);

/// All layouts of `ranks` ranks by sizes of their axes, with and without sequence parallelism, legal or not.
/// `experts`: whether the model has experts to divide.
std::vector<Layout> layouts_of(int64_t ranks, bool experts);

/// Layouts that have one axis of `layout` each, to find the axis with an error: tensor (then with sequence
/// parallelism), pipeline with its schedule, data, expert. Empty if the layout itself has one axis.
std::vector<Layout> single_axes_of(const Layout& layout);

}  // namespace ashlar::layout_check
