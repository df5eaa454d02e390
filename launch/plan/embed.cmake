# Writes the files of configs/devices as C++ string constants to OUT. Usage:
# cmake -DDEVICES=a.toml;b.toml -DOUT=texts.cpp -P embed.cmake
set(text "// Made from configs/devices.\n#include \"launch/plan/device.h\"\n\nnamespace ashlar::plan {\nnamespace {\n\n")
string(APPEND text "constexpr DeviceText kDEVICES[] = {\n")
foreach(file ${DEVICES})
  get_filename_component(name ${file} NAME_WLE)
  file(READ ${file} toml)
  string(APPEND text "    {\"${name}\", R\"toml(${toml})toml\"},\n")
endforeach()
string(APPEND text "};\n\n}  // namespace\n\nstd::span<const DeviceText> device_texts() { return kDEVICES; }\n\n}  // namespace ashlar::plan\n")
file(WRITE ${OUT} "${text}")
