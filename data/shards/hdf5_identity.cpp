#include "data/shards/hdf5_identity.h"

#include <array>

#include "core/base/strings.h"

namespace ashlar::data {
namespace {

constexpr const char* kPart = "ashlar.part";
constexpr const char* kIndex = "ashlar.index";
constexpr const char* kDigest = "ashlar.token_digest";

Hdf5Handle text_type(size_t bytes) {
  Hdf5Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  if (type.valid() && (H5Tset_size(type.get(), bytes) < 0 || H5Tset_strpad(type.get(), H5T_STR_NULLPAD) < 0)) return {};
  return type;
}

struct Types {
  hid_t stored, given;
};

bool write_attribute(const Hdf5Handle& file, const char* name, const Types& types, const void* value) {
  const Hdf5Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  if (!space.valid()) return false;
  Hdf5Handle attribute(H5Acreate2(file.get(), name, types.stored, space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  return attribute.valid() && H5Awrite(attribute.get(), types.given, value) >= 0 && attribute.close();
}

bool write_text(const Hdf5Handle& file, const char* name, const std::string& value) {
  const Hdf5Handle type = text_type(value.size());
  return type.valid() && write_attribute(file, name, {type.get(), type.get()}, value.data());
}

/// Opens an attribute that has exactly one value. The handle is invalid if there is no such attribute.
Hdf5Handle open_attribute(const Hdf5Handle& file, const char* name) {
  if (H5Aexists(file.get(), name) <= 0) return {};
  Hdf5Handle attribute(H5Aopen(file.get(), name, H5P_DEFAULT), H5Aclose);
  if (!attribute.valid()) return {};
  const Hdf5Handle space(H5Aget_space(attribute.get()), H5Sclose);
  if (!space.valid() || H5Sget_simple_extent_npoints(space.get()) != 1) return {};
  return attribute;
}

std::optional<std::string> read_text(const Hdf5Handle& file, const char* name) {
  const Hdf5Handle attribute = open_attribute(file, name);
  if (!attribute.valid()) return std::nullopt;
  const Hdf5Handle stored(H5Aget_type(attribute.get()), H5Tclose);
  if (!stored.valid() || H5Tget_class(stored.get()) != H5T_STRING || H5Tis_variable_str(stored.get()) != 0)
    return std::nullopt;
  std::array<char, 64> value{};
  const Hdf5Handle type = text_type(value.size());
  if (!type.valid() || H5Aread(attribute.get(), type.get(), value.data()) < 0) return std::nullopt;
  return std::string(value.data(), value.back() == '\0' ? std::char_traits<char>::length(value.data()) : value.size());
}

std::optional<int64_t> read_number(const Hdf5Handle& file, const char* name) {
  const Hdf5Handle attribute = open_attribute(file, name);
  if (!attribute.valid()) return std::nullopt;
  const Hdf5Handle stored(H5Aget_type(attribute.get()), H5Tclose);
  int64_t value = 0;
  if (!stored.valid() || H5Tget_class(stored.get()) != H5T_INTEGER ||
      H5Aread(attribute.get(), H5T_NATIVE_INT64, &value) < 0)
    return std::nullopt;
  return value;
}

}  // namespace

std::string ShardIdentity::text() const { return str_cat(part, " shard ", index, " with token digest ", digest.hex()); }

bool write_identity(const Hdf5Handle& file, const ShardIdentity& identity) {
  return write_text(file, kPart, identity.part) &&
         write_attribute(file, kIndex, {H5T_STD_I64LE, H5T_NATIVE_INT64}, &identity.index) &&
         write_text(file, kDigest, identity.digest.hex());
}

std::optional<ShardIdentity> read_identity(const Hdf5Handle& file) {
  const auto part = read_text(file, kPart), digest = read_text(file, kDigest);
  const auto index = read_number(file, kIndex);
  const auto value = digest ? digest_from_hex(*digest) : std::nullopt;
  if (!part || !index || !value) return std::nullopt;
  return ShardIdentity{*part, *index, *value};
}

}  // namespace ashlar::data
