# Files as string constants of C++, at build time:
#   cmake -DOUTPUT=<file.cc> -DHEADER=<its declarations> -DNAMESPACE=<a::b> -DFILES=<x.css|y.js> -P embed_text.cmake
# report.css becomes kReportCss.
set(text "#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\n\n")
string(REPLACE "|" ";" files "${FILES}")
foreach(file ${files})
  get_filename_component(words ${file} NAME)
  string(REGEX REPLACE "[._]" ";" words ${words})
  set(name k)
  foreach(word ${words})
    string(SUBSTRING ${word} 0 1 first)
    string(SUBSTRING ${word} 1 -1 rest)
    string(TOUPPER ${first} first)
    string(APPEND name ${first}${rest})
  endforeach()
  file(READ ${file} content)
  string(APPEND text "extern const std::string_view ${name} = R\"kvcal_text(${content})kvcal_text\";\n\n")
endforeach()
file(WRITE ${OUTPUT} "${text}}  // namespace ${NAMESPACE}\n")
