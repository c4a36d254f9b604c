#include "checkpoint/npz.h"

#include <string>

#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using test::contains;
using test::message_of;

namespace {

std::string npy(const std::string& header, const std::string& data, char major = 1) {
  std::string file = std::string("\x93NUMPY") + major + '\0';
  const size_t length_bytes = major == 1 ? 2 : 4;
  for (size_t i = 0; i < length_bytes; ++i)
    file += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return file + header + data;
}

TensorView parse(const std::string& file) {
  return parse_npy("x", std::as_bytes(std::span(file)));
}

const std::string kOne(4, '\1');

}  // namespace

TEST_CASE("npy: every version and every way to write the header's dictionary is read") {
  for (const char major : {'\1', '\2', '\3'})
    for (const char* header :
         {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }     \n",
          "{'shape':(2,3),'descr':\"<f4\",'fortran_order':False}",
          " { 'fortran_order' : False , 'shape' : ( 2 , 3 , ) , 'descr' : '<f4' } "}) {
      INFO(int{major} << " " << header);
      const std::string file = npy(header, std::string(24, 'x'), major);
      const TensorView view = parse(file);
      CHECK(view.name == "x");
      CHECK(view.dtype == DType::kF32);
      CHECK(view.shape == Shape{2, 3});
      CHECK(view.bytes.size() == 24);
    }
}

TEST_CASE("npy: Fortran order is read where it is no other order") {
  for (const char* shape : {"()", "(1,)", "(1, 1)"})
    CHECK(parse(npy("{'descr': '<f4', 'fortran_order': True, 'shape': " + std::string(shape) + "}",
                    kOne))
              .bytes.size() == 4);
  CHECK(message_of([] {
          parse(npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2)}",
                    std::string(16, 'x')));
        }) == "shape [2, 2] is in Fortran order, expected C order");
}

TEST_CASE("npy: bad arrays are refused with what was found") {
  struct Bad {
    const char* what;
    std::string file;
    const char* message;
  };
  const auto one = [](const std::string& fields) { return npy(fields, kOne); };
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }";
  for (const Bad& bad : {
           Bad{"empty", "", "does not begin as a .npy array"},
           {"magic", "\x93NUMPX\1\0", "does not begin as a .npy array"},
           {"no version", "\x93NUMPY\1", "cut short in its version"},
           {"version", npy(good, kOne, '\4'), ".npy version 4.0, expected 1.0, 2.0 or 3.0"},
           {"no length", "\x93NUMPY\1" + std::string(2, '\0'), "cut short in its header's length"},
           {"long header", npy(std::string(10001, ' '), ""), "header of 10001 bytes, the limit is"},
           {"cut header", npy(good, "").substr(0, 40), "does not fit the 30 bytes that are left"},
           {"no dictionary", one("[]"), "header, byte 0 of 2: expected '{'"},
           {"open dictionary", one("{'descr': '<f4'"), "byte 15 of 15: expected '}'"},
           {"open text", one("{'descr"), "byte 2 of 7: expected a text that ends"},
           {"list of fields", one("{'descr': [('a', '<f4')]}"),
            "byte 10 of 25: expected a text in"},
           {"missing key", one("{'descr': '<f4', 'shape': (1,)}"), "not all of the keys"},
           {"key twice", one("{'descr': '<f4', 'descr': '<f4'}"), "has the key 'descr' twice"},
           {"unknown key", one("{'order': 'C'}"), "has an unknown key 'order'"},
           {"no boolean", one("{'fortran_order': 0}"), "expected True or False"},
           {"dimension", one("{'shape': (x,)}"), "byte 11 of 15: expected a dimension"},
           {"negative", one("{'shape': (-1,)}"), "byte 11 of 16: expected a dimension"},
           {"no number", one("{'shape': (99999999999999999999,)}"), "expected a dimension"},
           {"no comma", one("{'shape': (1 2)}"), "byte 13 of 16: expected ')'"},
           {"after", one(good + " x"), "expected its end"},
           {"dtype", one("{'descr': '|O'}"), "dtype is '|O', expected '<f2', '<f4' or '<f8'"},
           {"big",
            one("{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296)}"),
            "overflow"},
           {"short data", npy(good, "abc"), "shape [1] of F32 needs 4 bytes, the array has 3"},
           {"long data", npy(good, "abcde"), "shape [1] of F32 needs 4 bytes, the array has 5"},
       }) {
    INFO(bad.what);
    const std::string message = message_of([&] { parse(bad.file); });
    INFO(message);
    CHECK(contains(message, bad.message));
  }
  std::string dimensions = "{'shape': (";
  for (int i = 0; i < 65; ++i) dimensions += "1,";
  CHECK(contains(message_of([&] { parse(one(dimensions + ")}")); }), "over 64 dimensions"));
}
