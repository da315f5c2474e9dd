/*
 * The server's parts, wired together once by `berth serve` and given to every route handler.
 */
#pragma once

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
	bool drain;           /* on SIGTERM wait for runs */
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
	struct runlog_store *run_logs, *exec_logs;
	struct http *http;
	int data_dirfd, lock_fd, stop_fd; /* stop_fd: latch set by SIGTERM or idleness */
	char *data_path, *socket_path;
	int64_t started_at;
};

/* Takes the lock (ERR_LOCKED names the holder), opens, recovers, listens. All or nothing. */
int server_start(const struct server_options *options, struct server **server, struct error *err);
/* Blocks until SIGTERM, SIGINT or idle exit, then stops in order. Returns 0 or -1. */
int server_run(struct server *server, struct error *err);
void server_free(struct server *server);

/* One table per resource; each ends with path NULL. */
extern const struct route COMPANY_ROUTES[], AGENT_ROUTES[], PROJECT_ROUTES[], ISSUE_ROUTES[];
extern const struct route ENVIRONMENT_ROUTES[], LEASE_ROUTES[], EXEC_ROUTES[], RUN_ROUTES[];
extern const struct route ACTIVITY_ROUTES[], SYSTEM_ROUTES[];
extern const struct route *const ALL_ROUTES[]; /* NULL-terminated */
