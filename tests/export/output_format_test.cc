#include "export/writer.h"
#include "support/catch.h"

using namespace kvcal;

TEST_CASE("output formats: the list names each once, the default first and files last") {
  CHECK(list_formats() ==
        "compressed-tensors (default), ascend, fp8, modelopt, quark, tgi, lightllm, "
        "onnxruntime-genai or "
        "scales-json");
}

TEST_CASE("output formats: a joined format has what one of its parts has") {
  CHECK(any_has("compressed-tensors+tgi", &OutputFormat::holds_queries));
  CHECK_FALSE(any_has("modelopt+tgi", &OutputFormat::holds_queries));
  CHECK_FALSE(any_has("scales-json", &OutputFormat::is_checkpoint));
  CHECK(any_has("scales-json+tgi", &OutputFormat::is_checkpoint));
}

TEST_CASE("output formats: what holds queries has a checkpoint, a file takes any weights") {
  for (const auto& [name, format] : kWriters.rows()) {
    INFO(name);
    if (format.holds_queries) CHECK(format.is_checkpoint());
    if (!format.is_checkpoint()) CHECK(format.keeps_any_weights);
    CHECK(format.make() != nullptr);
  }
}
