#include "report/markup.h"

#include <cmath>

#include "core/text.h"
#include "report/axis.h"
#include "support/catch.h"

using namespace kvcal::report;

TEST_CASE("markup: what could end a tag, an attribute or a script is escaped") {
  CHECK(escaped("</script><img src=x onerror=\"a('b')\">&amp;") ==
        "&lt;/script&gt;&lt;img src=x onerror=&quot;a(&#39;b&#39;)&quot;&gt;&amp;amp;");
  const Markup markup = Markup().element("p", {{"title", "a\"b<c>"}}, "x<y");
  CHECK(markup.str() == "<p title=\"a&quot;b&lt;c&gt;\">x&lt;y</p>");
}

TEST_CASE("markup: control characters become visible, none is left") {
  std::string all;
  for (int c = 0; c < 0x20; ++c) all += static_cast<char>(c);
  all += '\x7f';
  const std::string out = escaped(all);
  CHECK(out.starts_with("\u2400\u2401"));
  CHECK(out.ends_with("\u241F\u2421"));
  for (const char c : out) CHECK((static_cast<unsigned char>(c) >= 0x20 || c == '\n'));
}

TEST_CASE("markup: what is no UTF-8, or turns the direction of writing, is replaced") {
  CHECK(escaped("Größe, 漢字, 😀") == "Größe, 漢字, 😀");
  CHECK(escaped("\xff") == "\uFFFD");
  CHECK(escaped("\xc0\xaf") == "\uFFFD\uFFFD");                          // overlong
  CHECK(escaped("\xed\xa0\x80") == "\uFFFD\uFFFD\uFFFD");                // a surrogate
  CHECK(escaped("a\xe2\x82") == "a\uFFFD\uFFFD");                        // cut off
  CHECK(escaped("\xf4\x90\x80\x80").find('\xf4') == std::string::npos);  // over U+10FFFF
  CHECK(escaped("x\u202Egnp") == "x\uFFFDgnp");
  CHECK(escaped("\u2066\u0085\uFFFE") == "\uFFFD\uFFFD\uFFFD");
}

TEST_CASE("markup: long text is cut between characters") {
  CHECK(escaped("ööööö", 3) == "ööö…");
  CHECK(escaped("öö", 2) == "öö");
  CHECK(escaped(std::string(100'000, 'n')).size() < 2100);
}

TEST_CASE("numbers: as people read them, whatever they are") {
  CHECK(number_text(0.024050313979387283) == "0.02405");
  CHECK(number_text(448.0) == "448");
  CHECK(number_text(std::nan("")) == "–");
  CHECK(share_text(0.0) == "0");
  CHECK(share_text(0.123456) == "12.3 %");
  CHECK(share_text(0.0012) == "0.12 %");
  CHECK(kvcal::byte_text(46080) == "46.1 kB");
  CHECK(kvcal::byte_text(17) == "17 B");
  CHECK(range_text({}) == "–");
  CHECK(range_text({0.5f, 0.25f}) == "0.25 – 0.5");
  CHECK(coordinate(12.04) == "12");
  CHECK(coordinate(-0.01) == "0");
}

TEST_CASE("axis: even in logarithms, closed at its ends, with few ticks") {
  const Axis axis(Spacing::kLog, 0.01, 100.0, 50, 450);
  CHECK(axis.at(0.01) == Approx(50));
  CHECK(axis.at(1.0) == Approx(250));
  CHECK(axis.at(1e9) == Approx(450));
  CHECK(axis.at(0.0) == Approx(50));
  CHECK(axis.ticks() == std::vector<double>{0.01, 0.1, 1.0, 10.0, 100.0});
  for (const double largest : {1.1, 3.0, 50.0, 1e4, 1e12, 1e30}) {
    const Axis wide(Spacing::kLog, 1.0, largest, 0, 100);
    CHECK(wide.ticks().size() <= 13);
    CHECK(!wide.ticks().empty());
  }
  const Axis point(Spacing::kLog, 3.0, 3.0, 0, 100);
  CHECK(std::isfinite(point.at(3.0)));
  const std::vector<double> narrow = Axis(Spacing::kLog, 14.6, 16.1, 0, 100).ticks();
  CHECK(narrow.size() >= 4);
  CHECK(narrow.size() <= 9);
  CHECK(narrow.back() == Approx(16.0));
  CHECK(Axis(Spacing::kLog, 1e-8, 1.0, 0, 100).ticks(4).size() == 5);
  CHECK(tick_text(1e-7) == "1e-7");
  CHECK(tick_text(0.001) == "0.001");
}
