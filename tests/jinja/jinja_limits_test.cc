#include <ctime>
#include <string>
#include <vector>

#include "core/interrupt.h"
#include "core/json.h"
#include "datasets/chat_template.h"
#include "support/catch.h"

using namespace kvcal;

namespace {

std::string repeated(const std::string& text, size_t count) {
  std::string result;
  for (size_t i = 0; i < count; ++i) result += text;
  return result;
}

std::string error_of(const std::string& source, TemplateLimits limits = {}) {
  try {
    ChatTemplate(source, limits).render(Json::object());
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

/// The template ends in an Error that says wanted, and does not take long.
void check_refused(const std::string& source, const std::string& wanted,
                   TemplateLimits limits = {}) {
  INFO("template: " << source.substr(0, 200));
  const std::clock_t start = std::clock();  // of this process: others may keep the machine busy
  const std::string error = error_of(source, limits);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  INFO("error: " << error);
  CHECK(error.find(wanted) != std::string::npos);
  CHECK(error.find("line ") != std::string::npos);
  CHECK(seconds < 10);
}

}  // namespace

TEST_CASE("jinja: a template that would run on is stopped at its steps") {
  const std::string loop = "{% for a in range(100000) %}", end = "{% endfor %}";
  check_refused(loop + loop + loop + "x" + end + end + end, "steps");
  check_refused(loop + loop + "{{ a * 2 ** 10 }}" + end + end, "steps");
  check_refused("{% set x = range(100000)|list %}{% for a in x %}{{ x == x|list }}{% endfor %}",
                "limit");
  check_refused("{% set x = range(100000)|list %}{% for a in x %}{{ x|sort|length }}{% endfor %}",
                "steps");
  check_refused(
      "{% set x = 'ab' * 1000000 %}{% for a in range(100000) %}{{ x.find('ba' * 9 ~ 'c') }}{% "
      "endfor %}",
      "steps");
  check_refused("{% for a in range(100000) %}{{ ('x' * 60000000)|length }}{% endfor %}", "limit");
}

TEST_CASE("jinja: work on long texts and lists is charged where it is done") {
  const std::string needle = "{% set b = 'a' * 100000 ~ 'b' %}{% set a = 'a' * 16000000 %}";
  const Json none = Json::object();
  // Linear in both, so that they end at once.
  for (const char* search : {"{{ b in a }}", "{{ a.find(b) != -1 }}", "{{ a.rfind(b) != -1 }}",
                             "{{ a.count(b) > 0 }}", "{{ a.split(b)|length > 1 }}",
                             "{{ a.rsplit(b)|length > 1 }}", "{{ a.partition(b)[1] == b }}",
                             "{{ a.rpartition(b)[1] == b }}", "{{ a.replace(b, '') != a }}"}) {
    CAPTURE(search);
    CHECK(ChatTemplate(needle + search).render(none) == "False");
  }
  CHECK(ChatTemplate(
            "{{ 'abab'.rfind('ab') }},{{ 'aXbXc'.rsplit('X', 1) }},{{ 'aabaab'.find('aab', 1) "
            "}},{{ 'é'.rfind('') }}")
            .render(none) == "2,['aXb', 'c'],3,1");
  const std::string loop = "{% for i in range(100000) %}", end = "{% endfor %}";
  const TemplateLimits few{.max_steps = 1'000'000};
  const std::string text = "{% set x = 'a' * 1000000 %}{% set y = x ~ '' %}" + loop;
  for (const char* work :
       {"{{ x.isalpha() }}", "{{ x.endswith(y) }}", "{{ x.startswith((y, y)) }}", "{{ x|length }}",
        "{{ x|int }}", "{{ x|float }}", "{{ x|wordcount }}", "{{ x is lower }}", "{{ x == y }}",
        "{{ x < y }}", "{{ x.removesuffix(y) }}", "{{ x[1] }}", "{{ x is eq y }}",
        "{% if x %}{{ x is in x }}{% endif %}"})
    check_refused(text + work + end, "steps", few);
  const std::string list = "{% set x = range(100000)|list %}{% set y = x|list %}" + loop;
  for (const char* work : {"{{ x == y }}", "{{ x < y }}", "{{ x is ne y }}", "{{ x.index(99999) }}",
                           "{{ x.count(1) }}", "{{ x.copy()|length }}", "{{ (x + y)|length }}"})
    check_refused(list + work + end, "limit", few);
}

TEST_CASE("jinja: work that long texts do not tell of is charged, too") {
  const std::string loop = "{% for i in range(100000) %}", end = "{% endfor %}";
  const TemplateLimits few{.max_steps = 1'000'000};
  // Paths of attributes: half a million parts for each of 100,000 items.
  const std::string items = "{% set p = '0.' * 500000 ~ '0' %}{{ (['a'] * 100000)|";
  for (const char* work :
       {"map(attribute=p)|list", "join('', attribute=p)", "groupby(p, default=[])",
        "sort(attribute=p)", "max(attribute=p)", "unique(attribute=p)|list", "selectattr(p)|list"})
    check_refused(items + work + "|length }}", "limit");
  check_refused(items + "sum(attribute=p) }}", "unsupported operand");
  check_refused(loop + loop + "{% set x = strftime_now('%c' * 500) %}" + end + end, "steps", few);
  check_refused(loop + loop + "{% set x = 1e300|round(300) %}" + end + end, "steps", few);
  // Results so short that their bytes do not tell what they cost.
  check_refused("{{ ([1.7e308] * 30000)|map('round')|sum }}", "steps", few);
  check_refused("{{ ('{0}' * 1100000).format('') }}", "steps", few);
  check_refused("{{ '%%' * 1100000 % () }}", "steps", few);
  check_refused("{{ '%g' * 220000 % ((5e-324,) * 220000) }}", "steps", few);
  // Each find starts a search of its own.
  for (const char* work : {"x.replace('a', '')", "x.count('a')", "x.split('a')"})
    check_refused("{% set x = 'a' * 1000000 %}{{ " + std::string(work) + "|string|length }}",
                  "steps", few);
  // Keywords that differ at their ends.
  const std::string name(20'000, 'a');
  const std::string calls =
      "{% set ns = namespace(l=[]) %}{% for i in range(10, 100) %}{% set ns.l = ns.l + [('" + name +
      "' ~ i, '')] %}{% endfor %}{% set d = dict(ns.l) %}{% for i in range(100) %}";
  const std::vector<std::string> spread{"m(**d)", "'{" + name + "98}{" + name + "99}'.format(**d)"};
  for (const std::string& call : spread)
    check_refused("{% macro m(" + name + "zz=1) %}{{ kwargs|length }}{% endmacro %}" + calls +
                      "{{ " + call + " }}" + end,
                  "steps", few);
  // A tuple that holds itself many times over.
  check_refused(
      "{% set n = namespace(t=()) %}{% for i in range(64) %}{% set n.t = (n.t, n.t) %}"
      "{% endfor %}{{ {}[n.t] }}",
      "steps");
  // Keys that would share one bucket of a hash table.
  CHECK(ChatTemplate("{{ range(0, 90000 * 126271, 126271)|unique|list|length }}")
            .render(Json::object()) == "90000");
}

TEST_CASE("jinja: memory is charged before it is taken") {
  for (const char* taken :
       {"{{ ('a\n' * 15000000).splitlines()|length }}", "{{ ('a ' * 15000000).split()|length }}",
        "{{ ('a ' * 15000000).rsplit(' ')|length }}", "{{ ('ab' * 15000000)[::2]|length }}",
        "{{ ('\x01' * 30000000)|tojson|length }}", "{{ ['\x01' * 30000000] }}",
        "{{ 'a' * 30000000 ~ ('b' * 30000000|string) }}", "{{ ('\'' * 30000000) + ('a'|safe) }}"}) {
    CAPTURE(taken);
    const std::string error = error_of("{% set x = {} %}" + std::string(taken) + "{{ 1/0 }}");
    CHECK_FALSE(error.empty());
    CHECK(error.find("division") == std::string::npos);
  }
  // Messages.
  for (const char* raised : {"raise_exception('x' * 30000000)", "('1' * 30000000)|int",
                             "x['y' * 30000000].z", "'z'|attr('y' * 30000000) + 1"}) {
    CAPTURE(raised);
    const std::string error = error_of("{% set x = {} %}{{ " + std::string(raised) + " }}");
    CHECK(error.size() < 5000);
    CHECK_FALSE(error.empty());
  }
  // Captured texts that are not kept yet.
  check_refused(repeated("{% set a %}{{ 'x' * 30000000 }}", 12) + repeated("{% endset %}", 12),
                "bytes of memory");
}

TEST_CASE("jinja: long conversations stay within the limits") {
  const auto conversation = [](size_t messages, size_t bytes) {
    Json list = Json::array();
    for (size_t i = 0; i < messages; ++i)
      list.push_back({{"role", "user"}, {"content", std::string(bytes, 'x')}});
    return Json{{"messages", list}};
  };
  // What was said so far is copied twice for each message, and all copies are kept.
  const ChatTemplate accumulates(
      "{% set ns = namespace(x='') %}{% for m in messages %}{% set ns.x = ns.x ~ m.role ~ ': ' %}"
      "{% set ns.x = ns.x ~ m.content ~ '\n' %}{% endfor %}{{ ns.x }}");
  CHECK(accumulates.render(conversation(100, 10'000)).size() == size_t{100} * 10'007);
  const ChatTemplate captures(
      "{% set ns = namespace(x='') %}{% for m in messages %}{% set x %}{{ ns.x }}{{ m.role }}: {% "
      "endset %}{% set ns.x %}{{ x }}{{ m.content }}\n{% endset %}{% endfor %}{{ ns.x }}");
  CHECK(captures.render(conversation(100, 10'000)).size() == size_t{100} * 10'007);
  // What templates of thinking models do with each message, in half of the steps for 8 MiB.
  constexpr size_t kLong = size_t{8} << 20;
  const ChatTemplate thinks(
      "{% for m in messages %}{% if m.content is string and not "
      "(m.content.startswith('<tool_response>') and m.content.endswith('</tool_response>')) %}"
      "{% set content = m.content %}{% if '</think>' in content %}"
      "{% set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}"
      "{{ '<|' ~ m.role ~ '|>' + content.strip() | trim + '\n' }}{% endif %}{% endfor %}",
      {.max_steps = 5'000'000});
  CHECK(thinks.render(conversation(1, kLong)).size() == kLong + 9);
  CHECK(thinks.render({{"messages",
                        {{{"role", "user"},
                          {"content", "<think>" + std::string(kLong, 'x') + "</think>\nyes"}}}}}) ==
        "<|user|>yes\n");
  // A look at the type reads no byte.
  const ChatTemplate looks(
      "{% for i in range(10000) %}{% if messages[0].content is string %}{% endif %}{% endfor %}");
  CHECK(looks.render(conversation(1, kLong)).empty());
}

TEST_CASE("jinja: a rendering ends when the user asks for it") {
  const ChatTemplate long_one(
      "{{ strftime_now('%Y') }}{% for a in range(3000) %}{% for b in range(3000) %}{% endfor %}{% "
      "endfor %}");
  const TemplateClock interrupted = [] {
    request_interrupt();
    return std::tm{};
  };
  CHECK_THROWS_AS(long_one.render(Json::object(), interrupted), Interrupted);
  clear_interrupt();
}

TEST_CASE("jinja: texts, lists and output are bounded before they are built") {
  check_refused("{{ 'x' * 9223372036854775807 }}", "longer than the limit");
  check_refused("{{ 'ab' * 9223372036854775807 }}", "longer than the limit");
  check_refused("{{ [1] * 9223372036854775807 }}", "steps");
  check_refused("{{ [1, 2, 3] * 9223372036854775807 }}", "steps");
  check_refused("{{ [1] * 9999000 }}", "bytes of memory");
  check_refused("{{ [1]|batch(9999000, 0)|list }}", "bytes of memory");
  check_refused("{{ (\"'\" * 8000000)|e }}", "longer than the limit");
  CHECK(
      ChatTemplate("{{ [1, 2]|batch(-9223372036854775807 - 1, 0)|list }}").render(Json::object()) ==
      "[[1, 2]]");
  check_refused("{{ 'x'.center(9223372036854775807) }}", "longer than the limit");
  check_refused("{{ 'x'|center(9223372036854775807) }}", "longer than the limit");
  check_refused("{{ 'x'|indent(9223372036854775807) }}", "longer than the limit");
  check_refused("{{ [1]|tojson(indent=9223372036854775807) }}", "longer than the limit");
  check_refused("{{ ('a' * 60000)|replace('a', 'b' * 60000) }}", "longer than the limit");
  check_refused("{{ ('a' * 60000).replace('', 'b' * 60000) }}", "longer than the limit");
  check_refused("{{ (['a'] * 60000)|join('b' * 60000) }}", "longer than the limit");
  check_refused("{{ '%99999999d' % 1 }}", "width");
  check_refused("{{ '{:99999999}'.format(1) }}", "places");
  check_refused("{{ '%.99999999f' % 1 }}", "width");
  check_refused("{{ [1]|batch(9223372036854775807, 0)|list }}", "steps");
  check_refused("{{ [1]|slice(9223372036854775807)|list }}", "limit");
  check_refused("{% for a in range(100000) %}{{ 'x' * 10000 }}{% endfor %}", "limit");
  check_refused(
      "{% set ns = namespace(x='ab') %}{% for a in range(100) %}{% set ns.x = ns.x ~ ns.x %}{% "
      "endfor %}",
      "limit");
  check_refused(
      "{% set ns = namespace(x=[1]) %}{% for a in range(100) %}{% set ns.x = ns.x + ns.x %}{% "
      "endfor %}",
      "limit");
  check_refused(
      "{% set ns = namespace(x=[1]) %}{% for a in range(30) %}{% set ns.x = [ns.x, ns.x] %}{% "
      "endfor %}{{ ns.x }}",
      "limit");
  check_refused("{% for a in range(100000) %}{% set x %}{{ 'x' * 10000 }}{% endset %}{% endfor %}",
                "limit");
  check_refused("{{ strftime_now('%c' * 4000) }}", "1000 bytes");
  check_refused("{{ range(100001)|list }}", "Range too big");
  check_refused("{{ 2 ** 64 }}", "64 signed bits");
  check_refused("{{ 9223372036854775807 + 1 }}", "64 signed bits");
  check_refused("{{ -9223372036854775807 - 2 }}", "64 signed bits");
  check_refused("{{ 9223372036854775807 * 2 }}", "64 signed bits");
  check_refused("{{ (-9223372036854775807 - 1) // -1 }}", "64 signed bits");
  check_refused("{{ -(-9223372036854775807 - 1) }}", "64 signed bits");
  check_refused("{{ (-9223372036854775807 - 1)|abs }}", "64 signed bits");
  check_refused("{{ range(9223372036854775807)[::9223372036854775807] }}", "Range too big");
}

TEST_CASE("jinja: nesting and recursion are bounded") {
  check_refused("{{ " + repeated("(", 100000) + "1" + repeated(")", 100000) + " }}",
                "nested deeper");
  check_refused("{{ " + repeated("[", 100000), "nested deeper");
  check_refused("{{ " + repeated("not ", 100000) + "1 }}", "nested deeper");
  check_refused("{{ " + repeated("-", 100000) + "1 }}", "nested deeper");
  check_refused("{{ " + repeated("1 if 1 else ", 50000) + "1 }}", "nested deeper");
  check_refused("{{ 1" + repeated("+1", 100000) + " }}", "more than 200 levels");
  check_refused("{{ 1" + repeated("|abs", 100000) + " }}", "more than 200 levels");
  check_refused("{{ x" + repeated(".x", 100000) + " }}", "more than 200 levels");
  check_refused("{{ x" + repeated("()", 100000) + " }}", "more than 200 levels");
  check_refused("{{ x" + repeated("[1]", 100000) + " }}", "more than 200 levels");
  check_refused(repeated("{% if 1 %}", 50000), "nested deeper");
  check_refused(repeated("{% for a in b %}", 50000), "nested deeper");
  check_refused("{% set " + repeated("(", 100000), "nested deeper");
  check_refused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recurses");
  check_refused("{% macro f(x) %}{{ f(x ~ 'x') }}{% endmacro %}{{ f('') }}", "recurses");
  check_refused("{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}",
                "recurses");
  check_refused("{% macro f() %}{% for i in [1] if f() %}{% endfor %}{% endmacro %}{{ f() }}",
                "recurses");
  check_refused("{% macro f(x=f()) %}{% endmacro %}{{ f() }}", "recurses");
  // Values that nest without the template nesting: printed, compared, hashed, walked, as JSON.
  const std::string nest =
      "{% set ns = namespace(x=[], y=[]) %}{% for a in range(5000) %}{% set ns.x = [ns.x] %}{% set "
      "ns.y = [ns.y] %}{% endfor %}";
  check_refused(nest + "{{ ns.x }}", "recurses");
  check_refused(nest + "{{ ns.x|tojson }}", "recurses");
  check_refused(nest + "{{ ns.x == ns.y }}", "recurses");
  check_refused(nest + "{{ ns.x < ns.y }}", "recurses");
  check_refused(
      "{% set ns = namespace(x=()) %}{% for a in range(5000) %}{% set ns.x = (ns.x,) %}{% endfor "
      "%}{{ {ns.x: 1} }}",
      "recurses");
  check_refused(
      "{% set ns = namespace(x=[1]) %}{% for a in range(5000) %}{% set ns.x = ns.x|map('string') "
      "%}{% endfor %}{{ ns.x|list }}",
      "recurses");
  check_refused("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", "recurses");
}

TEST_CASE("jinja: a template of ordinary depth is not in the way of the bounds") {
  const Json none = Json::object();
  CHECK(ChatTemplate("{{ " + repeated("(", 80) + "1" + repeated(")", 80) + " }}").render(none) ==
        "1");
  CHECK(ChatTemplate("{{ 1" + repeated("+1", 150) + " }}").render(none) == "151");
  CHECK(ChatTemplate("{% macro f(n) %}{% if n > 0 %}{{ n % 10 }}{{ f(n - 1) }}{% endif %}{% "
                     "endmacro %}{{ f(60) }}")
            .render(none)
            .size() == 60);
  CHECK(
      ChatTemplate(repeated("{% if 1 %}", 150) + "x" + repeated("{% endif %}", 150)).render(none) ==
      "x");
  CHECK(ChatTemplate(repeated("{% if 0 %}{% elif 0 %}", 1) + repeated("{% elif 0 %}", 5000) +
                     "{% else %}x{% endif %}")
            .render(none) == "x");
}

TEST_CASE("jinja: a template made to be slow to analyse is refused") {
  std::string names;
  for (int i = 0; i < 20000; ++i) names += "{% if a" + std::to_string(i) + " %}{% endif %}";
  check_refused(names + "{% nope %}", "unknown tag");
  std::string parameters, arguments;
  for (int i = 0; i < 100000; ++i) parameters += "a" + std::to_string(i) + ",";
  for (int i = 0; i < 80000; ++i) arguments += "a" + std::to_string(i) + "=1,";
  check_refused("{% macro m(" + parameters + "a0) %}", "appears twice");
  check_refused("{{ m(" + arguments + "a0=1) }}", "appears twice");
  check_refused("{{ x|a" + repeated(".a", 500000) + " }}", "no filter named");
  check_refused("{% print " + repeated("a,", 500000) + "a %}", "more than 250000");
  check_refused("{{ [" + repeated("1,", 500000) + "] }}", "more than 250000");
  // Names and scopes alone take no longer than they are long.
  CHECK(error_of(names) == "");
  for (const std::string part : {"for a in b", "macro a()"})
    CHECK(error_of(repeated("{% " + part + " %}", 190) + repeated("{{a}}", 100'000) +
                   repeated("{% end" + part.substr(0, part.find(' ')) + " %}", 190)) == "");
  // Each of many variables is looked for among all.
  std::string many;
  for (int i = 0; i < 50000; ++i) many += "{% set a" + std::to_string(i) + " = 1 %}";
  check_refused(many, "steps");
}

TEST_CASE("jinja: templates too large or not UTF-8 are refused") {
  CHECK(error_of(repeated("x", 100), {.max_template_bytes = 99}) ==
        "chat template: 100 bytes, the limit is 99");
  CHECK(error_of("a\xff b") == "chat template: not valid UTF-8");
  CHECK(error_of("{{ '\xc3\x28' }}") == "chat template: not valid UTF-8");
  CHECK(error_of("\xed\xa0\x80") == "chat template: not valid UTF-8");
}

TEST_CASE("jinja: an error names the line and what is wrong there") {
  CHECK(error_of("a\n\n{{ 1 +\n 'x' }}") ==
        "chat template: line 4: unsupported operand type(s) for +: 'int' and 'str'");
  CHECK(error_of("a\n{% for x in %}") ==
        "chat template: line 2: found '%}', expected an expression");
  CHECK(error_of("\n\n{% nope %}") == "chat template: line 3: unknown tag 'nope'");
  CHECK(error_of("\n{% include 'x' %}") ==
        "chat template: line 2: 'include' is not supported in chat templates");
  CHECK(error_of("\n{% for a in b recursive %}") ==
        "chat template: line 2: recursive loops are not supported in chat templates");
  CHECK(error_of("{% macro m() %}\n{{ raise_exception('no') }}{% endmacro %}\n\n{{ m() }}") ==
        "chat template: line 2: the template refuses its input: no");
  CHECK(error_of("{{ messages[0].role }}") == "chat template: line 1: 'messages' is undefined");
  CHECK(error_of("\n{{ 'a'|nope }}") == "chat template: line 2: no filter named 'nope'");
  CHECK(error_of("\n{{ 'a'|pprint }}") ==
        "chat template: line 2: filter 'pprint' is not supported in chat templates");
  CHECK(error_of("\n{{ 'a'.swapcase() }}") ==
        "chat template: line 2: str.swapcase is not supported in chat templates");
  CHECK(error_of("\n{{ 'unclosed }}") == "chat template: line 2: a string literal is not closed");
}
