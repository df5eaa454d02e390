# Writes the files of configs/zoo and configs/start as C++ string constants to OUT. Usage:
# cmake -DZOO=a.toml;b.toml -DSTART=... -DOUT=texts.cpp -P embed.cmake
set(text "// Made from configs/zoo and configs/start.\n#include \"launch/zoo/recipes.h\"\n\nnamespace ashlar::zoo {\n")
foreach(list ZOO START)
  string(APPEND text "namespace {\n\nconstexpr PublishedText k${list}[] = {\n")
  foreach(file ${${list}})
    get_filename_component(id ${file} NAME_WLE)
    file(READ ${file} toml)
    string(APPEND text "    {\"${id}\", R\"toml(${toml})toml\"},\n")
  endforeach()
  string(APPEND text "};\n\n}  // namespace\n\n")
endforeach()
string(APPEND text "std::span<const PublishedText> published_texts() { return kZOO; }\nstd::span<const PublishedText> recipe_texts() { return kSTART; }\n\n}  // namespace ashlar::zoo\n")
file(WRITE ${OUT} "${text}")
