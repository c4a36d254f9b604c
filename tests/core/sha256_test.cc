#include "core/hash.h"

#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;

// Source: FIPS 180-4 examples, NIST's "SHA-256 Example" values.
TEST_CASE("sha256: known answers") {
  CHECK(sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sha256_hex(std::string(1'000'000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("sha256: parts give what the whole gives, a file what its text gives") {
  const std::string text(1'000'000, 'a');
  Sha256 hash;
  for (size_t at = 0; at < text.size(); at += 12345)
    hash.update(std::string_view(text).substr(at, 12345));
  CHECK(hash.hex() == sha256_hex(text));

  const test::ScratchFolder scratch;
  test::write_file(scratch / "a", text);
  test::write_file(scratch / "empty", "");
  CHECK(sha256_of_file(scratch / "a") == sha256_hex(text));
  CHECK(sha256_of_file(scratch / "empty") == sha256_hex(""));
  CHECK_THROWS_AS(sha256_of_file(scratch / "none"), Error);
}
