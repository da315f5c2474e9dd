/*
 * Finding processes in /proc, for places where no cgroup holds them. A process is signalled only
 * through a pidfd opened before it was looked at, so that a reused pid is never hit.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Signals every descendant of `ancestor`, not itself. Returns how many live ones (no zombies) there
 * were. */
size_t proc_signal_descendants(pid_t ancestor, int signal);
/*
 * Signals every process whose environment holds exactly `mark` ("NAME=value"), or that is in a
 * session led by such a process. Only processes whose environment may be read are seen. Returns how
 * many.
 */
size_t proc_signal_marked(const char *mark, int signal);
/* First process of our own user, not self, started with exactly these arguments; 0 when there is
 * none. */
pid_t proc_find_command(char *const *argv);
