/*
 * The bare peers of the exec benchmarks.
 */
#pragma once

double spawn_true(int times);       /* seconds for that many posix_spawn + waitpid of `true` */
double pipe_bytes(long long bytes); /* seconds for `head -c BYTES /dev/zero` read through a pipe */
