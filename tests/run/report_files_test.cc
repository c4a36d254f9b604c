#include "run/command_paths.h"

#include "core/file.h"
#include "core/output.h"
#include "run/support/text_checkpoint.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using kvcal::test::contains;
using kvcal::test::KeptLines;
using kvcal::test::message_of;
using kvcal::test::ScratchFolder;

namespace {

std::vector<report::Plot> one_plot(const std::string& name) {
  report::Drawing drawing{.id = "d", .title = "t", .description = "d", .width = 8, .height = 8};
  drawing.content.leaf("path", {{"d", "M0 0h8"}});
  return {{.name = name, .title = "t", .drawings = {std::move(drawing)}}};
}

}  // namespace

TEST_CASE("report files: the page and a file for each plot, which appear as a whole") {
  const ScratchFolder scratch;
  KeptLines lines;
  ReportFiles files{.page = (scratch.path() / "page.html").string(),
                    .plots = (scratch.path() / "plots").string()};
  CHECK(files.is_asked_for());
  check_report_files(files);
  write_report_files(files, "<html>", one_plot("first"), lines);
  CHECK(read_text(files.page) == "<html>");
  CHECK(contains(read_text(scratch.path() / "plots" / "first.svg"), "<svg "));
  CHECK(lines.notes ==
        std::vector<std::string>{"wrote " + files.page, "wrote 1 plot to " + files.plots});
  CHECK(contains(message_of([&] { check_report_files(files); }), "page.html"));
  files.overwrite = true;
  check_report_files(files);
  write_report_files(files, "<html>", one_plot("second"), lines);
  CHECK(fs::exists(scratch.path() / "plots" / "second.svg"));
  CHECK_FALSE(fs::exists(scratch.path() / "plots" / "first.svg"));
}

TEST_CASE("report files: a folder of plots that holds anything else is not replaced") {
  const ScratchFolder scratch;
  KeptLines lines;
  const ReportFiles files{.page = {}, .plots = scratch.path().string(), .overwrite = true};
  write_file_atomically(scratch.path() / "notes.txt", "kept", true);
  for (const auto& act : std::vector<std::function<void()>>{
           [&] { check_report_files(files); },
           [&] { write_report_files(files, "", one_plot("first"), lines); }})
    CHECK(contains(message_of(act), "holds notes.txt"));
  mark_output(scratch.path());
  CHECK(contains(message_of([&] { check_report_files(files); }),
                 "holds notes.txt, which is no SVG file"));
  CHECK(read_text(scratch.path() / "notes.txt") == "kept");
}

TEST_CASE("report files: none are asked for, and none lie in the model's folder") {
  const test::TextCheckpoint checkpoint;
  KeptLines lines;
  CHECK_FALSE(ReportFiles{}.is_asked_for());
  check_report_files({});
  write_report_files({}, "<html>", {}, lines);
  CHECK(lines.notes.empty());
  const ModelDir model(checkpoint.path());
  const ReportFiles inside{.page = {}, .plots = checkpoint.path() + "/plots"};
  CHECK(contains(message_of([&] { check_report_files(inside, model); }), "plots"));
}
