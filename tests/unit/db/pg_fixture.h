/*
 * A private PostgreSQL for a test program: a cluster in a temporary directory, reachable only by a
 * unix socket in it, started on first use and stopped when the program ends, also when it crashes.
 * With BERTH_TEST_POSTGRES=DIR it is the server that pg-shared keeps there, for several programs at
 * a time: making a cluster takes longer than most of them.
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

/* The same with the schema of the program: a copy, which is quicker than migrating every time. */
char *pg_fixture_migrated_database(void);

/* Where the server's socket is. */
const char *pg_fixture_dir(void);

/*
 * Stops the server as a crash would and, with start, brings it up again on the same data. Not with
 * a shared one.
 */
void pg_fixture_crash(void);
void pg_fixture_restart(void);
