/*
 * The inside of the runs service, shared by the files of this room.
 */
#pragma once

#include <pthread.h>
#include "run/default.h"
#include "run/orchestrator.h"

struct workspace_progress;

/* One run on its way, from claim to final status. */
struct run_task {
	struct run_task *next;
	struct runs *runs;
	char id[ID_SIZE], company_id[ID_SIZE];
	int cancel_fd;         /* latch */
	struct search *search; /* an earlier server began it; else NULL */
	struct run_progress progress;
};

struct run_watcher {
	struct run_watcher *next;
	char id[ID_SIZE];
	int owner_fd; /* the follower's eventfd, by which it is found again */
	int fd;       /* the service's own copy of it */
};

struct runs {
	struct db *db;
	struct clock *clock;
	const struct node *node;
	struct leases *leases;
	const struct makers *makers;
	struct places *places;
	struct runlog_store *logs;
	int max_parallel;
	struct quota quota;
	char *api_url, *home_path;
	struct default_place default_place;
	struct workspace_engine *engine; /* NULL: no workspaces */
	const struct allow *allow;       /* see runs_options; NULL: nothing */
	int stop_fd;                     /* latch: runs are let go */
	int rest_fd;                     /* latch: what earlier servers left is left again */
	const struct run_token_key *token_key;

	/* `lock` guards what follows; it is never held across a database or driver call. */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct run_task *tasks;
	size_t active;
	struct run_watcher *watchers;
	struct hold *holds; /* results that somebody is at work on (results.c) */
	bool woken, stopping, started;
	pthread_t dispatcher;

	bool looking_out;
	pthread_t lookout;
};

void runs_wake(struct runs *runs);
/* Whether the run is on its way here. */
bool runs_has(struct runs *runs, const char *run_id);
/* recovery.c: the search for the command of a run that an earlier server began. */
struct search *search_new(struct runs *runs, const char *run_id);
void search_free(struct search *search);
/* Until it is found and has ended, is known to be lost, or the service is stopping. */
void search_run(struct search *search, struct orchestration *o);
/* That on a thread of its own, which takes the search over. False: there is no thread now. */
bool runs_take_up(struct runs *runs, const char *run_id, const char *company_id,
		  struct search *search);
/* Tells followers that something about the run changed. */
void runs_notify(struct runs *runs, const char *run_id);
/* How far its files are; NULL: they are not on their way (any more). */
void runs_set_progress(struct runs *runs, const char *run_id, const struct workspace_progress *now);
/* Waits; false when the service is stopping and the caller should give up. */
bool runs_pause(struct runs *runs, int64_t ms);
/* The thread that finds lost runs while serving (recovery.c); it ends when `stopping` is set. */
int lookout_start(struct runs *runs, struct error *err);
void lookout_stop(struct runs *runs);
/* Goes on with the results of ended runs that an earlier server had not done with. */
void runs_collect_rest(struct runs *runs);
/* The run (or lease) ended then, and its results are still kept: it is not to be forgotten yet. */
bool runs_files_hold_back(struct runs *runs, const char *id, int64_t finished_at);
/* A run is forgotten: what is kept of its files goes with it. */
int runs_drop_results(struct runs *runs, const char *id, struct error *err);
/* spec 01 E.7: failed and timed_out runs fail their leases, all others release them. */
enum lease_status lease_status_for_run(enum run_status status);
