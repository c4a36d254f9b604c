#include "convert/support/convert_case.h"
#include "support/folders.h"

using namespace kvcal;
using namespace kvcal::test;

namespace {

const fs::path kRankFiles = test::tests_folder() / "fixtures" / "rank_scales";

/// Where the scales of a conversion are: in a checkpoint, or beside one.
struct Source {
  fs::path checkpoint, scales = {};
};

/// A checkpoint of ours in that format; FP8 weights where the format is for them.
void write_ours(const std::string& format, const fs::path& folder) {
  const Calibrated run(model_fixture("llama"),
                       recipe_text(format == "fp8" ? "scheme: FP8" : "", "tensor"), scales_apart);
  write_calibrated(run.input(), format, folder);
}

Source source_in(const fs::path& folder, const std::string& format) {
  if (format != "scales-json") return {.checkpoint = folder};
  return {.checkpoint = model_fixture("llama"), .scales = folder / "kv_cache_scales.json"};
}

/// As others write it: nothing says that it is ours.
Source write_theirs(const std::string& format, const fs::path& folder) {
  write_ours(format, folder);
  fs::remove(folder / kManifestName);
  return source_in(folder, format);
}

Converted convert_to(const Source& source, const std::string& format, const fs::path& target) {
  return convert({.checkpoint = source.checkpoint,
                  .formats = {format},
                  .target = target,
                  .options = {.scales = source.scales, .strategy = {}, .dialect = {}}});
}

std::string keys_observed(const fs::path& output) {
  return parse_json(read_text(output / kManifestName)).at("conversion").at("keys_observed");
}

/// Whether that is the only warning; why: what tells it.
bool warns(const Converted& converted, const std::string& place, const std::string& why) {
  return converted.warnings ==
         std::vector<std::string>{place + ": " + why +
                                  " made of K before RoPE, and the cache holds K after it: its "
                                  "largest magnitude may be up to sqrt(2) = 1.414 times larger, "
                                  "which saturates, or as much smaller"};
}

std::string usual(const std::string& stored) {
  return "scales of this form (" + stored + ") are";
}
const std::string kSaid = "its manifest says that scales are";

}  // namespace

TEST_CASE("keys: forms whose usual writer sees K before RoPE are warned of") {
  const ScratchFolder scratch;
  for (const auto& [format, stored] : {std::pair{"quark", "output scales"},
                                       {"tgi", "tgi"},
                                       {"fp8", "compressed-tensors"},
                                       {"scales-json", "scales-json"}}) {
    INFO(format);
    const Source source = write_theirs(format, scratch / format);
    const fs::path& place = source.scales.empty() ? source.checkpoint : source.scales;
    const fs::path out = scratch / "out" / format;
    CHECK(warns(convert_to(source, "compressed-tensors", out), place.string(), usual(stored)));
    CHECK(keys_observed(out) == "before_rope");
  }
  for (const char* format : {"compressed-tensors", "modelopt"}) {
    INFO(format);
    const Source source = write_theirs(format, scratch / format);
    const fs::path out = scratch / "out" / format;
    CHECK(convert_to(source, "tgi", out).warnings.empty());
    CHECK(keys_observed(out) == "after_rope");
  }
}

TEST_CASE("keys: rank files are made before RoPE") {
  const ScratchFolder scratch;
  const Source source{.checkpoint = model_fixture("llama"), .scales = kRankFiles / "tp2"};
  const Converted converted = convert_to(source, "compressed-tensors", scratch / "out");
  CHECK(warns(converted, source.scales.string(), usual("rank files")));
  CHECK(keys_observed(scratch / "out") == "before_rope");
}

TEST_CASE("keys: our outputs are after RoPE in every form, and stay so") {
  const ScratchFolder scratch;
  for (const std::string from :
       {"compressed-tensors", "modelopt", "quark", "fp8", "tgi", "scales-json"}) {
    write_ours(from, scratch / from);
    for (const std::string to : {"compressed-tensors", "quark", "tgi", "scales-json"}) {
      INFO(from << " to " << to);
      const Source source = source_in(scratch / from, from);
      const fs::path there = scratch / (from + "-" + to), back = scratch / (from + "-back-" + to);
      CHECK(convert_to(source, to, there).warnings.empty());
      CHECK(keys_observed(there) == "after_rope");
      const Source next = to == "scales-json" && from != "scales-json"
                              ? Source{source.checkpoint, there / "kv_cache_scales.json"}
                              : source_in(there, to);
      CHECK(convert_to(next, "compressed-tensors", back).warnings.empty());
      CHECK(keys_observed(back) == "after_rope");
    }
  }
}

TEST_CASE("keys: what was before RoPE is known as such after any number of conversions") {
  const ScratchFolder scratch;
  const Source theirs = write_theirs("quark", scratch / "theirs");
  convert_to(theirs, "compressed-tensors", scratch / "first");
  // compressed-tensors of others would be taken for after RoPE.
  const Converted second = convert_to({scratch / "first"}, "modelopt", scratch / "second");
  CHECK(warns(second, (scratch / "first").string(), kSaid));
  CHECK(keys_observed(scratch / "second") == "before_rope");
  const Converted third = convert_to({scratch / "second"}, "scales-json", scratch / "third");
  CHECK(warns(third, (scratch / "second").string(), kSaid));
  const fs::path file = scratch / "third" / "kv_cache_scales.json";
  const Converted fourth =
      convert_to({model_fixture("llama"), file}, "compressed-tensors", scratch / "fourth");
  CHECK(warns(fourth, file.string(), kSaid));
  CHECK(keys_observed(scratch / "fourth") == "before_rope");
  // An overlay too.
  convert({.checkpoint = scratch / "fourth",
           .formats = {"compressed-tensors"},
           .target = scratch / "overlay",
           .scales_only = true});
  const Converted applied = apply(scratch / "overlay", model_fixture("llama"), scratch / "applied");
  CHECK(warns(applied, (scratch / "overlay").string(), kSaid));
  CHECK(keys_observed(scratch / "applied") == "before_rope");
}

TEST_CASE("keys: several formats have one manifest, which their folders are known by") {
  const ScratchFolder scratch;
  write_ours("compressed-tensors", scratch / "ours");
  convert({.checkpoint = scratch / "ours",
           .formats = {"tgi", "quark", "scales-json"},
           .target = scratch / "several"});
  int count = 0;
  for (const std::string place : {"tgi", "tgi/", "tgi/.", "quark", "../several/quark/"})
    CHECK(convert_to({scratch / "several" / place}, "modelopt",
                     scratch / ("out" + std::to_string(count++)))
              .warnings.empty());
  for (const std::string place :
       {"scales-json", "scales-json/", "scales-json/kv_cache_scales.json"})
    CHECK(convert_to({model_fixture("llama"), scratch / "several" / place}, "modelopt",
                     scratch / ("out" + std::to_string(count++)))
              .warnings.empty());
}

TEST_CASE("keys: a manifest beside a folder of another name is not the folder's") {
  const ScratchFolder scratch;
  write_ours("quark", scratch / "ours");
  for (const std::string name : {"other", "+", "tgi+"}) {
    const Source theirs = write_theirs("tgi", scratch / "ours" / name);
    const Converted converted = convert_to(theirs, "quark", scratch / ("of_" + name));
    CHECK(warns(converted, theirs.checkpoint.string(), usual("tgi")));
  }
}

TEST_CASE("keys: the place that scales are taken from counts, not the checkpoint") {
  const ScratchFolder scratch;
  write_ours("quark", scratch / "ours");
  const Source theirs = write_theirs("tgi", scratch / "theirs");
  const Converted replaced =
      convert_to({scratch / "ours", scratch / "theirs"}, "quark", scratch / "out");
  CHECK(warns(replaced, theirs.checkpoint.string(), usual("tgi")));
  CHECK(replaced.notes ==
        std::vector<std::string>{"the checkpoint's own KV scales are replaced by those of " +
                                 theirs.checkpoint.string()});
  CHECK(keys_observed(scratch / "out") == "before_rope");
  const Converted other =
      convert_to({scratch / "theirs", scratch / "ours"}, "quark", scratch / "other");
  CHECK(other.warnings.empty());
  CHECK(keys_observed(scratch / "other") == "after_rope");
}

TEST_CASE("keys: a checkpoint without scales of K is not warned of") {
  const ScratchFolder scratch;
  const Calibrated run(model_fixture("llama"), recipe_text("scheme: FP8", ""), scales_apart);
  write_calibrated(run.input(), "fp8", scratch / "weights");
  fs::remove(scratch / "weights" / kManifestName);
  CHECK(convert_to({scratch / "weights"}, "modelopt", scratch / "out").warnings.empty());
  CHECK(parse_json(read_text(scratch / "out" / kManifestName)).at("conversion").at("form") ==
        Json());
}

TEST_CASE("scales that nobody measured are warned of") {
  const ScratchFolder scratch;
  const auto ones = [](int64_t, char, int64_t) { return 1.0f; };
  const Calibrated run(model_fixture("llama"), recipe_text("", "tensor"), ones);
  write_calibrated(run.input(), "compressed-tensors", scratch / "ones");
  const Converted converted = convert_to({scratch / "ones"}, "modelopt", scratch / "out");
  CHECK(converted.warnings ==
        std::vector<std::string>{(scratch / "ones").string() +
                                 ": every scale is 1.0, which is no calibration but what engines "
                                 "take without one"});
}
