# The files of configs/zoo as C++: cmake -DFILES=a.toml;b.toml -DOUT=texts.cpp -P embed.cmake
set(text "// Made from configs/zoo.\n#include \"launch/zoo/published.h\"\n\nnamespace ashlar::zoo {\nnamespace {\n\nconstexpr PublishedText kTexts[] = {\n")
foreach(file ${FILES})
  get_filename_component(id ${file} NAME_WLE)
  file(READ ${file} toml)
  string(APPEND text "    {\"${id}\", R\"toml(${toml})toml\"},\n")
endforeach()
string(APPEND text "};\n\n}  // namespace\n\nstd::span<const PublishedText> published_texts() { return kTexts; }\n\n}  // namespace ashlar::zoo\n")
file(WRITE ${OUT} "${text}")
