// The Python module is a second program over `run`. One C function takes a command's name and
// arguments as JSON and gives JSON back; another opens a ModelSession, which a capsule of Python
// owns, and a third asks it. python/kvcal is the typed package over them. It is written in
// CPython's limited API of 3.9, so that one file serves all versions: nanobind's stable ABI
// begins with 3.12, pybind11 has none. Work runs in a thread of its own, which waits while the
// caller's thread handles its events: so the GIL is free, callbacks and signal handlers run
// where Python expects them, and an exception in one becomes a request to stop
// (core/interrupt.h). Calls take turns, because that request and the handler of lost pages are
// the process's.

// The module kvcal._kvcal: it runs commands of lib/ in this process, and models that stay loaded.
// It uses nothing but CPython's limited API of 3.9, so that one file serves every later CPython.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <thread>

#include "commands.h"
#include "core/diagnostics.h"
#include "core/error.h"
#include "core/file_in_use.h"
#include "core/files_read.h"
#include "core/interrupt.h"
#include "core/registry.h"
#include "kvcal_version.h"
#include "run/state_options.h"
#include "session.h"
#include "shell/command_pages.h"

namespace kvcal {
namespace {

constexpr const char* kSession = "kvcal.session";  // the capsules of ModelSession

/// Something that a running call tells its caller.
struct CallEvent {
  std::string_view kind;  ///< "warning", "note" or "progress"
  std::string text;       ///< of progress: the stage
  int64_t done = 0, total = 0;
  std::string unit = {};
};

/// Work in a thread of its own, whose events the caller's thread handles: only that thread may run
/// Python, and it stays free for signals.
class Call : public Diagnostics {
 public:
  explicit Call(std::function<void(Diagnostics&)> work)
      : thread_([this, work = std::move(work)] {
          try {
            unless_file_changed([&] { work(*this); });
          } catch (...) {
            error_ = std::current_exception();
          }
          const std::lock_guard lock(mutex_);
          has_ended_ = true;
          for_caller_.notify_all();
        }) {}
  /// Waits for the work's end.
  ~Call() override { thread_.join(); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /// Waits a moment, or for the next event or the end. Returns the event, which holds the work
  /// until handled() is called, or null.
  const CallEvent* wait() {
    constexpr std::chrono::milliseconds kMoment{50};  // the longest time until a signal is seen
    std::unique_lock lock(mutex_);
    for_caller_.wait_for(lock, kMoment, [&] { return event_ || has_ended_; });
    return event_;
  }
  void handled() {
    const std::lock_guard lock(mutex_);
    event_ = nullptr;
    for_work_.notify_all();
  }
  bool has_ended() {
    const std::lock_guard lock(mutex_);
    return has_ended_;
  }
  /// Throws what the work threw. After its end.
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

  void warn(const std::string& message) override { tell({.kind = "warning", .text = message}); }
  void inform(const std::string& lines) override { tell({.kind = "note", .text = lines}); }
  void progress(std::string_view stage, int64_t done, int64_t total,
                std::string_view unit) override {
    tell({"progress", std::string(stage), done, total, std::string(unit)});
  }

 private:
  void tell(CallEvent event) {
    const std::lock_guard one(one_at_a_time_);
    std::unique_lock lock(mutex_);
    event_ = &event;
    for_caller_.notify_all();
    for_work_.wait(lock, [&] { return !event_; });
  }

  std::mutex one_at_a_time_;  ///< of threads that tell
  std::mutex mutex_;
  std::condition_variable for_caller_, for_work_;
  const CallEvent* event_ = nullptr;
  bool has_ended_ = false;
  std::exception_ptr error_;
  std::thread thread_;  ///< last: it uses all others
};

PyObject* error_type = nullptr;  // kvcal.Error

// Work uses all processors and the process's one request to stop, so calls take turns.
std::timed_mutex turn;
thread_local bool is_in_call = false;

struct Unref {
  void operator()(PyObject* object) const { Py_DecRef(object); }
};
using Object = std::unique_ptr<PyObject, Unref>;

/// The GIL is free during its lifetime.
class WithoutGil {
 public:
  WithoutGil() : thread_(PyEval_SaveThread()) {}
  ~WithoutGil() { PyEval_RestoreThread(thread_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* thread_;
};

PyObject* text_of(const std::string& text) {
  return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()),
                              "backslashreplace");
}

void set_error(PyObject* type, const std::string& text) {
  if (const Object object{text_of(text)}) PyErr_SetObject(type, object.get());
}

/// An exception of Python that has been raised and not yet thrown.
class Raised {
 public:
  Raised() = default;
  ~Raised() {
    for (PyObject* part : {type_, value_, traceback_}) Py_DecRef(part);
  }
  Raised(const Raised&) = delete;
  Raised& operator=(const Raised&) = delete;

  /// Takes the one that is set.
  void take() { PyErr_Fetch(&type_, &value_, &traceback_); }
  explicit operator bool() const { return type_ != nullptr; }
  bool is_interrupt() const { return PyErr_GivenExceptionMatches(type_, PyExc_KeyboardInterrupt); }
  void restore() {
    PyErr_Restore(type_, value_, traceback_);
    type_ = value_ = traceback_ = nullptr;
  }

 private:
  PyObject *type_ = nullptr, *value_ = nullptr, *traceback_ = nullptr;
};

/// The process's turn, and what a call changes of the process, which is restored.
class CallLock {
 public:
  /// Takes the turn; then call is_taken.
  CallLock() {
    while (!(is_taken_ = wait()))
      if (PyErr_CheckSignals() != 0) return;
    is_in_call = true;
    ::sigaction(SIGBUS, nullptr, &lost_pages_);
    handle_lost_pages();
    forget_changed_files();
    remember_files_read();
  }
  ~CallLock() {
    if (!is_taken_) return;
    ::sigaction(SIGBUS, &lost_pages_, nullptr);
    forget_files_read();
    clear_interrupt();
    is_in_call = false;
    turn.unlock();
  }
  CallLock(const CallLock&) = delete;
  CallLock& operator=(const CallLock&) = delete;
  /// false: an exception of Python is set.
  bool is_taken() const { return is_taken_; }

 private:
  static bool wait() {
    const WithoutGil without;
    return turn.try_lock_for(std::chrono::milliseconds(50));
  }

  struct sigaction lost_pages_ {};
  bool is_taken_ = false;
};

/// Hands an event to Python. false: an exception is set.
bool report_event(PyObject* report, const CallEvent& event) {
  const Object kind{text_of(std::string(event.kind))}, text{text_of(event.text)},
      unit{text_of(event.unit)};
  if (!kind || !text || !unit) return false;
  const Object result{PyObject_CallFunction(report, "OOLLO", kind.get(), text.get(),
                                            static_cast<long long>(event.done),
                                            static_cast<long long>(event.total), unit.get())};
  return result != nullptr;
}

/// Handles events and signals until the work has ended. An exception of Python stops the work.
void attend(Call& call, PyObject* report, Raised& raised) {
  while (true) {
    const CallEvent* event = nullptr;
    bool has_ended = false;
    {
      const WithoutGil without;
      event = call.wait();
      has_ended = call.has_ended();
    }
    const bool goes_on =
        raised || (PyErr_CheckSignals() == 0 && (!event || report_event(report, *event)));
    if (!goes_on) {
      raised.take();
      request_interrupt();
    }
    if (event) call.handled();
    if (has_ended) return;
  }
}

/// Sets the exception of Python for the one that the work threw.
void set_thrown(const Call& call, Raised& raised) {
  try {
    call.rethrow();
    raised.restore();  // it came too late to stop the work
  } catch (const InterruptedRun& interrupted) {
    if (raised && !raised.is_interrupt()) return raised.restore();
    set_error(PyExc_KeyboardInterrupt, interrupted.what());
  } catch (const Interrupted&) {
    if (raised) return raised.restore();
    PyErr_SetNone(PyExc_KeyboardInterrupt);
  } catch (const Error& error) {
    set_error(error_type, error.message());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    set_error(error_type, error.what());
  }
}

/// Does the work in a thread of its own. false: an exception of Python is set.
bool attend_work(const char* arguments, PyObject* report,
                 const std::function<void(const Json&, Diagnostics&)>& work) {
  const CallLock taken;
  if (!taken.is_taken()) return false;
  Raised raised;
  {
    Call call([&](Diagnostics& diagnostics) { work(parse_json(arguments), diagnostics); });
    attend(call, report, raised);
    set_thrown(call, raised);
  }
  return !PyErr_Occurred();
}

/// As attend_work; the text of the JSON that make returns.
PyObject* attend_command(const char* arguments, PyObject* report,
                         const std::function<Json(const Json&, Diagnostics&)>& make) {
  std::string result;
  const auto work = [&](const Json& given, Diagnostics& diagnostics) {
    result = make(given, diagnostics).dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  return attend_work(arguments, report, work) ? text_of(result) : nullptr;
}

/// make's result, whose exceptions become Python's.
template <class Make>
PyObject* guarded(const Make& make) {
  try {
    if (is_in_call) fail("called by what another call of kvcal reports to");
    return make();
  } catch (const std::exception& error) {
    set_error(error_type, error.what());
    return nullptr;
  }
}

/// The command's call, with these keyword arguments.
Json call_command(const std::string& name, const Json& arguments, Diagnostics& diagnostics) {
  const Subcommands commands = all_commands();
  const auto command =
      std::ranges::find_if(commands, [&](const auto& one) { return one->name == name; });
  KVCAL_CHECK(command != commands.end());
  Options& options = (*command)->options;
  options.read(arguments);
  if (const std::string missing = (*command)->missing(); !missing.empty())
    fail(missing, " is required");
  options.fetch(diagnostics);
  return (*command)->call(diagnostics);
}

PyObject* run_command(PyObject*, PyObject* arguments) {
  const char *name = nullptr, *given = nullptr;
  PyObject* report = nullptr;
  if (!PyArg_ParseTuple(arguments, "ssO", &name, &given, &report)) return nullptr;
  return guarded([&] {
    return attend_command(given, report, [&](const Json& values, Diagnostics& diagnostics) {
      return call_command(name, values, diagnostics);
    });
  });
}

ModelSession* session_of(PyObject* capsule) {
  return static_cast<ModelSession*>(PyCapsule_GetPointer(capsule, kSession));
}

PyObject* open_session_capsule(PyObject*, PyObject* arguments) {
  const char* given = nullptr;
  PyObject* report = nullptr;
  if (!PyArg_ParseTuple(arguments, "sO", &given, &report)) return nullptr;
  return guarded([&]() -> PyObject* {
    std::unique_ptr<ModelSession> session;
    const auto open = [&](const Json& values, Diagnostics& diagnostics) {
      session = open_session(values, diagnostics);
    };
    if (!attend_work(given, report, open)) return nullptr;
    PyObject* capsule =
        PyCapsule_New(session.get(), kSession, [](PyObject* own) { delete session_of(own); });
    if (capsule) session.release();
    return capsule;
  });
}

PyObject* run_session_command(PyObject*, PyObject* arguments) {
  const char *name = nullptr, *given = nullptr;
  PyObject *capsule = nullptr, *report = nullptr;
  if (!PyArg_ParseTuple(arguments, "OssO", &capsule, &name, &given, &report)) return nullptr;
  ModelSession* session = session_of(capsule);
  if (!session) return nullptr;
  return guarded([&] {
    return attend_command(given, report, [&](const Json& values, Diagnostics& diagnostics) {
      return ask_session(*session, name, values, diagnostics);
    });
  });
}

PyObject* commands_module(PyObject*, PyObject*) {
  return guarded([] { return text_of(python_module(program_description())); });
}

PyMethodDef functions[] = {
    {"run", run_command, METH_VARARGS,
     "run(command, arguments, report) -> str\n\nRuns a command of kvcal. arguments and the result "
     "are JSON; report(kind, text, done, total, unit) gets what it tells."},
    {"open_session", open_session_capsule, METH_VARARGS,
     "open_session(arguments, report) -> capsule\n\nLoads a model, which lives as long as the "
     "capsule."},
    {"run_session", run_session_command, METH_VARARGS,
     "run_session(session, command, arguments, report) -> str\n\nAsks a loaded model, as run "
     "does."},
    {"commands_module", commands_module, METH_NOARGS,
     "commands_module() -> str\n\nSource of kvcal._commands, for the build."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition{PyModuleDef_HEAD_INIT,
                       "_kvcal",
                       "Commands of kvcal in this process.",
                       -1,
                       functions,
                       nullptr,
                       nullptr,
                       nullptr,
                       nullptr};

}  // namespace
}  // namespace kvcal

PyMODINIT_FUNC PyInit__kvcal() {  // NOLINT(readability-identifier-naming): CPython gives the name
  kvcal::Object module{PyModule_Create(&kvcal::definition)};
  if (!module) return nullptr;
  kvcal::error_type = PyErr_NewExceptionWithDoc(
      "kvcal.Error", "An input or the environment does not allow what was asked for.",
      PyExc_RuntimeError, nullptr);
  if (!kvcal::error_type) return nullptr;
  Py_IncRef(kvcal::error_type);
  if (PyModule_AddObject(module.get(), "Error", kvcal::error_type) != 0 ||
      PyModule_AddStringConstant(module.get(), "version", KVCAL_VERSION) != 0)
    return nullptr;
  return module.release();
}
