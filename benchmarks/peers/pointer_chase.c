/* A second chase of pointers, written apart from tierfeed's own: the cycle is drawn by Sattolo's
 * algorithm as an array of successors (tierfeed walks a permutation), the cache line inside each
 * stride comes from a hash (tierfeed draws it), and the loop is plain C (tierfeed's is assembly).
 *
 * Arguments: bytes, stride, group (each divides the one before), 1 for huge pages else 0, hops of a
 * sample, samples, CPU.
 * Output: `chase NANOSECONDS SHARE` for each sample, `huge_bytes BYTES` at the end.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { HUGE_PAGE = 2 << 20, LINE = 64 };

static uint64_t state = 88172645463325252u;

static uint64_t draw(uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

static int64_t now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

/* Sattolo: one cycle through all of 0..count, as successors. */
static void draw_cycle(uint32_t *next, uint64_t count) {
    for (uint64_t i = 0; i < count; i++)
        next[i] = (uint32_t)i;
    for (uint64_t i = count - 1; i > 0; i--) {
        uint64_t j = draw(i);
        uint32_t kept = next[i];
        next[i] = next[j];
        next[j] = kept;
    }
}

static char *place(char *start, uint64_t element, uint64_t stride) {
    uint64_t line = (element * UINT64_C(0x9e3779b97f4a7c15) >> 40) % (stride / LINE);
    return start + element * stride + line * LINE;
}

/* Leads through all elements of a group, then on to the next group. */
static char *link_all(char *start, uint64_t bytes, uint64_t stride, uint64_t group) {
    uint64_t groups = bytes / group, inside = group / stride;
    uint32_t *next_group = malloc(groups * sizeof *next_group), *next = malloc(inside * sizeof *next);
    if (!next_group || !next)
        exit(1);
    draw_cycle(next_group, groups);
    uint64_t at = 0;
    do {
        draw_cycle(next, inside);
        uint64_t element = 0;
        do {
            uint64_t following = next[element];
            char *to = following ? place(start, at * inside + following, stride)
                                 : place(start, next_group[at] * inside, stride);
            *(char **)place(start, at * inside + element, stride) = to;
            element = following;
        } while (element);
        at = next_group[at];
    } while (at);
    free(next_group);
    free(next);
    return place(start, 0, stride);
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

#define HOP at = *(char **)at;
#define HOPS_8 HOP HOP HOP HOP HOP HOP HOP HOP
#define HOPS_64 HOPS_8 HOPS_8 HOPS_8 HOPS_8 HOPS_8 HOPS_8 HOPS_8 HOPS_8

int main(int count_of_arguments, char **arguments) {
    if (count_of_arguments != 8)
        return 2;
    uint64_t number[8];
    for (int i = 1; i < 8; i++)
        number[i] = strtoull(arguments[i], NULL, 10);
    uint64_t bytes = number[1], stride = number[2], group = number[3], hops = number[5];
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(number[7], &cpus);
    if (sched_setaffinity(0, sizeof cpus, &cpus)) {
        perror("sched_setaffinity");
        return 1;
    }
    char *raw = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    char *start = (char *)(((uintptr_t)raw + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    madvise(start, bytes, number[4] ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    for (uint64_t offset = 0; offset < bytes; offset += 4096)
        start[offset] = 1;
    char *at = link_all(start, bytes, stride, group);
    for (uint64_t sample = 0; sample < number[6]; sample++) {
        int64_t cpu = now(CLOCK_THREAD_CPUTIME_ID), wall = now(CLOCK_MONOTONIC_RAW);
        for (uint64_t hop = 0; hop < hops; hop += 64) {
            HOPS_64
        }
        wall = now(CLOCK_MONOTONIC_RAW) - wall;
        cpu = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
        printf("chase %lld %.4f\n", (long long)wall, (double)cpu / (double)wall);
    }
    fprintf(stderr, "%s", at ? "" : "lost");
    printf("huge_bytes %lld\n", huge_bytes());
    return 0;
}
