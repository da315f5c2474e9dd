/*
 * One run on its way through the steps of orchestrator.c: what they hand on to each other. Steps
 * are in the file named after them and return 0, or -1 with the error that ends the run.
 */
#pragma once

#include "record/workspace.h"
#include "run/files.h"
#include "run/orchestrator.h"
#include "run/service.h"
#include "workspace/workspace.h"

struct run_job {
	struct orchestration *o;
	struct run *run;
	struct agent agent; /* empty when the run has none */
	struct project project;
	struct issue issue;
	struct workspace_record workspace; /* the execution workspace; empty when there is none */
	bool reuses_workspace;
	struct environment environment;
	struct workspace_state files; /* what it brings and takes home; path NULL: nothing */
	struct files_report report;   /* of staging, then of collecting, until the row has it */
	char *masks;                  /* of mode overlay: see struct workspace_mount */
	struct lease lease;
	struct place place;
	struct execution_target target;
	json_t *request; /* of the realization, spec 01 E.5 */
	struct place_realization realization;
	char *cwd;
	struct exec_result result;
	bool began;         /* the command, so that there is work to bring home */
	bool executed;      /* result is meaningful */
	bool left_behind;   /* the server goes while the run is being collected */
	int64_t kept_until; /* the place stays, since it has work nobody could fetch yet; 0: no */
	struct error err;   /* the first failure; later ones never hide it */
	struct run_step_times times;
	struct actor actor;
	bool by_default;       /* nothing chose its environment but the company's default */
	bool project_by_issue; /* the run did not name its project itself */
	bool no_project_env;   /* the project's variables are not for this host */
};

int job_resolve(struct run_job *w, struct error *err);
int job_prepare(struct run_job *w, struct error *err); /* stage.c */
/* The place cannot have the directory itself, as `err` says: it gets a copy. -1: err stands. */
int job_copy_instead(struct run_job *w, struct error *err);
int job_realize(struct run_job *w, struct error *err);
int job_stage(struct run_job *w, struct error *err); /* stage.c */
void job_collect(struct run_job *w);                 /* stage.c */
void job_end(struct run_job *w);                     /* finish.c */
void job_release(struct run_job *w);                 /* finish.c */
/* What later readers of the run want to know about where it ran. */
int job_describe_place(struct run_job *w, struct error *err);

/* What asked for it: the adapter of the request, else the agent's. */
const char *job_adapter(const struct run_job *w);
/* The latch also wakes runs that wait when the server stops; that is no cancelling. */
bool job_is_cancelled(const struct run_job *w);
/* Puts where it happened before the message and makes the code one of spec 01 E.1. */
int step_failed(struct error *err, enum error_code code, const char *verb,
		const struct environment *environment);
static inline const char *set_or_null(const char *id)
{
	return id_is_set(id) ? id : NULL;
}
