/*
 * The bare peers of the exec benchmarks.
 */
#pragma once

/*
 * Commands of one round. Few, and many rounds: the machine's own speed changes within tenths of a
 * second, and what a round compares should have had the same.
 */
#define SPAWNS 20
#define SPAWN_ROUNDS 10 /* for each round that was asked for */

double spawn_true(int times);       /* seconds for that many posix_spawn + waitpid of `true` */
double pipe_bytes(long long bytes); /* seconds for `head -c BYTES /dev/zero` read through a pipe */
