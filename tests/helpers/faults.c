/* Make the n-th file operation under a folder fail. Loaded with LD_PRELOAD, controlled with ctypes by faults.py.

   Operations are counted in the process that calls `arm`; programs that it starts have counters of their own, which are
   off. Functions that glibc calls internally (write inside fwrite) cannot be replaced, so stdio has its own wrappers. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITES = 1, READS = 2, REMOVALS = 4 }; /* kinds of operations; a full disk does not keep one from removing */
enum { SHORT = -1, KILL = -2 };               /* instead of an error number: write half of the bytes; end the process */

static char root[PATH_MAX];
static int kinds, error, persistent;
static long first, counted;
static char last_operation[64 + PATH_MAX];

void arm(const char *folder, int which, long nth, int code, int stays) {
    strcpy(root, folder);
    kinds = which, first = nth, error = code, persistent = stays;
    __atomic_store_n(&counted, 0, __ATOMIC_SEQ_CST);
}
void disarm(void) { root[0] = 0; }
long count(void) { return counted; }
const char *failed(void) { return last_operation; }

static int below_root(int dir, const char *path) {
    char full[2 * PATH_MAX + 2], link[64];
    ssize_t n = 0;
    if (!path || path[0] != '/') {
        if (dir == AT_FDCWD) {
            if (!getcwd(full, PATH_MAX)) return 0;
            n = strlen(full);
        } else {
            snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
            if ((n = readlink(link, full, PATH_MAX)) < 0) return 0;
        }
        full[n] = 0;
    }
    if (path) snprintf(full + n, sizeof full - n, "%s%s", n ? "/" : "", path);
    n = strlen(root);
    return !strncmp(full, root, n) && (full[n] == '/' || full[n] == 0);
}

/* Count an operation; return the error it must fail with, SHORT, or 0. */
static int fault(const char *name, int kind, int dir, const char *path) {
    int old = errno, result = 0;
    if (root[0] && (kind & kinds) && below_root(dir, path)) {
        long n = __atomic_add_fetch(&counted, 1, __ATOMIC_SEQ_CST);
        if (n == first || (n > first && first > 0 && persistent && !(kind & REMOVALS && error == ENOSPC))) {
            if (n == first) snprintf(last_operation, sizeof last_operation, "%s %s", name, path ? path : "");
            result = error;
            if (error == KILL) kill(getpid(), SIGKILL);
        }
    }
    errno = old;
    return result;
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(real))dlsym(RTLD_NEXT, #name)
#define FAIL_OR(kind, dir, path, failed, call)                                                                         \
    int code = fault(__func__, kind, dir, path);                                                                       \
    if (code > 0) { errno = code; return failed; }                                                                     \
    return call

static int open_kind(int flags) { return (flags & (O_ACCMODE | O_CREAT | O_TRUNC)) ? WRITES : READS; }
static int stream_kind(const char *mode) { return strpbrk(mode, "wa+") ? WRITES : READS; }

#define OPEN_MODE mode_t mode = 0; va_list list; va_start(list, flags); if (flags & (O_CREAT | __O_TMPFILE)) mode = va_arg(list, mode_t); va_end(list)
#define OPEN(name) int name(const char *path, int flags, ...) {                                                        \
    REAL(name); OPEN_MODE; FAIL_OR(open_kind(flags), AT_FDCWD, path, -1, real(path, flags, mode)); }
#define OPENAT(name) int name(int dir, const char *path, int flags, ...) {                                             \
    REAL(name); OPEN_MODE; FAIL_OR(open_kind(flags), dir, path, -1, real(dir, path, flags, mode)); }
#define FOPEN(name) FILE *name(const char *path, const char *mode) {                                                   \
    REAL(name); FAIL_OR(stream_kind(mode), AT_FDCWD, path, NULL, real(path, mode)); }
OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64) FOPEN(fopen) FOPEN(fopen64)

#define TRANSFER(kind, fd, size)                                                                                       \
    int code = fault(__func__, kind, fd, NULL);                                                                        \
    if (code > 0) { errno = code; return -1; }                                                                         \
    if (code == SHORT && size > 1) size /= 2
ssize_t write(int fd, const void *data, size_t size) { REAL(write); TRANSFER(WRITES, fd, size); return real(fd, data, size); }
ssize_t read(int fd, void *data, size_t size) { REAL(read); TRANSFER(READS, fd, size); return real(fd, data, size); }
#define PWRITE(name) ssize_t name(int fd, const void *data, size_t size, off_t at) {                                   \
    REAL(name); TRANSFER(WRITES, fd, size); return real(fd, data, size, at); }
#define PREAD(name) ssize_t name(int fd, void *data, size_t size, off_t at) {                                          \
    REAL(name); TRANSFER(READS, fd, size); return real(fd, data, size, at); }
PWRITE(pwrite) PWRITE(pwrite64) PREAD(pread) PREAD(pread64)
ssize_t writev(int fd, const struct iovec *parts, int size) { REAL(writev); TRANSFER(WRITES, fd, size); return real(fd, parts, size); }
ssize_t sendfile(int to, int from, off_t *at, size_t size) {
    static ssize_t (*real)(int, int, off_t *, size_t);
    if (!real) real = (__typeof__(real))dlsym(RTLD_NEXT, "sendfile");
    TRANSFER(WRITES, to, size);
    return real(to, from, at, size);
}
ssize_t copy_file_range(int from, off64_t *a, int to, off64_t *b, size_t size, unsigned flags) {
    REAL(copy_file_range); TRANSFER(WRITES, to, size); return real(from, a, to, b, size, flags); }

/* The standard streams of C, as used by numpy and libstdc++. A short fwrite is an error of its own, which callers see. */
size_t fwrite(const void *data, size_t size, size_t items, FILE *file) {
    REAL(fwrite); FAIL_OR(WRITES, fileno(file), NULL, 0, real(data, size, items, file)); }
int fflush(FILE *file) { REAL(fflush); if (!file) return real(file); FAIL_OR(WRITES, fileno(file), NULL, EOF, real(file)); }
size_t fread(void *data, size_t size, size_t items, FILE *file) {
    REAL(fread); FAIL_OR(READS, fileno(file), NULL, 0, real(data, size, items, file)); }

/* A descriptor is closed even if close fails. */
static int writable(int fd) { return root[0] && (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY ? WRITES : 0; }
int close(int fd) {
    REAL(close);
    int code = fault("close", writable(fd), fd, NULL), result = real(fd);
    if (code > 0) { errno = code; return -1; }
    return result;
}
int fclose(FILE *file) {
    REAL(fclose);
    int code = fault("fclose", writable(fileno(file)), fileno(file), NULL), result = real(file);
    if (code > 0) { errno = code; return EOF; }
    return result;
}

#define ON_FD(name, types, ...) int name types { REAL(name); FAIL_OR(WRITES, fd, NULL, -1, real(__VA_ARGS__)); }
ON_FD(fsync, (int fd), fd)
ON_FD(fdatasync, (int fd), fd)
ON_FD(ftruncate, (int fd, off_t size), fd, size)
ON_FD(ftruncate64, (int fd, off64_t size), fd, size)
ON_FD(fallocate, (int fd, int mode, off_t at, off_t size), fd, mode, at, size)
ON_FD(fchmod, (int fd, mode_t mode), fd, mode)
int flock(int fd, int operation) { REAL(flock); FAIL_OR(writable(fd) ? WRITES : READS, fd, NULL, -1, real(fd, operation)); }
int posix_fallocate(int fd, off_t at, off_t size) {
    REAL(posix_fallocate);
    int code = fault("posix_fallocate", WRITES, fd, NULL);
    return code > 0 ? code : real(fd, at, size);
}

#define ON_PATH(name, kind, types, dir, path, ...) int name types { REAL(name); FAIL_OR(kind, dir, path, -1, real(__VA_ARGS__)); }
ON_PATH(mkdir, WRITES, (const char *path, mode_t mode), AT_FDCWD, path, path, mode)
ON_PATH(mkdirat, WRITES, (int dir, const char *path, mode_t mode), dir, path, dir, path, mode)
ON_PATH(rename, WRITES, (const char *path, const char *to), AT_FDCWD, to, path, to)
ON_PATH(renameat, WRITES, (int dir, const char *path, int at, const char *to), at, to, dir, path, at, to)
ON_PATH(renameat2, WRITES, (int dir, const char *path, int at, const char *to, unsigned f), at, to, dir, path, at, to, f)
ON_PATH(link, WRITES, (const char *path, const char *to), AT_FDCWD, to, path, to)
ON_PATH(symlink, WRITES, (const char *path, const char *to), AT_FDCWD, to, path, to)
ON_PATH(chmod, WRITES, (const char *path, mode_t mode), AT_FDCWD, path, path, mode)
ON_PATH(fchmodat, WRITES, (int dir, const char *path, mode_t mode, int flags), dir, path, dir, path, mode, flags)
ON_PATH(unlink, WRITES | REMOVALS, (const char *path), AT_FDCWD, path, path)
ON_PATH(unlinkat, WRITES | REMOVALS, (int dir, const char *path, int flags), dir, path, dir, path, flags)
ON_PATH(rmdir, WRITES | REMOVALS, (const char *path), AT_FDCWD, path, path)

#define MMAP(name) void *name(void *at, size_t size, int access, int flags, int fd, off_t offset) {                    \
    REAL(name); int kind = fd < 0 ? 0 : (flags & MAP_SHARED) && (access & PROT_WRITE) ? WRITES : READS;                \
    FAIL_OR(kind, fd, NULL, MAP_FAILED, real(at, size, access, flags, fd, offset)); }
MMAP(mmap) MMAP(mmap64)
