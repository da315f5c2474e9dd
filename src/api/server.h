/*
 * The server's parts, wired together once by `berth serve` and given to every route handler.
 */
#pragma once

#include <pthread.h>
#include "auth/run_token.h"
#include "http/http.h"
#include "run/default.h"
#include "run/run.h"
#include "workspace/workspace.h"

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
	struct allow
		allow; /* what callers with a token may have of this host; lists are borrowed */
	bool drain;    /* on SIGTERM wait for runs */
	const char *tls_cert, *tls_key;   /* PEM files: TCP speaks TLS; both or none */
	bool insecure_http;               /* listen beyond loopback without TLS all the same */
	const char *const *allowed_hosts; /* names clients may know this server by; NULL: none */
	const char *public_url;          /* how runs reach this server; NULL: by where it listens */
	const char *run_key_path;        /* key of run tokens; NULL: <data>/jwt.key */
	bool allow_local_for_tokens;     /* people with tokens may use places of driver local */
	bool no_local;                   /* this server runs no command on its own host */
	const char *default_environment; /* where runs go that choose nothing; NULL: Sandbox */
	const char *log_file; /* where the log goes; SIGHUP opens it anew; NULL: stderr */
	bool metrics_public;  /* /metrics for anybody who can connect */
	int64_t max_runs;     /* at a time, as far as descriptors go; 0: 256 */
	struct quota quota;   /* of each company */
	/* What may be brought home of one run; 0: as usual (workspace/workspace.h). */
	int64_t max_collect_files, max_collect_mb;
	const json_t *environments; /* array: those the config file wants; NULL: none */

	/* Periods; 0 for the usual ones. */
	int64_t sweep_ms, reconcile_ms, cleanup_base_ms; /* as in struct leases_options */
	int64_t beat_ms;                                 /* 10 s; well below NODE_DEAD_MS */
	int64_t pack_ms; /* how old a log is that is compressed; 60 s */
};

struct server {
	struct server_options options;
	struct clock clock;
	struct node node;
	struct db *db;
	struct places *places;
	struct maker_host maker_host;
	char *socket_dir; /* of a socket elsewhere; NULL: it is in the data directory */
	struct makers makers;
	struct default_place default_place;
	struct leases *leases;
	struct workspace_engine engine;
	struct runs *runs;
	struct runlog_store *run_logs;
	struct execs *execs;
	struct feed *feed;
	struct company_cache *companies;
	struct event_tallies *event_tallies;
	struct log_compressor *compressor;
	struct run_token_key run_key; /* signs the tokens of runs */
	struct http *http;
	pthread_t maintenance;
	int data_dirfd, lock_fd;
	int stop_fd; /* latch: somebody here wants the server to end */
	pthread_t survey;
	int survey_fd;      /* latch that wakes its thread; -1 while there is none */
	int maintenance_fd; /* latch that ends the maintenance thread; -1 while there is none */
	char *data_path, *socket_path, *home_path;
	char *claimant;     /* what other servers are told when they want its database */
	bool has_engine;    /* it is open */
	bool listening;     /* the socket at socket_path is ours */
	json_t *sandbox;    /* config of every company's Sandbox */
	json_t *complaints; /* of the config file's environments: array of sentences */
	int64_t started_at;
	int64_t open_files; /* soft limit of descriptors it was started with; its keeper keeps that
			     */
	int max_runs;       /* what is left of options.max_runs */
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

/*
 * Defines the routes of a resource, ended by path NULL, and registers them in a linker section: the
 * router and the description of the API find them there, and there is no list. The description has
 * the tables by `order`; a new one takes a number between its neighbours,
 * `grep -rn "^ROUTES(" src/api`.
 *
 *     ROUTES(AGENT_ROUTES, 20) = { { HTTP_GET, "/api/agents/:id", ... }, { 0 } };
 */
struct route_table {
	int order;
	const struct route *routes;
};
#define ROUTES(ident, order)                                                                       \
	extern const struct route ident[];                                                         \
	static const struct route_table ident##_table = { (order), ident };                        \
	static const struct route_table *const ident##_ref                                         \
		__attribute__((used, section("berth_routes"))) = &ident##_table;                   \
	const struct route ident[]
/* The table at an index in that order; NULL past the last. */
const struct route *route_table_at(size_t index);
/* The second stands in for the first with metrics_public. */
extern const struct route METRICS_ROUTES[], METRICS_PUBLIC_ROUTES[];

/*
 * Who is asking, and what they may do: the two questions the HTTP server has about every request.
 *
 *   bearer -> actor: a user's or an agent's token, or the token of a run that is still going
 *   route, subject, actor -> company, permissions, or a refusal
 *
 * Something of another company does not exist as far as the caller can tell: an id of it is the
 * same 404 as an id of nothing. A company that is named in the path is 403, there or not.
 */
int access_authenticate(void *server, const char *bearer, struct actor *actor, struct error *err);
int access_authorize(void *server, struct request *request, struct error *err);

/*
 * Which company a record belongs to, remembered. Every request about a record asks this first, and
 * the answer never changes: records do not move and ids are not used twice. That a record is gone
 * is for its own route to say. A fixed table without ends: a newer record takes an older one's
 * slot.
 */
struct company_cache;
struct company_cache *company_cache_new(void);
void company_cache_free(struct company_cache *homes);
/* False: not known. `kind` keeps apart what the ids name. */
bool company_cache_find(struct company_cache *homes, int kind, const char *id,
			char company_id[ID_SIZE]);
void company_cache_put(struct company_cache *homes, int kind, const char *id,
		       const char *company_id);

/*
 * What is wrong with the machine or the config file, as an array of sentences for people: disk
 * nearly full, clock moved, ... Empty when all is well.
 */
json_t *server_warnings(struct server *server);
#define WARNINGS_COUNT 3
/* Logs each when it comes up, not each time it is asked. `logged` is the caller's memory of that. */
void server_log_warnings(struct server *server, bool logged[WARNINGS_COUNT]);

/*
 * The API described for machines (OpenAPI 3.1), from the tables that the router itself uses, so that
 * it cannot say what is not so. scripts/api-docs makes the page for people of it.
 */
json_t *openapi_document(void);
