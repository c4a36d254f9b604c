// Rules of engines that cannot run here, from their sources (docs/verify.md); the expectations are
// written by hand from those.
#include "engines/support/engine_case.h"
#include "support/catch.h"

using namespace kvcal;
using test::contains;
using test::EngineCase;
using test::kLlama;
using test::tells;

namespace {

Json scheme(const char* strategy = "tensor") {
  return {{"quant_method", "compressed-tensors"},
          {"config_groups", Json::object()},
          {"kv_cache_scheme",
           {{"type", "float"},
            {"num_bits", 8},
            {"strategy", strategy},
            {"symmetric", true},
            {"dynamic", false}}}};
}

const Json kModelOpt = {{"producer", {{"name", "modelopt"}}},
                        {"quantization", {{"quant_algo", "FP8"}, {"kv_cache_quant_algo", "FP8"}}}};

std::string module(int layer) {
  return "model.layers." + std::to_string(layer) + ".self_attn";
}

/// K 0.5 and V 0.25 in layer 0, twice that in layer 1, named k_name and v_name.
void add_scales(EngineCase& subject, const std::string& k_name, const std::string& v_name) {
  for (int layer = 0; layer < 2; ++layer) {
    const auto factor = static_cast<float>(layer + 1);
    if (!k_name.empty()) subject.add(module(layer) + k_name, 0.5f * factor);
    if (!v_name.empty()) subject.add(module(layer) + v_name, 0.25f * factor);
  }
}

using Values = std::vector<float>;

Values held(const VerifyReport& report) {
  Values values;
  for (const EngineLayer& layer : report.layers)
    for (const EngineScale* side : {&layer.k, &layer.v})
      values.insert(values.end(), side->values.begin(), side->values.end());
  return values;
}

const Values kAll{0.5f, 0.25f, 1.0f, 0.5f};
const Values kDoubled{1.0f, 0.5f, 2.0f, 1.0f};
const Values kOnes{1.0f, 1.0f, 1.0f, 1.0f};

const VerifyOptions kFp8{
    .kv_cache_dtype = "fp8_e4m3", .is_rocm = false, .tp_size = 1, .scales = {}};
const VerifyOptions kRocm{.kv_cache_dtype = "auto", .is_rocm = true, .tp_size = 1, .scales = {}};

}  // namespace

TEST_CASE("SGLang takes per-tensor compressed-tensors scales and doubles them on FNUZ platforms") {
  EngineCase subject(kLlama);
  subject.quantize(scheme());
  add_scales(subject, ".k_scale", ".v_scale");
  CHECK(held(subject.verify("sglang")) == kAll);
  CHECK(subject.verify("sglang").kv_cache_dtype == "fp8_e4m3");
  CHECK(held(subject.verify("sglang", kRocm)) == kDoubled);
}

TEST_CASE("SGLang passes over scales of heads") {
  EngineCase subject(kLlama);
  subject.quantize(scheme("attn_head"));
  for (int layer = 0; layer < 2; ++layer)
    for (const char* side : {".k_scale", ".v_scale"})
      subject.add(module(layer) + side, "F32", {2, 1, 1}, {0.5f, 0.25f});
  const VerifyReport report = subject.verify("sglang", kFp8);
  CHECK(report.loads);
  CHECK(held(report) == kOnes);
  CHECK(tells(report, Severity::kError, "passes over this kv_cache_scheme"));
  CHECK(subject.verify("sglang").kv_cache_dtype == "auto");
}

TEST_CASE("SGLang maps ModelOpt's, Quark's and the old single name") {
  EngineCase modelopt(kLlama);
  modelopt.write("hf_quant_config.json", kModelOpt);
  add_scales(modelopt, ".k_proj.k_scale", ".v_proj.v_scale");
  CHECK(held(modelopt.verify("sglang")) == kAll);

  EngineCase quark(kLlama);
  quark.quantize({{"quant_method", "quark"},
                  {"export", {{"kv_cache_group", Json::array()}}},
                  {"layer_type_quant_config", Json::object()}});
  add_scales(quark, ".k_proj.output_scale", ".v_proj.output_scale");
  CHECK(held(quark.verify("sglang", kFp8)) == kAll);
  CHECK(tells(quark.verify("sglang"), Severity::kNote, "16 bits"));

  EngineCase single(kLlama);
  single.quantize({{"quant_method", "fp8"}, {"activation_scheme", "static"}});
  add_scales(single, ".kv_scale", "");
  const VerifyReport report = single.verify("sglang", kFp8);
  CHECK(held(report) == Values{0.5f, 0.5f, 1.0f, 1.0f});
  CHECK(tells(report, Severity::kWarning, "K's serves both"));
}

TEST_CASE("SGLang drops scales without a quantization_config, and takes 0 for a missing one") {
  EngineCase plain(kLlama);
  add_scales(plain, ".k_scale", ".v_scale");
  const VerifyReport dropped = plain.verify("sglang", kFp8);
  CHECK(dropped.loads);
  CHECK(held(dropped) == kOnes);
  CHECK(tells(dropped, Severity::kError, "model.layers.N.self_attn.k_scale is lost"));
  CHECK(dropped.findings.front().layers == std::vector<int64_t>{0, 1});

  EngineCase zero(kLlama);
  zero.quantize(scheme());
  for (const char* side : {".k_scale", ".v_scale"}) zero.add(module(0) + side, 0.0f);
  const VerifyReport report = zero.verify("sglang");
  CHECK(report.loads);
  CHECK(held(report) == kOnes);
  CHECK(tells(report, Severity::kError, "0 or less"));
}

TEST_CASE("TGI reads a pair, else kv_scale for both, which it rounds to float16, else 1.0") {
  EngineCase subject(kLlama);
  subject.add(module(0) + ".k_scale", 0.5f);
  subject.add(module(0) + ".v_scale", 0.25f);
  subject.add(module(0) + ".kv_scale", 0.75f);
  subject.add(module(1) + ".kv_scale", 0.0230364f);
  const VerifyReport report = subject.verify("tgi", kFp8);
  // Python: struct.unpack("<e", struct.pack("<e", 0.0230364))
  const float half = 0.023040771484375f;
  CHECK(held(report) == Values{0.5f, 0.25f, half, half});
  CHECK(tells(report, Severity::kWarning, "K and V share one scale"));

  EngineCase half_a_pair(kLlama);
  add_scales(half_a_pair, ".k_scale", "");
  CHECK(held(half_a_pair.verify("tgi", kFp8)) == kOnes);
  CHECK(tells(half_a_pair.verify("tgi", kFp8), Severity::kError, "only where both are there"));
}

TEST_CASE("TGI: a compressed-tensors scheme makes the cache FP8 on CUDA only; scales are scalars") {
  EngineCase subject(kLlama);
  subject.quantize(scheme());
  add_scales(subject, ".k_scale", ".v_scale");
  CHECK(tells(subject.verify("tgi"), Severity::kError, "ignore does not name Linear"));
  Json config = scheme();
  config["ignore"] = {"Linear"};
  subject.quantize(config);
  CHECK(subject.verify("tgi").kv_cache_dtype == "fp8_e4m3fn");
  CHECK(subject.verify("tgi", kRocm).kv_cache_dtype == "auto");
  CHECK(held(subject.verify("tgi")) == kAll);
  subject.add(module(0) + ".k_scale", "F32", {2, 1, 1}, {0.5f, 0.25f});
  CHECK_FALSE(subject.verify("tgi").loads);

  EngineCase modelopt(kLlama);
  add_scales(modelopt, ".k_proj.k_scale", ".v_proj.v_scale");
  const VerifyReport lost = modelopt.verify("tgi", kFp8);
  CHECK(held(lost) == kOnes);
  CHECK(tells(lost, Severity::kError, "never looks for it"));
}

TEST_CASE("TGI's branch asks config.json for the dialect and doubles or halves") {
  EngineCase subject(kLlama);
  add_scales(subject, ".kv_scale", "");
  const VerifyOptions rocm{.kv_cache_dtype = "fp8", .is_rocm = true, .tp_size = 1, .scales = {}};
  CHECK(tells(subject.verify("tgi-branch", kFp8), Severity::kError, "kv_cache_torch_dtype"));
  subject.config()["kv_cache_torch_dtype"] = "float8_e4m3fn";
  CHECK(held(subject.verify("tgi-branch", kFp8)) == Values{0.5f, 0.5f, 1.0f, 1.0f});
  CHECK(held(subject.verify("tgi-branch", rocm)) == Values{1.0f, 1.0f, 2.0f, 2.0f});
  subject.config()["kv_cache_torch_dtype"] = "float8_e4m3fnuz";
  CHECK(held(subject.verify("tgi-branch", kFp8)) == Values{0.25f, 0.25f, 0.5f, 0.5f});
  CHECK(held(subject.verify("tgi-branch", rocm)) == Values{0.5f, 0.5f, 1.0f, 1.0f});
}

TEST_CASE("TensorRT-LLM: an FP8 cache gets 1.0 whatever was loaded") {
  EngineCase subject(kLlama);
  subject.write("hf_quant_config.json", kModelOpt);
  add_scales(subject, ".k_proj.k_scale", ".v_proj.v_scale");
  const VerifyReport report = subject.verify("trtllm");
  CHECK(held(report) == kOnes);
  CHECK(tells(report, Severity::kError, "an FP8 cache gets 1.0"));
}

TEST_CASE("TensorRT-LLM: an NVFP4 cache gets the scales") {
  EngineCase subject(kLlama);
  subject.write("hf_quant_config.json",
                {{"quantization", {{"quant_algo", nullptr}, {"kv_cache_quant_algo", "NVFP4"}}}});
  add_scales(subject, ".k_proj.k_scale", ".v_proj.v_scale");
  const VerifyReport report = subject.verify("trtllm");
  CHECK(report.kv_cache_dtype == "nvfp4");
  CHECK(held(report) == kAll);
  CHECK_FALSE(loses_scales(report));
}

TEST_CASE("Aphrodite reads output scales with fp8 only; 0.6 knows no compressed-tensors") {
  EngineCase subject(kLlama);
  subject.quantize(scheme());
  add_scales(subject, ".k_proj.output_scale", ".v_proj.output_scale");
  CHECK_FALSE(subject.verify("aphrodite").loads);
  CHECK_FALSE(subject.verify("vllm").loads);
  CHECK_FALSE(subject.verify("aphrodite-0.6", kFp8).loads);
  subject.quantize({{"quant_method", "fp8"}, {"activation_scheme", "static"}});
  CHECK(held(subject.verify("aphrodite", kFp8)) == kAll);
}

TEST_CASE("heads are shared among tensor parallel ranks, or refused") {
  EngineCase subject(kLlama);
  subject.quantize(scheme("attn_head"));
  for (int layer = 0; layer < 2; ++layer)
    for (const char* side : {".k_scale", ".v_scale"})
      subject.add(module(layer) + side, "F32", {2, 1, 1}, {0.5f, 0.25f});
  VerifyOptions options;
  options.tp_size = 2;
  CHECK(tells(subject.verify("vllm", options), Severity::kNote, "its 1 head"));
  options.tp_size = 4;
  CHECK(tells(subject.verify("vllm", options), Severity::kNote, "on 2 ranks"));
  options.tp_size = 3;
  CHECK_FALSE(subject.verify("vllm", options).loads);
}

TEST_CASE("models whose scales an engine drops or refuses") {
  EngineCase subject(kLlama);
  subject.config()["model_type"] = "mixtral";
  subject.config()["num_local_experts"] = 4;
  subject.config()["num_experts_per_tok"] = 2;
  subject.quantize(scheme());
  add_scales(subject, ".k_scale", ".v_scale");
  CHECK(held(subject.verify("vllm")) == kAll);
  const VerifyReport report = subject.verify("transformers");
  CHECK_FALSE(report.loads);
  CHECK(tells(report, Severity::kError, "empty config_groups"));
}

TEST_CASE("a type that was not tried is told what holds for Llama's kind in that version") {
  EngineCase subject(kLlama);
  subject.config()["model_type"] = "qwen3_vl_text";
  subject.quantize(scheme());
  add_scales(subject, ".k_scale", ".v_scale");
  const VerifyReport loads = subject.verify("transformers@5.23");
  CHECK_FALSE(loads.is_known);
  CHECK(held(loads) == kAll);
  CHECK_FALSE(loses_scales(loads));
  const VerifyReport drops = subject.verify("transformers@5.24");
  CHECK_FALSE(drops.is_known);
  CHECK_FALSE(has_quantized_cache(drops));
  CHECK(tells(drops, Severity::kWarning, "qwen3_vl_text were not tried"));
  CHECK(tells(drops, Severity::kError, "looks for past_key_values"));
}

TEST_CASE("a version newer than all that were run is a warning before the newest one's answer") {
  EngineCase subject(kLlama);
  subject.quantize(scheme());
  add_scales(subject, ".k_scale", ".v_scale");
  const VerifyReport newest = subject.verify("vllm"), newer = subject.verify("vllm@99.1");
  CHECK(newer.version == newest.version);
  CHECK(held(newer) == kAll);
  CHECK_FALSE(loses_scales(newer));
  CHECK(tells(newer, Severity::kWarning, "not run with versions after " + newest.version));
  CHECK_FALSE(tells(newest, Severity::kWarning, "not run with versions"));
}

TEST_CASE("a cache of 16 bits beside scales is told from one that uses them") {
  EngineCase subject(kLlama);
  subject.quantize({{"quant_method", "fp8"}, {"activation_scheme", "static"}});
  add_scales(subject, ".k_scale", ".v_scale");
  const VerifyReport untold = subject.verify("sglang");
  CHECK(holds_scales(untold));
  CHECK_FALSE(has_quantized_cache(untold));
  CHECK(tells(untold, Severity::kNote, "the scales do nothing"));
  CHECK(has_quantized_cache(subject.verify("sglang", kFp8)));
  CHECK_FALSE(
      has_quantized_cache(subject.verify("vllm", {.kv_cache_dtype = "bfloat16", .scales = {}})));
}

TEST_CASE("an unknown engine is told with the known ones") {
  EngineCase subject(kLlama);
  const std::string message = test::message_of([&] { subject.verify("vlm"); });
  CHECK(message ==
        "unknown engine 'vlm' (did you mean 'vllm'?); known are vllm, sglang, tgi, tgi-branch, "
        "aphrodite, aphrodite-0.6, trtllm, lmdeploy, transformers, lightllm, vllm-ascend, "
        "onnxruntime-genai");
}

TEST_CASE("remedies: a conversion where the scales are there, else a calibration") {
  const auto remedies = [](const VerifyReport& report) {
    std::string all;
    for (const Finding& finding : report.findings) all += finding.remedy + "\n";
    return all;
  };
  EngineCase modelopt(kLlama);
  modelopt.quantize({{"quant_method", "modelopt"}, {"quant_algo", "FP8"}});
  add_scales(modelopt, ".k_proj.k_scale", ".v_proj.v_scale");
  const std::string conversion = "kvcal convert " + modelopt.path("").parent_path().string() +
                                 " --format compressed-tensors --output OUT";
  CHECK(contains(remedies(modelopt.verify("transformers@5.23")), conversion));
  // It loses the scales of each format.
  CHECK_FALSE(contains(remedies(modelopt.verify("transformers@5.24")), conversion));
  CHECK(contains(remedies(modelopt.verify("transformers@5.24")),
                 "serve it with an engine that uses them"));
  EngineCase lacking(kLlama);
  lacking.quantize(scheme());
  lacking.add(module(0) + ".k_scale", 0.5f);
  lacking.add(module(0) + ".v_scale", 0.5f);
  lacking.add(module(1) + ".x_scale", 0.5f);
  CHECK(contains(remedies(lacking.verify("vllm")), "kvcal calibrate MODEL"));
  EngineCase heads(kLlama);
  heads.quantize(scheme("attn_head"));
  for (int layer = 0; layer < 2; ++layer)
    for (const char* name : {".k_scale", ".v_scale"})
      heads.add(module(layer) + name, "F32", {2, 1, 1}, {0.5f, 0.25f});
  CHECK(
      contains(remedies(heads.verify("sglang")), " --strategy tensor --format compressed-tensors"));
}

TEST_CASE("TensorRT-LLM takes hf_quant_config.json whatever config.json says, vLLM does not") {
  EngineCase subject(kLlama);
  subject.quantize(scheme());
  subject.write("hf_quant_config.json", kModelOpt);
  add_scales(subject, ".k_scale", ".v_scale");
  add_scales(subject, ".k_proj.k_scale", ".v_proj.v_scale");
  CHECK(subject.verify("trtllm").kv_cache_dtype == "fp8");
  CHECK(tells(subject.verify("trtllm"), Severity::kError, "1.0"));
  CHECK(held(subject.verify("vllm")) == kAll);
  CHECK_FALSE(loses_scales(subject.verify("vllm")));
}

TEST_CASE("engines: scales of AWQ's and GPTQ's weights are none of the cache") {
  EngineCase subject(kLlama);
  subject.quantize({{"quant_method", "awq"}, {"bits", 4}, {"group_size", 32}});
  subject.add(module(0) + ".k_proj.scales", "F16", {2, 32}, std::vector<float>(32, 0.5f));
  const VerifyReport report = subject.verify("vllm");
  CHECK(held(report) == Values{1, 1, 1, 1});
  CHECK(report.findings.empty());
}
