#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ashlar::new_config {

/// Returns the number that a text such as "124M", "1.3B", "20T" or "7000000" means: K, M, B, T are thousands to
/// trillions. Throws an input error that names `option` if it is not such a number, or not from 1 to 1e18.
int64_t parse_amount(std::string_view option, std::string_view text);

/// "124M", "1.24B", "2.48T", "800": three digits.
std::string amount_text(double amount);
/// "124,439,808".
std::string grouped(int64_t number);

/// Rounds down to three digits, so that amount_text writes exactly this number.
int64_t round_down_to_three_digits(int64_t number);

/// The largest of 1, 2, 5, 10, 20, ... that is at most `number` (at least 1).
int64_t round_down_nicely(int64_t number);

}  // namespace ashlar::new_config
