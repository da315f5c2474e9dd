/*
 * A private PostgreSQL for a test program: a cluster in a temporary directory, reachable only by a
 * unix socket in it, started on first use and stopped when the program ends, also when it crashes.
 */
#pragma once

#include <stdbool.h>

/*
 * False when there is no PostgreSQL on this machine, after saying so; the caller skips. With
 * BERTH_REQUIRE_POSTGRES set the program fails instead. Call it from the main thread.
 */
bool pg_fixture_start(void);

/* The URL of a new, empty database. The caller frees it. */
char *pg_fixture_new_database(void);

/* Stops the server as a crash would and, with start, brings it up again on the same data. */
void pg_fixture_crash(void);
void pg_fixture_restart(void);
