/* Preloaded into the program by tests/faults/run.sh: makes one of its calls to the system fail, or
 * lets it do less than was asked. Which one is said by the environment: KVCAL_FAULT_CALL   a call
 * by the name of its kind (`kinds` below), or several with commas between; all where empty
 *   KVCAL_FAULT_PATH   text that the path of the file must hold
 *   KVCAL_FAULT_NTH    which of these calls: 3, or 3+ for it and all later ones; 0 for none, 0+ for
 * every one KVCAL_FAULT_DO     a name of an error (EIO), or short         reads and writes at most
 * as many bytes as a number drawn from KVCAL_FAULT_SEED says interrupt     EINTR for every other
 * call cut:N         cuts the file to N bytes when it has been mapped; by -N bytes where N is
 * negative; half: to half vanish:PATH   renames PATH to PATH.gone before the call until:PATH waits
 * before the call until PATH is there; ten minutes at most KVCAL_FAULT_COUNT  a file of 8 zero
 * bytes, in which all processes of a run count such calls KVCAL_FAULT_LOG    a file to which each
 * such call adds a line: its kind and its path, behind FAULT where it was its turn
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum kind {
  OPEN,
  READ,
  PREAD,
  WRITE,
  PWRITE,
  FSYNC,
  FDATASYNC,
  TRUNCATE,
  RESERVE,
  RENAME,
  MKDIR,
  MAP,
  COPY,
  CLONE,
  CLOSE,
  LIST,
  STAT,
  KINDS
};
static const char* const kinds[KINDS] = {
    "open",   "read",  "pread", "write", "pwrite", "fsync", "fdatasync", "ftruncate", "fallocate",
    "rename", "mkdir", "mmap",  "copy",  "clone",  "close", "list",      "stat"};
static const struct {
  const char* name;
  int code;
} errors[] = {{"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EROFS", EROFS},          {"EDQUOT", EDQUOT},
              {"EMFILE", EMFILE}, {"EACCES", EACCES}, {"ENOMEM", ENOMEM},        {"ESTALE", ESTALE},
              {"EXDEV", EXDEV},   {"EINVAL", EINVAL}, {"EOPNOTSUPP", EOPNOTSUPP}};

enum what { NOTHING, FAIL, SHORT, INTERRUPT, CUT, VANISH, WAIT };
static enum what what = NOTHING;
static int failure = 0;
static int is_wanted[KINDS];
static const char *part = "", *about = "";
static char folder[PATH_MAX]; /* the one the program works in */
static uint64_t nth = 0, seed = 1;
static int and_later = 0;
static int cuts_half = 0;
static long cut_to = 0; /* below 0: bytes less */
static int log_file = -1;
static uint64_t own_count;
static uint64_t* count = &own_count;
static int is_ready = 0;

#define REAL(type, name, ...)       \
  static type (*real)(__VA_ARGS__); \
  if (!real) *(void**)(&real) = dlsym(RTLD_NEXT, #name)

static void read_wanted(const char* list) {
  for (int kind = 0; kind < KINDS; ++kind) {
    const size_t length = strlen(kinds[kind]);
    is_wanted[kind] = list[0] == 0;
    for (const char* at = list; (at = strstr(at, kinds[kind])); at += length)
      if ((at == list || at[-1] == ',') && (at[length] == 0 || at[length] == ','))
        is_wanted[kind] = 1;
  }
}

static void read_action(const char* text) {
  for (size_t i = 0; i < sizeof errors / sizeof errors[0]; ++i)
    if (strcmp(text, errors[i].name) == 0) {
      what = FAIL;
      failure = errors[i].code;
    }
  if (strcmp(text, "short") == 0) what = SHORT;
  if (strcmp(text, "interrupt") == 0) what = INTERRUPT;
  if (strncmp(text, "cut:", 4) == 0) {
    what = CUT;
    cuts_half = strcmp(text + 4, "half") == 0;
    cut_to = atol(text + 4);
  }
  if (strncmp(text, "vanish:", 7) == 0 || strncmp(text, "until:", 6) == 0) {
    what = text[0] == 'v' ? VANISH : WAIT;
    about = strchr(text, ':') + 1;
  }
  if (what == NOTHING && text[0]) {
    fprintf(stderr, "inject: KVCAL_FAULT_DO=%s is unknown\n", text);
    _exit(99);
  }
}

static const char* variable(const char* name) {
  const char* value = getenv(name);
  return value ? value : "";
}

__attribute__((constructor)) static void start(void) {
  if (!getcwd(folder, sizeof folder)) _exit(97);
  read_wanted(variable("KVCAL_FAULT_CALL"));
  read_action(variable("KVCAL_FAULT_DO"));
  part = variable("KVCAL_FAULT_PATH");
  char* end;
  nth = strtoull(variable("KVCAL_FAULT_NTH"), &end, 10);
  and_later = *end == '+';
  if (variable("KVCAL_FAULT_SEED")[0]) seed = strtoull(variable("KVCAL_FAULT_SEED"), NULL, 10);
  if (variable("KVCAL_FAULT_LOG")[0])
    log_file = (int)syscall(SYS_openat, AT_FDCWD, variable("KVCAL_FAULT_LOG"),
                            O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (variable("KVCAL_FAULT_COUNT")[0]) {
    const int file =
        (int)syscall(SYS_openat, AT_FDCWD, variable("KVCAL_FAULT_COUNT"), O_RDWR | O_CLOEXEC, 0);
    void* shared = file < 0 ? MAP_FAILED
                            : (void*)syscall(SYS_mmap, NULL, sizeof *count, PROT_READ | PROT_WRITE,
                                             MAP_SHARED, file, 0);
    if (shared == MAP_FAILED) {
      fprintf(stderr, "inject: cannot map KVCAL_FAULT_COUNT\n");
      _exit(99);
    }
    count = shared;
    syscall(SYS_close, file);
  }
  is_ready = 1;
}

/* The file that descriptor is open on, or "". */
static const char* path_of(int descriptor, char* path) {
  char link[40];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const long length = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
  path[length < 0 ? 0 : length] = 0;
  if (path[0] != '/') path[0] = 0; /* a pipe or a socket */
  return path;
}

/* The path of a name in an open folder. */
static const char* path_in(int descriptor, const char* name, char* path) {
  if (name[0] == '/' || descriptor == AT_FDCWD) return name;
  const size_t length = strlen(path_of(descriptor, path));
  if (length) snprintf(path + length, PATH_MAX - length, "/%s", name);
  return path;
}

static uint64_t drawn(uint64_t number) { /* splitmix64 */
  uint64_t z = seed + number * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/* The number of this call among those that are looked for; 0 where it is none or not its turn. */
static uint64_t turn(enum kind kind, const char* given) {
  if (!is_ready || !is_wanted[kind] || !given[0] || strncmp(given, "/proc/", 6) == 0) return 0;
  char path[2 * PATH_MAX], line[2 * PATH_MAX + 40];
  snprintf(path, sizeof path, "%s%s%s", given[0] == '/' ? "" : folder, given[0] == '/' ? "" : "/",
           given);
  if (!strstr(path, part)) return 0;
  const uint64_t number = __atomic_add_fetch(count, 1, __ATOMIC_RELAXED);
  const int is_its_turn = number == nth || (and_later && number >= nth);
  const int length =
      snprintf(line, sizeof line, "%s%s %s\n", is_its_turn ? "FAULT " : "", kinds[kind], path);
  if (log_file >= 0 && syscall(SYS_write, log_file, line, (size_t)length) < 0) _exit(97);
  return is_its_turn ? number : 0;
}

/* Whether the call is to fail, with errno set. */
static int fails(enum kind kind, const char* path) {
  const int kept = errno;
  const uint64_t number = turn(kind, path);
  errno = kept;
  if (!number) return 0;
  if (what == VANISH) {
    char gone[PATH_MAX + 8];
    snprintf(gone, sizeof gone, "%s.gone", about);
    syscall(SYS_renameat2, AT_FDCWD, about, AT_FDCWD, gone, 0);
  }
  for (int i = 0; what == WAIT && i < 60000 && syscall(SYS_faccessat, AT_FDCWD, about, F_OK) != 0;
       ++i)
    usleep(10000);
  const int can_wait = kind == OPEN || kind == READ || kind == PREAD || kind == WRITE ||
                       kind == PWRITE || kind == FSYNC || kind == FDATASYNC || kind == TRUNCATE ||
                       kind == RESERVE || kind == COPY;
  if (what == INTERRUPT && can_wait && number % 2 == 1) {
    errno = EINTR;
    return 1;
  }
  if (what != FAIL) return 0;
  errno = failure;
  return 1;
}

static int fails_on(enum kind kind, int descriptor) {
  char path[PATH_MAX];
  return fails(kind, path_of(descriptor, path));
}

static int fails_in(enum kind kind, int descriptor, const char* name) {
  char path[PATH_MAX];
  return fails(kind, path_in(descriptor, name, path));
}

/* How many of size bytes a transfer is to do; -1 with errno set where it is to fail. */
static ssize_t allowed(enum kind kind, int descriptor, size_t size) {
  char path[PATH_MAX];
  path_of(descriptor, path);
  if (what != SHORT) return fails(kind, path) ? -1 : (ssize_t)size;
  const uint64_t number = turn(kind, path);
  return number && size > 1 ? (ssize_t)(1 + drawn(number) % (size - 1)) : (ssize_t)size;
}

/* Opening */

#define OPENING(name)                                                                     \
  int name(const char* path, int flags, ...) {                                            \
    REAL(int, name, const char*, int, ...);                                               \
    va_list more;                                                                         \
    va_start(more, flags);                                                                \
    const mode_t mode = va_arg(more, mode_t);                                             \
    va_end(more);                                                                         \
    return fails(flags & O_DIRECTORY ? LIST : OPEN, path) ? -1 : real(path, flags, mode); \
  }
OPENING(open)
OPENING(open64)

#define OPENING_AT(name)                                             \
  int name(int folder, const char* path, int flags, ...) {           \
    REAL(int, name, int, const char*, int, ...);                     \
    va_list more;                                                    \
    va_start(more, flags);                                           \
    const mode_t mode = va_arg(more, mode_t);                        \
    va_end(more);                                                    \
    return fails_in(flags & O_DIRECTORY ? LIST : OPEN, folder, path) \
               ? -1                                                  \
               : real(folder, path, flags, mode);                    \
  }
OPENING_AT(openat)
OPENING_AT(openat64)

#define OPENING_STREAM(name)                            \
  FILE* name(const char* path, const char* mode) {      \
    REAL(FILE*, name, const char*, const char*);        \
    return fails(OPEN, path) ? NULL : real(path, mode); \
  }
OPENING_STREAM(fopen)
OPENING_STREAM(fopen64)

#define SCRATCH(name)                                 \
  int name(char* pattern) {                           \
    REAL(int, name, char*);                           \
    return fails(OPEN, pattern) ? -1 : real(pattern); \
  }
SCRATCH(mkstemp)
SCRATCH(mkstemp64)

#define SCRATCH_WITH(name)                                   \
  int name(char* pattern, int flags) {                       \
    REAL(int, name, char*, int);                             \
    return fails(OPEN, pattern) ? -1 : real(pattern, flags); \
  }
SCRATCH_WITH(mkostemp)
SCRATCH_WITH(mkostemp64)

DIR* opendir(const char* path) {
  REAL(DIR*, opendir, const char*);
  return fails(LIST, path) ? NULL : real(path);
}

DIR* fdopendir(int descriptor) {
  REAL(DIR*, fdopendir, int);
  return fails_on(LIST, descriptor) ? NULL : real(descriptor);
}

#define LISTING(name, entry)                                    \
  struct entry* name(DIR* folder) {                             \
    REAL(struct entry*, name, DIR*);                            \
    return fails_on(LIST, dirfd(folder)) ? NULL : real(folder); \
  }
LISTING(readdir, dirent)
LISTING(readdir64, dirent64)

#define LOOKING(name, about)                            \
  int name(const char* path, struct about* status) {    \
    REAL(int, name, const char*, struct about*);        \
    return fails(STAT, path) ? -1 : real(path, status); \
  }
LOOKING(stat, stat)
LOOKING(lstat, stat)
LOOKING(stat64, stat64)
LOOKING(lstat64, stat64)

#define LOOKING_AT(name, about)                                        \
  int name(int descriptor, struct about* status) {                     \
    REAL(int, name, int, struct about*);                               \
    return fails_on(STAT, descriptor) ? -1 : real(descriptor, status); \
  }
LOOKING_AT(fstat, stat)
LOOKING_AT(fstat64, stat64)

#define LOOKING_IN(name, about)                                                           \
  int name(int descriptor, const char* path, struct about* status, int flags) {           \
    REAL(int, name, int, const char*, struct about*, int);                                \
    return fails_in(STAT, descriptor, path) ? -1 : real(descriptor, path, status, flags); \
  }
LOOKING_IN(fstatat, stat)
LOOKING_IN(fstatat64, stat64)

/* Bytes */

ssize_t read(int descriptor, void* bytes, size_t size) {
  REAL(ssize_t, read, int, void*, size_t);
  const ssize_t some = allowed(READ, descriptor, size);
  return some < 0 ? -1 : real(descriptor, bytes, (size_t)some);
}

ssize_t write(int descriptor, const void* bytes, size_t size) {
  REAL(ssize_t, write, int, const void*, size_t);
  const ssize_t some = allowed(WRITE, descriptor, size);
  return some < 0 ? -1 : real(descriptor, bytes, (size_t)some);
}

#define READING_AT(name, offset_type)                                          \
  ssize_t name(int descriptor, void* bytes, size_t size, offset_type offset) { \
    REAL(ssize_t, name, int, void*, size_t, offset_type);                      \
    const ssize_t some = allowed(PREAD, descriptor, size);                     \
    return some < 0 ? -1 : real(descriptor, bytes, (size_t)some, offset);      \
  }
READING_AT(pread, off_t)
READING_AT(pread64, off64_t)

#define WRITING_AT(name, offset_type)                                                \
  ssize_t name(int descriptor, const void* bytes, size_t size, offset_type offset) { \
    REAL(ssize_t, name, int, const void*, size_t, offset_type);                      \
    const ssize_t some = allowed(PWRITE, descriptor, size);                          \
    return some < 0 ? -1 : real(descriptor, bytes, (size_t)some, offset);            \
  }
WRITING_AT(pwrite, off_t)
WRITING_AT(pwrite64, off64_t)

ssize_t copy_file_range(int from, off64_t* from_offset, int to, off64_t* to_offset, size_t size,
                        unsigned flags) {
  REAL(ssize_t, copy_file_range, int, off64_t*, int, off64_t*, size_t, unsigned);
  const ssize_t some = allowed(COPY, to, size);
  return some < 0 ? -1 : real(from, from_offset, to, to_offset, (size_t)some, flags);
}

/* To the disk */

#define FLUSHING(name, kind)                                   \
  int name(int descriptor) {                                   \
    REAL(int, name, int);                                      \
    return fails_on(kind, descriptor) ? -1 : real(descriptor); \
  }
FLUSHING(fsync, FSYNC)
FLUSHING(fdatasync, FDATASYNC)

int close(int descriptor) {
  REAL(int, close, int);
  const int is_lost = fails_on(CLOSE, descriptor);
  const int code = errno;
  const int result = real(descriptor); /* closed in any case, as the system does it */
  if (!is_lost) return result;
  errno = code;
  return -1;
}

#define CUTTING(name, offset_type)                                       \
  int name(int descriptor, offset_type size) {                           \
    REAL(int, name, int, offset_type);                                   \
    return fails_on(TRUNCATE, descriptor) ? -1 : real(descriptor, size); \
  }
CUTTING(ftruncate, off_t)
CUTTING(ftruncate64, off64_t)

#define RESERVING(name, offset_type)                                               \
  int name(int descriptor, offset_type offset, offset_type size) {                 \
    REAL(int, name, int, offset_type, offset_type);                                \
    return fails_on(RESERVE, descriptor) ? errno : real(descriptor, offset, size); \
  }
RESERVING(posix_fallocate, off_t)
RESERVING(posix_fallocate64, off64_t)

int ioctl(int descriptor, unsigned long request, ...) {
  REAL(int, ioctl, int, unsigned long, ...);
  va_list more;
  va_start(more, request);
  void* argument = va_arg(more, void*);
  va_end(more);
  return fails_on(CLONE, descriptor) ? -1 : real(descriptor, request, argument);
}

/* Names */

int rename(const char* from, const char* to) {
  REAL(int, rename, const char*, const char*);
  return fails(RENAME, to) ? -1 : real(from, to);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  REAL(int, renameat2, int, const char*, int, const char*, unsigned);
  return fails_in(RENAME, to_folder, to) ? -1 : real(from_folder, from, to_folder, to, flags);
}

int mkdir(const char* path, mode_t mode) {
  REAL(int, mkdir, const char*, mode_t);
  return fails(MKDIR, path) ? -1 : real(path, mode);
}

int mkdirat(int descriptor, const char* path, mode_t mode) {
  REAL(int, mkdirat, int, const char*, mode_t);
  return fails_in(MKDIR, descriptor, path) ? -1 : real(descriptor, path, mode);
}

/* Mapping */

static void* cut_if_asked(void* data, int descriptor, const char* path) {
  if (what != CUT || data == MAP_FAILED || !turn(MAP, path)) return data;
  struct stat status;
  if (syscall(SYS_fstat, descriptor, &status) != 0) _exit(98);
  const long size = cuts_half ? status.st_size / 2 : cut_to < 0 ? status.st_size + cut_to : cut_to;
  if (truncate(path, size < 0 ? 0 : size) != 0) _exit(98);
  return data;
}

#define MAPPING(name, offset_type)                                                            \
  void* name(void* place, size_t size, int protection, int flags, int descriptor,             \
             offset_type offset) {                                                            \
    REAL(void*, name, void*, size_t, int, int, int, offset_type);                             \
    if (descriptor < 0) return real(place, size, protection, flags, descriptor, offset);      \
    char path[PATH_MAX];                                                                      \
    path_of(descriptor, path);                                                                \
    if (what != CUT && fails(MAP, path)) return MAP_FAILED;                                   \
    return cut_if_asked(real(place, size, protection, flags, descriptor, offset), descriptor, \
                        path);                                                                \
  }
MAPPING(mmap, off_t)
MAPPING(mmap64, off64_t)
