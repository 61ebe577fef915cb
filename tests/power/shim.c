/* Loaded in front of a test process: writes down every system call that changes files below one directory, in one order
 * and with the data, and makes chosen calls fail.
 *
 * A seccomp filter hands the calls to a signal handler here, which carries them out itself. So nothing is missed: not the
 * I/O of C++, not that of libc's own functions, not a call that a library makes without libc. The filter lets through what
 * comes from `power_call`, the one place that does the real calls.
 *
 * Environment:
 *   ONCEFLOW_POWER_WATCH   the directory, absolute, without a slash at its end
 *   ONCEFLOW_POWER_LOG     the file to write to; see recording.rs for its format
 *   ONCEFLOW_POWER_FAULT   optional: "<class> <number> <errno> <sticky>": the call of this class (a letter, see `classes`)
 *                          with this number, from 0, fails; errno 0: it writes the first half only; -2: it is
 *                          a sync, and takes 10 s. Sticky 1: so do all
 *                          later calls that need space
 *
 * The file `marks` in the directory is how the process says what it has done: its writes are written down like others, and
 * never made to fail.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

long power_call(long number, long a, long b, long c, long d, long e, long f);
extern const char power_call_end[] __attribute__((visibility("hidden")));

#if defined(__x86_64__)
__asm__(".text\n.hidden power_call\n.hidden power_call_end\n.globl power_call\n.globl power_call_end\n"
        "power_call: mov %rdi,%rax; mov %rsi,%rdi; mov %rdx,%rsi; mov %rcx,%rdx; mov %r8,%r10; mov %r9,%r8;"
        "mov 8(%rsp),%r9; syscall\npower_call_end: ret\n");
#define NUMBER(context) ((context)->uc_mcontext.gregs[REG_RAX])
#define RESULT(context) NUMBER(context)
static long argument(const ucontext_t *context, int at) {
    static const int registers[] = {REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9};
    return context->uc_mcontext.gregs[registers[at]];
}
#elif defined(__aarch64__)
__asm__(".text\n.hidden power_call\n.hidden power_call_end\n.globl power_call\n.globl power_call_end\n"
        "power_call: mov x8,x0; mov x0,x1; mov x1,x2; mov x2,x3; mov x3,x4; mov x4,x5; mov x5,x6; svc #0\n"
        "power_call_end: ret\n");
#define NUMBER(context) ((context)->uc_mcontext.regs[8])
#define RESULT(context) ((context)->uc_mcontext.regs[0])
static long argument(const ucontext_t *context, int at) { return context->uc_mcontext.regs[at]; }
#else
#error "written for x86-64 and arm64"
#endif

#define CALL(number, ...) CALL_(number, __VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define CALL_(number, a, b, c, d, e, f, ...)                                                                            \
    power_call(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

enum { PATH_BYTES = 4096, VECTORS_MAX = 1024, SLOW = 2, SLOW_SECONDS = 10 };

static char watched[PATH_BYTES];
static size_t watched_length;
static int log_file = -1;
static volatile int busy;

/* What was asked to fail. */
static char fault_class;
static long fault_number = -1, fault_errno, fault_sticky;
static int full;
/* write, sync, open, rename, resize, unlink, mkdir */
static const char classes[] = "wsortum";
static long counts[sizeof classes];

/* One written-down call; paths and data follow. Little-endian on the machines this runs on. */
struct entry {
    uint8_t operation, flag;
    uint16_t path_bytes, second_bytes, zero;
    int64_t result;
    uint64_t inode, offset, length, data_bytes;
};

static void die(const char *what) {
    CALL(SYS_write, 2, what, strlen(what));
    CALL(SYS_exit_group, 97);
}

static void lock(void) {
    while (__atomic_exchange_n(&busy, 1, __ATOMIC_ACQUIRE)) CALL(SYS_sched_yield, 0);
}

static void unlock(void) { __atomic_store_n(&busy, 0, __ATOMIC_RELEASE); }

/* The path of an open file. */
static int path_of(long file, char *path) {
    char link[40];
    char digits[12];
    int count = 0, at;
    if (file < 0) return 0;
    do digits[count++] = (char)('0' + file % 10); while ((file /= 10) > 0);
    memcpy(link, "/proc/self/fd/", 14);
    for (at = 14; count > 0;) link[at++] = digits[--count];
    link[at] = 0;
    long length = CALL(SYS_readlinkat, AT_FDCWD, link, path, PATH_BYTES - 1);
    path[length > 0 ? length : 0] = 0;
    return length > 0;
}

/* The absolute path of a name as a call gives it. */
static int absolute(long directory, const char *name, char *path) {
    if (name[0] == '/') return strlen(name) < PATH_BYTES ? (strcpy(path, name), 1) : 0;
    if ((int)directory == AT_FDCWD) {
        long length = CALL(SYS_readlinkat, AT_FDCWD, "/proc/self/cwd", path, PATH_BYTES - 1);
        path[length > 0 ? length : 0] = 0;
    } else if (!path_of(directory, path)) {
        return 0;
    }
    if (strlen(path) + strlen(name) + 2 > PATH_BYTES) return 0;
    strcat(path, "/");
    strcat(path, name);
    return 1;
}

static int is_watched(const char *path) {
    return !strncmp(path, watched, watched_length) && (path[watched_length] == '/' || path[watched_length] == 0);
}

static int is_marks(const char *path) { return is_watched(path) && !strcmp(path + watched_length, "/marks"); }

static void record(struct entry *entry, const char *path, const char *second, const struct iovec *data, int vectors) {
    /* The paths count from the watched directory on. */
    struct iovec parts[3 + VECTORS_MAX] = {{entry, sizeof *entry}};
    int count = 1;
    uint64_t left = entry->data_bytes;
    if (path) {
        parts[count++] = (struct iovec){(char *)path + watched_length, strlen(path + watched_length)};
        entry->path_bytes = (uint16_t)parts[1].iov_len;
    }
    if (second) {
        parts[count] = (struct iovec){(char *)second + watched_length, strlen(second + watched_length)};
        entry->second_bytes = (uint16_t)parts[count++].iov_len;
    }
    for (int at = 0; at < vectors && left > 0; at++) {
        parts[count] = data[at];
        if (parts[count].iov_len > left) parts[count].iov_len = left;
        left -= parts[count++].iov_len;
    }
    /* The kernel takes that many parts at once. */
    for (int at = 0; at < count; at += VECTORS_MAX) {
        int now = count - at < VECTORS_MAX ? count - at : VECTORS_MAX;
        long wanted = 0;
        for (int part = at; part < at + now; part++) wanted += (long)parts[part].iov_len;
        if (CALL(SYS_writev, log_file, parts + at, now) != wanted) die("power shim: its log cannot be written\n");
    }
}

/* Whether this call of a class is to fail: the negative errno, 0 for a short write, 1 for no, SLOW for one that takes long. */
static long fault(char class, int needs_space) {
    long number = counts[strchr(classes, class) - classes]++;
    if (full && needs_space) return -fault_errno;
    if (class != fault_class || number != fault_number) return 1;
    full = (int)fault_sticky;
    return -fault_errno;
}

static int watched_file(long file, char *path, struct stat *status) {
    if (CALL(SYS_fstat, file, status) || (!S_ISREG(status->st_mode) && !S_ISDIR(status->st_mode))) return 0;
    return path_of(file, path) && is_watched(path);
}

static long do_open(long number, const long *given) {
    char path[PATH_BYTES];
    long directory = AT_FDCWD, flags, mode;
    const char *name;
#ifdef SYS_open
    if (number == SYS_open) name = (const char *)given[0], flags = given[1], mode = given[2];
    else if (number == SYS_creat) name = (const char *)given[0], flags = O_CREAT | O_WRONLY | O_TRUNC, mode = given[1];
    else
#endif
        directory = given[0], name = (const char *)given[1], flags = given[2], mode = given[3];
    if (!absolute(directory, name, path) || !is_watched(path)) return CALL(SYS_openat, directory, name, flags, mode);
    struct stat status;
    lock();
    int missing = CALL(SYS_newfstatat, directory, name, &status, 0) == -ENOENT;
    long failure = is_marks(path) ? 1 : fault('o', (flags & O_CREAT) && missing);
    long result = failure < 0 ? failure : CALL(SYS_openat, directory, name, flags, mode);
    int creates = missing && (flags & O_CREAT), cuts = !missing && (flags & O_TRUNC);
    struct entry entry = {.operation = 'o', .flag = (uint8_t)(creates | cuts << 1), .result = result};
    if (result >= 0 && CALL(SYS_fstat, result, &status) == 0) entry.inode = status.st_ino;
    record(&entry, path, NULL, NULL, 0);
    unlock();
    return result;
}

static long do_write(long number, const long *given) {
    char path[PATH_BYTES];
    struct stat status;
    if (!watched_file(given[0], path, &status)) return CALL(number, given[0], given[1], given[2], given[3], given[4], given[5]);
    struct iovec one = {(void *)given[1], (size_t)given[2]};
    int vectored = number != SYS_write && number != SYS_pwrite64;
    const struct iovec *data = vectored ? (const struct iovec *)given[1] : &one;
    int vectors = vectored ? (int)given[2] : 1;
    int placed = number != SYS_write && number != SYS_writev;
    if (vectors > VECTORS_MAX) die("power shim: too many parts in one write\n");
    lock();
    long failure = is_marks(path) ? 1 : fault('w', 1);
    CALL(SYS_fstat, given[0], &status);
    int appends = CALL(SYS_fcntl, given[0], F_GETFL) & O_APPEND;
    long offset = appends ? status.st_size : placed ? given[3] : CALL(SYS_lseek, given[0], 0, SEEK_CUR);
    long result = failure;
    if (failure == 0) {
        size_t half = data[0].iov_len / 2 + (data[0].iov_len < 2);
        result = placed ? CALL(SYS_pwrite64, given[0], data[0].iov_base, half, given[3])
                        : CALL(SYS_write, given[0], data[0].iov_base, half);
    } else if (failure > 0) {
        result = CALL(number, given[0], given[1], given[2], given[3], given[4], given[5]);
    }
    struct entry entry = {.operation = 'w', .result = result, .inode = status.st_ino, .offset = (uint64_t)offset};
    entry.data_bytes = entry.length = result > 0 ? (uint64_t)result : 0;
    record(&entry, path, NULL, data, vectors);
    unlock();
    return result;
}

/* Calls on an open file that bring no data: syncs and changes of length. */
static long do_file(long number, const long *given, char operation, char class) {
    char path[PATH_BYTES];
    struct stat status;
    if (!watched_file(given[0], path, &status)) return CALL(number, given[0], given[1], given[2], given[3]);
    lock();
    long failure = fault(class, number == SYS_fallocate);
    if (failure == SLOW) {
        struct timespec time = {.tv_sec = SLOW_SECONDS};
        unlock();
        CALL(SYS_nanosleep, &time, 0);
        lock();
    }
    long result = failure <= 0 ? (failure < 0 ? failure : -EIO) : CALL(number, given[0], given[1], given[2], given[3]);
    struct entry entry = {.operation = (uint8_t)operation, .flag = S_ISDIR(status.st_mode), .result = result};
    entry.inode = status.st_ino;
    entry.length = operation == 't' ? (uint64_t)given[1] : 0;
    if (operation == 'f') {
        entry.flag = (uint8_t)given[1];
        entry.offset = (uint64_t)given[2];
        entry.length = (uint64_t)given[3];
    }
    record(&entry, path, NULL, NULL, 0);
    unlock();
    return result;
}

/* Calls on names. */
static long do_name(long number, const long *given, char operation, char class, long from, const char *name, long to,
                    const char *second, int flag) {
    char path[PATH_BYTES], other[PATH_BYTES];
    int seen = absolute(from, name, path) && is_watched(path);
    int seen_other = second && absolute(to, second, other) && is_watched(other);
    if (!seen && !seen_other) return CALL(number, given[0], given[1], given[2], given[3], given[4]);
    if (second && seen != seen_other) die("power shim: a file crosses the border of the directory\n");
    lock();
    long failure = fault(class, operation == 'm');
    long result = failure <= 0 ? (failure < 0 ? failure : -EIO) : CALL(number, given[0], given[1], given[2], given[3], given[4]);
    struct entry entry = {.operation = (uint8_t)operation, .flag = (uint8_t)flag, .result = result};
    record(&entry, path, second ? other : NULL, NULL, 0);
    unlock();
    return result;
}

/* Changes that this shim cannot see in full: written down, so that the recording is refused. */
static long do_unseen(long number, const long *given, long file) {
    char path[PATH_BYTES];
    struct stat status;
    long result = CALL(number, given[0], given[1], given[2], given[3], given[4], given[5]);
    if (result >= 0 && watched_file(file, path, &status)) {
        lock();
        struct entry entry = {.operation = '?', .result = number};
        record(&entry, path, NULL, NULL, 0);
        unlock();
    }
    return result;
}

static long perform(long number, const long *given) {
    switch (number) {
#ifdef SYS_open
    case SYS_open:
    case SYS_creat:
#endif
    case SYS_openat: return do_open(number, given);
    case SYS_write:
    case SYS_pwrite64:
    case SYS_writev:
    case SYS_pwritev:
    case SYS_pwritev2: return do_write(number, given);
    case SYS_fsync:
    case SYS_fdatasync: return do_file(number, given, 's', 's');
    case SYS_ftruncate: return do_file(number, given, 't', 't');
    case SYS_fallocate: return do_file(number, given, 'f', 't');
#ifdef SYS_rename
    case SYS_rename: return do_name(number, given, 'r', 'r', AT_FDCWD, (char *)given[0], AT_FDCWD, (char *)given[1], 0);
    case SYS_link: return do_name(number, given, 'l', 'r', AT_FDCWD, (char *)given[0], AT_FDCWD, (char *)given[1], 0);
    case SYS_unlink:
    case SYS_rmdir: return do_name(number, given, 'u', 'u', AT_FDCWD, (char *)given[0], 0, NULL, number == SYS_rmdir);
    case SYS_mkdir: return do_name(number, given, 'm', 'm', AT_FDCWD, (char *)given[0], 0, NULL, 0);
#endif
#ifdef SYS_renameat
    case SYS_renameat:
#endif
    case SYS_renameat2: return do_name(number, given, 'r', 'r', given[0], (char *)given[1], given[2], (char *)given[3], 0);
    case SYS_linkat: return do_name(number, given, 'l', 'r', given[0], (char *)given[1], given[2], (char *)given[3], 0);
    case SYS_unlinkat: return do_name(number, given, 'u', 'u', given[0], (char *)given[1], 0, NULL, !!(given[2] & AT_REMOVEDIR));
    case SYS_mkdirat: return do_name(number, given, 'm', 'm', given[0], (char *)given[1], 0, NULL, 0);
    case SYS_mmap: return do_unseen(number, given, given[4]);
    case SYS_copy_file_range: return -ENOSYS; /* The caller goes on with reads and writes. */
    case SYS_sendfile: return -EINVAL;        /* So it does here. */
    case SYS_io_uring_setup: return -ENOSYS;
    }
    die("power shim: a call that it does not know\n");
    return -ENOSYS;
}

static void on_call(int signal, siginfo_t *info, void *opaque) {
    (void)signal, (void)info;
    ucontext_t *context = opaque;
    int kept = errno;
    long given[6];
    for (int at = 0; at < 6; at++) given[at] = argument(context, at);
    RESULT(context) = perform((long)NUMBER(context), given);
    errno = kept;
}

static const int trapped[] = {
#ifdef SYS_open
    SYS_open, SYS_creat, SYS_rename, SYS_link, SYS_unlink, SYS_rmdir, SYS_mkdir,
#endif
#ifdef SYS_renameat
    SYS_renameat,
#endif
    SYS_openat, SYS_write, SYS_pwrite64, SYS_writev, SYS_pwritev, SYS_pwritev2, SYS_fsync, SYS_fdatasync, SYS_ftruncate,
    SYS_fallocate, SYS_renameat2, SYS_linkat, SYS_unlinkat, SYS_mkdirat, SYS_copy_file_range, SYS_sendfile,
    SYS_io_uring_setup};

static void install_filter(void) {
    enum { COUNT = sizeof trapped / sizeof *trapped };
    struct sock_filter filter[COUNT + 16];
    int length = 0;
#define ADD(...) filter[length++] = (struct sock_filter)__VA_ARGS__
#define LOAD(field) ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(field)))
    uint64_t own = (uint64_t)(uintptr_t)power_call_end;
    size_t pointer = offsetof(struct seccomp_data, instruction_pointer);
    LOAD(pointer);
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)own, 0, 3));
    LOAD(pointer + 4);
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(own >> 32), 0, 1));
    ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    LOAD(offsetof(struct seccomp_data, nr));
    /* A shared, writable mapping of a file is a way to change it. */
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 7));
    LOAD(offsetof(struct seccomp_data, args) + 3 * 8);
    ADD(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, MAP_SHARED | MAP_ANONYMOUS));
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MAP_SHARED, 0, 3));
    LOAD(offsetof(struct seccomp_data, args) + 2 * 8);
    ADD(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_WRITE, 0, 1));
    ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP));
    ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    for (int at = 0; at < COUNT; at++)
        ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)trapped[at], (uint8_t)(COUNT - at), 0));
    ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP));
    struct sock_fprog program = {(unsigned short)length, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        die("power shim: seccomp is not allowed here\n");
}

__attribute__((constructor)) static void begin(void) {
    const char *directory = getenv("ONCEFLOW_POWER_WATCH"), *log = getenv("ONCEFLOW_POWER_LOG");
    const char *wanted = getenv("ONCEFLOW_POWER_FAULT");
    if (!directory || !log) return;
    watched_length = strlen(directory);
    if (watched_length >= PATH_BYTES) die("power shim: path too long\n");
    strcpy(watched, directory);
    if (wanted && sscanf(wanted, "%c %ld %ld %ld", &fault_class, &fault_number, &fault_errno, &fault_sticky) != 4)
        die("power shim: unknown fault\n");
    int file = open(log, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    /* Out of the way of a program that counts its files. */
    log_file = fcntl(file, F_DUPFD_CLOEXEC, 900);
    close(file);
    if (log_file < 0) die("power shim: its log cannot be opened\n");
    struct sigaction action = {.sa_sigaction = on_call, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGSYS, &action, NULL);
    install_filter();
}
