/*
 * What the benchmarks share: rounds that interleave ours with a bare peer, the median of their
 * ratios, and a server of their own in a temporary data directory.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct bench {
	const char *berth; /* path of the program */
	int rounds;
	char dir[64]; /* temporary; removed at the end */
	pid_t server; /* 0: none */
	char socket[96];
};

void bench_begin(struct bench *b, int argc, char **argv);
void bench_end(struct bench *b);
_Noreturn void bench_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A program of the same build as --berth. */
void bench_beside(const struct bench *b, const char *name, char *out, size_t size);

double bench_now(void); /* seconds, CLOCK_MONOTONIC */

/* Starts `berth serve` on a unix socket in b->dir and waits until it is healthy. */
void bench_server_start(struct bench *b);
void bench_server_stop(struct bench *b);
/* Resident memory of a process and its children, in kB (Pss). */
long bench_memory_kb(pid_t pid);

typedef double bench_fn(struct bench *b, void *arg); /* seconds for one round's work */
/* One warm-up round, then b->rounds of ours and peer in turn; prints a line each; returns the
 * median ratio. */
double bench_compare(struct bench *b, bench_fn *ours, bench_fn *peer, void *arg);
/* The last line. */
void bench_print(const char *name, double ratio);

/* `threads` threads call fn(index, arg) once each; returns the seconds from first start to last
 * end. */
double bench_parallel(int threads, void (*fn)(int index, void *arg), void *arg);
