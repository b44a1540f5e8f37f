/* A variant of STREAM, the memory benchmark of J. D. McCalpin: its four kernels, in its order, over
 * three arrays, several passes. It is no official STREAM: it prints every pass, with the least share
 * of a CPU that any thread had, and leaves the choice of the best to whoever reads.
 *
 * Arguments: bytes of an array (a multiple of 2 MiB), passes.
 * Output: `KERNEL NANOSECONDS SHARE` for each pass, `huge_bytes BYTES` at the end.
 */
#define _GNU_SOURCE
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { HUGE_PAGE = 2 << 20, THREADS_MAX = 4096 };

static int64_t before[THREADS_MAX], used[THREADS_MAX];

static int64_t now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static double *allocate(size_t bytes) {
    char *raw = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    char *start = (char *)(((uintptr_t)raw + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    madvise(start, bytes, MADV_HUGEPAGE);
    return (double *)start;
}

static int64_t begin(void) {
#pragma omp parallel
    before[omp_get_thread_num()] = now(CLOCK_THREAD_CPUTIME_ID);
    return now(CLOCK_MONOTONIC_RAW);
}

static void end(const char *kernel, int64_t started) {
    int64_t wall = now(CLOCK_MONOTONIC_RAW) - started;
#pragma omp parallel
    used[omp_get_thread_num()] = now(CLOCK_THREAD_CPUTIME_ID) - before[omp_get_thread_num()];
    int64_t least = wall;
    for (int thread = 0; thread < omp_get_max_threads(); thread++)
        if (used[thread] < least)
            least = used[thread];
    printf("%s %lld %.4f\n", kernel, (long long)wall, (double)least / (double)wall);
}

static void passes(double *restrict a, double *restrict b, double *restrict c, size_t count, int passes) {
    const double factor = 3.0;
    for (int pass = 0; pass < passes; pass++) {
        int64_t started = begin();
#pragma omp parallel for schedule(static)
        for (size_t j = 0; j < count; j++)
            c[j] = a[j];
        end("copy", started);

        started = begin();
#pragma omp parallel for schedule(static)
        for (size_t j = 0; j < count; j++)
            b[j] = factor * c[j];
        end("scale", started);

        started = begin();
#pragma omp parallel for schedule(static)
        for (size_t j = 0; j < count; j++)
            c[j] = a[j] + b[j];
        end("add", started);

        started = begin();
#pragma omp parallel for schedule(static)
        for (size_t j = 0; j < count; j++)
            a[j] = b[j] + factor * c[j];
        end("triad", started);
    }
}

/* The three values that every element must have. */
static int is_right(const double *a, const double *b, const double *c, size_t count, int passes) {
    double x = 1.0, y = 2.0, z = 0.0;
    for (int pass = 0; pass < passes; pass++) {
        z = x;
        y = 3.0 * z;
        z = x + y;
        x = y + 3.0 * z;
    }
    for (size_t j = 0; j < count; j += 509) {
        double off[3] = {a[j] / x - 1.0, b[j] / y - 1.0, c[j] / z - 1.0};
        for (int k = 0; k < 3; k++)
            if (off[k] > 1e-9 || off[k] < -1e-9)
                return 0;
    }
    return 1;
}

static long long huge_bytes(void) {
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    long long kib = -1;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "AnonHugePages: %lld kB", &kib) == 1)
            break;
    return kib < 0 ? -1 : kib * 1024;
}

int main(int count_of_arguments, char **arguments) {
    if (count_of_arguments != 3 || omp_get_max_threads() > THREADS_MAX)
        return 2;
    size_t bytes = strtoull(arguments[1], NULL, 10), count = bytes / sizeof(double);
    int pass_count = atoi(arguments[2]);
    double *a = allocate(bytes), *b = allocate(bytes), *c = allocate(bytes);
#pragma omp parallel for schedule(static)
    for (size_t j = 0; j < count; j++) {
        a[j] = 1.0;
        b[j] = 2.0;
        c[j] = 0.0;
    }
    passes(a, b, c, count, pass_count);
    if (!is_right(a, b, c, count, pass_count)) {
        fprintf(stderr, "the arrays hold wrong values\n");
        return 1;
    }
    printf("huge_bytes %lld\n", huge_bytes());
    return 0;
}
