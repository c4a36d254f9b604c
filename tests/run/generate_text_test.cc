#include "run/calibration_result.h"
#include "run/model_session.h"

#include "core/interrupt.h"
#include "run/support/text_checkpoint.h"
#include "support/catch.h"

using namespace kvcal;
using kvcal::test::message_of;
using kvcal::test::TextCheckpoint;

namespace {

/// Texts as they were written.
struct KeptTexts : TextSink {
  void begin(const CacheType& cache) override { texts.emplace_back(name_of(cache), ""); }
  void add(const std::string& piece) override { texts.back().second += piece; }
  void end() override { ++ended; }

  LabelledLines texts;
  size_t ended = 0;
};

TextRequest request_of(const TextCheckpoint& files) {
  TextRequest request{.model = files.path(), .prompt = "The sea was calm"};
  request.generate.max_new_tokens = 12;
  request.device = test::reference_device();
  return request;
}

}  // namespace

TEST_CASE("generate text: the pieces make the text") {
  const TextCheckpoint files;
  KeptTexts sink;
  SilentDiagnostics silent;
  const TextRequest request = request_of(files);
  const GeneratedText text = generate_text(request, sink, silent);
  REQUIRE(sink.texts.size() == 1);
  CHECK(sink.ended == 1);
  CHECK(sink.texts[0] == std::pair<std::string, std::string>("float16", text.text));
  CHECK(text.generation.ids.size() <= 12);
  const Json json = generation_json(request, text);
  CHECK(json.at("text") == text.text);
  CHECK(json.at("prompt_ids").size() == text.prompt_ids.size());
}

TEST_CASE("generate text: a comparison writes one text after the other") {
  const TextCheckpoint files;
  KeptTexts sink;
  SilentDiagnostics silent;
  TextRequest request = request_of(files);
  request.cache.unit_scales = true;
  const ComparedTexts texts = compare_texts(request, sink, silent);
  REQUIRE(sink.texts.size() == 2);
  CHECK(sink.ended == 2);
  CHECK(sink.texts[0] == std::pair<std::string, std::string>("float16", texts.unquantized.text));
  CHECK(sink.texts[1] == std::pair<std::string, std::string>("fp8_e4m3", texts.other.text));
  CHECK(texts.kl.size() == texts.unquantized.generation.ids.size());
  const Json json = generation_json(request, texts);
  CHECK(json.at("fp8_e4m3").at("text") == texts.other.text);
  CHECK(json.at("first_divergence").is_null() == !texts.first_divergence.has_value());
}

TEST_CASE("generate text: a request that contradicts itself is refused") {
  const TextCheckpoint files;
  KeptTexts sink;
  SilentDiagnostics silent;
  TextRequest request = request_of(files);
  request.system = "Be brief.";
  CHECK(message_of([&] { generate_text(request, sink, silent); }) == "--system needs --chat");
  request.is_chat = true;
  request.cache.kv_cache_dtype = "float16";
  CHECK(message_of([&] { compare_texts(request, sink, silent); }) ==
        "--kv-cache-dtype float16 is what --compare compares with; name another dtype");
  CHECK(sink.texts.empty());
}

TEST_CASE("generate text: a comparison names where the texts part, and the largest KLs") {
  const GeneratedText none{
      .cache = parse_cache_type("fp8_e4m3"), .prompt_ids = {}, .generation = {}, .text = {}};
  ComparedTexts texts{.unquantized = none, .other = none};
  CHECK(comparison_text(texts) == "the texts are equal\n");
  texts.kl = {0.001, 0.25, 0.0, 0.125};
  texts.pieces = {"The", " moon", " is", "."};
  const std::string kls =
      "KL a token: mean 0.0940 nats; largest at token 1 (' moon', KL 0.2500), token 3 ('.', KL "
      "0.1250), token 0 ('The', KL 0.0010)\n";
  CHECK(comparison_text(texts) == "the texts are equal\n" + kls);
  texts.first_divergence = 1;
  texts.other_piece = " sun";
  CHECK(comparison_text(texts) ==
        "the texts part at token 1: ' moon' in 16 bits, ' sun' with this cache, KL 0.2500 nats\n" +
            kls);
}
