// Encodes documents and writes their ids, for reference/compare_tokenizer.py.
//   tokenizer_dump FOLDER [--special] [--decode] [--repeat N] < documents > ids
// A document on stdin is its size in bytes as a decimal line, then that many bytes. On stdout there
// is one line a document: ids with spaces between; with --decode, a tab and the text that they
// decode to, as JSON. stderr gets one line: bytes and seconds spent in
// encode.
#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "tokenizers/tokenizer.h"

namespace {

std::vector<std::string> read_documents() {
  std::vector<std::string> documents;
  for (std::string line; std::getline(std::cin, line);) {
    std::string document(std::stoull(line), '\0');
    if (!std::cin.read(document.data(), static_cast<std::streamsize>(document.size())))
      kvcal::fail("a document of ", document.size(), " bytes is cut off");
    documents.push_back(std::move(document));
  }
  return documents;
}

void print(const std::vector<kvcal::TokenId>& ids, const kvcal::Tokenizer* decoder) {
  std::string line;
  for (const kvcal::TokenId id : ids) line += std::to_string(id) + " ";
  if (!line.empty()) line.pop_back();
  if (decoder) line += "\t" + kvcal::Json(decoder->decode(ids, false)).dump();
  std::puts(line.c_str());
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.empty())
    kvcal::fail("usage: tokenizer_dump FOLDER [--special] [--decode] [--repeat N]");
  bool special = false, decodes = false;
  int repeat = 1;
  for (size_t i = 1; i < arguments.size(); ++i) {
    if (arguments[i] == "--special")
      special = true;
    else if (arguments[i] == "--decode")
      decodes = true;
    else if (arguments[i] == "--repeat" && i + 1 < arguments.size())
      repeat = std::stoi(arguments[++i]);
    else
      kvcal::fail("unknown argument '", arguments[i], "'");
  }
  const auto tokenizer = kvcal::make_tokenizer(arguments[0]);
  const std::vector<std::string> documents = read_documents();
  std::vector<std::vector<kvcal::TokenId>> ids(documents.size());
  size_t bytes = 0;
  const auto start = std::chrono::steady_clock::now();
  for (int round = 0; round < repeat; ++round) {
    for (size_t i = 0; i < documents.size(); ++i) {
      ids[i] = tokenizer->encode(documents[i], special);
      bytes += documents[i].size();
    }
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  for (const auto& one : ids) print(one, decodes ? tokenizer.get() : nullptr);
  std::fprintf(stderr, "%zu %.6f\n", bytes, seconds.count());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
