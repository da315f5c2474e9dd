/*
 * The server's parts, wired together once by `berth serve` and given to every route handler.
 */
#pragma once

#include <pthread.h>
#include "http/http.h"
#include "run/run.h"

struct server_options {
	const char *data_path;
	const char *listen;       /* NULL: unix socket only */
	const char *socket_path;  /* NULL: <data>/berth.sock */
	const char *database_url; /* NULL: <data>/berth.db */
	bool allow_fake;
	bool idle_exit;       /* end when nothing runs and nobody asked for a while */
	int64_t idle_exit_ms; /* 0: 60 s */
	int64_t retention_ms; /* finished history older than this is pruned; 0: 30 days */
	int64_t absence_ms;   /* a place nobody speaks to ends after this long; 0: 15 min */
	char *const *allowed_paths; /* for native places; borrowed while the server starts */
	bool drain;           /* on SIGTERM wait for runs */

	/* Periods; 0 for the usual ones. */
	int64_t sweep_ms, reconcile_ms, cleanup_base_ms; /* as in struct leases_options */
	int64_t beat_ms;                                 /* 10 s; well below NODE_DEAD_MS */
};

struct server {
	struct server_options options;
	struct clock clock;
	struct node node;
	struct db *db;
	struct executor *executor;
	struct provider_host *providers;
	struct driver_host driver_host;
	struct drivers drivers;
	struct leases *leases;
	struct runs *runs;
	struct runlog_store *run_logs;
	struct execs *execs;
	struct http *http;
	pthread_t upkeep;
	int data_dirfd, lock_fd;
	int stop_fd;   /* latch: somebody here wants the server to end */
	int upkeep_fd; /* latch that ends the upkeep thread; -1 while there is none */
	char *data_path, *socket_path, *home_path;
	bool listening; /* the socket at socket_path is ours */
	int64_t started_at;
};

/*
 * Takes the lock (ERR_LOCKED names the holder), opens, recovers, listens. All or nothing. Call it
 * before other threads exist: from here on SIGTERM and SIGINT wait for server_run, and SIGPIPE is
 * ignored.
 */
int server_start(const struct server_options *options, struct server **server, struct error *err);
/*
 * Blocks until SIGTERM, SIGINT or idle exit, then stops in order: no more requests, runs, leases,
 * database. A second signal ends the process at once, which every start is prepared for.
 */
int server_run(struct server *server, struct error *err);
void server_free(struct server *server); /* stops it too, if server_run did not */

/* One table per resource; each ends with path NULL. */
extern const struct route COMPANY_ROUTES[], AGENT_ROUTES[], PROJECT_ROUTES[], ISSUE_ROUTES[];
extern const struct route ENVIRONMENT_ROUTES[], LEASE_ROUTES[], EXEC_ROUTES[], RUN_ROUTES[];
extern const struct route RUN_LOG_ROUTES[], ACTIVITY_ROUTES[], SYSTEM_ROUTES[], SANDBOX_ROUTES[];
extern const struct route EXEC_CONTROL_ROUTES[], EXEC_OUTPUT_ROUTES[], TERMINAL_ROUTES[];
extern const struct route FILE_ROUTES[];
extern const struct route *const ALL_ROUTES[]; /* NULL-terminated */
