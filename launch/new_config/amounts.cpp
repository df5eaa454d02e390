#include "launch/new_config/amounts.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/base/strings.h"

namespace ashlar::new_config {

int64_t parse_amount(std::string_view option, std::string_view text) {
  constexpr std::string_view kUnits = "KMBT";
  double unit = 1;
  std::string_view digits = text;
  if (!text.empty()) {
    const char last =
        text.back() >= 'a' && text.back() <= 'z' ? static_cast<char>(text.back() - 'a' + 'A') : text.back();
    const size_t at = kUnits.find(last);
    if (at != std::string_view::npos) {
      unit = std::pow(1000.0, static_cast<double>(at) + 1);
      digits.remove_suffix(1);
    }
  }
  const std::optional<double> number = parse_number<double>(digits);
  const double amount = number.value_or(0) * unit;
  if (!number || !(amount >= 1 && amount <= 1e18))
    throw input_error("new", "option ", option, " = ", printable(text),
                      ": expected a positive number with K, M, B or T for thousands to trillions, e.g. 124M or 1.3B");
  return std::llround(amount);
}

std::string amount_text(double amount) {
  const char* unit = "";
  for (const char* larger : {"K", "M", "B", "T"}) {
    if (amount < 999.5) break;
    amount /= 1000;
    unit = larger;
  }
  return absl::StrFormat("%.3g%s", amount, unit);
}

std::string grouped(int64_t number) {
  std::string text = str_cat(number);
  for (size_t at = text.size(); at > 3;) {
    at -= 3;
    text.insert(at, ",");
  }
  return text;
}

int64_t round_down_to_three_digits(int64_t number) {
  int64_t unit = 1;
  while (number / unit >= 1000) unit *= 10;
  return number / unit * unit;
}

int64_t round_down_nicely(int64_t number) {
  int64_t power = 1;
  while (power <= number / 10) power *= 10;
  for (const int64_t factor : {5, 2})
    if (factor * power <= number) return factor * power;
  return std::max<int64_t>(power, 1);
}

}  // namespace ashlar::new_config
